"""ViT and DeiT of timm, mmpretrain and mmseg."""

import torch.nn.functional as F
from torch import Tensor

from .format import Format, State, table

NETWORK = 'ViT'
#: The key by which timm's ViT and its descendants are recognised.
QKV = r'blocks\.\d+\.attn\.qkv\.weight'

_BLOCK = table(
    """
    norm1 = ln1, norm2 = ln2, attn.qkv, attn.proj
    ls1.gamma = attn.gamma1.weight, ls2.gamma = ffn.gamma2.weight
    gamma_1 = attn.gamma1.weight, gamma_2 = ffn.gamma2.weight
    mlp.fc1 = ffn.layers.0.0, mlp.fc2 = ffn.layers.1, mlp.fc1 = ffn.w12, mlp.fc2 = ffn.w3
    attn.rel_pos.mlp = plugs.rel_pos_mlp.bias
    attn.gate = plugs.gated_attention.heads.gate
    attn.lambda_q1 = plugs.differential_attention.map.lambda_q1
    attn.lambda_k1 = plugs.differential_attention.map.lambda_k1
    attn.lambda_q2 = plugs.differential_attention.map.lambda_q2
    attn.lambda_k2 = plugs.differential_attention.map.lambda_k2
    attn.sub_norm = plugs.differential_attention.map
    """,
    'blocks.{}.',
    'layers.{}.',
)
_OUTSIDE = table(
    """
    cls_token, dist_token, pos_embed, patch_embed.proj = patch_embed.projection
    norm_pre = pre_norm, norm = ln1, fc_norm = ln2, pre_logits.fc = .head.layers.pre_logits
    head_dist = .head.layers.head_dist, head = .head.layers.head, head = .head.fc
    """
)
#: timm's names, which most code of the papers has, too.
NAMES = (*_OUTSIDE, *_BLOCK)
_FREQUENCIES = 'rope.freqs'


def _check_positions(theirs: State) -> State:
    """Refuses the networks `vit_pe_*`, which have CLIP's names and rotary positions of another kind than vitplug's."""
    has_last_norm = 'norm.weight' in theirs or 'fc_norm.weight' in theirs
    if 'norm_pre.weight' in theirs and ('attn_pool.latent' in theirs or not has_last_norm):
        raise ValueError(
            "names of timm's Perception Encoder, whose rotary positions no tensor shows and vitplug has not, or of "
            'CLIP without its last norm, which cannot be told from it; vitplug.plug_in takes a model of timm'
        )
    return theirs


def _with_position_of_class(ours: dict[str, Tensor], theirs: State) -> dict[str, Tensor]:
    """timm adds the position of the class token to the token where there are registers."""
    if all(f'backbone.{name}' in ours for name in ('storage_tokens', 'cls_token', 'pos_embed')):
        ours['backbone.pos_embed'] = F.pad(ours['backbone.pos_embed'], (0, 0, 1, 0))
    return ours


def _without_position_of_class(theirs: dict[str, Tensor]) -> dict[str, Tensor]:
    if 'reg_token' in theirs and 'pos_embed' in theirs and 'cls_token' in theirs:
        positions = theirs['pos_embed']
        theirs |= dict(cls_token=theirs['cls_token'] + positions[:, :1], pos_embed=positions[:, 1:])
    return theirs


def _frequencies_by_block(ours: dict[str, Tensor], theirs: State) -> dict[str, Tensor]:
    """Mixed rotary positions (Heo et al.) are one tensor of all blocks in timm, ``(2, L, H, d / 2)``."""
    frequencies = ours.pop(f'backbone.{_FREQUENCIES}', None)
    for index, block in enumerate(() if frequencies is None else frequencies.unbind(1)):
        ours[f'backbone.layers.{index}.plugs.rotary_position.qkv.frequencies'] = block
    return ours


def _rotary_plug(theirs: State) -> list[str]:
    mode = 'mixed' if _FREQUENCIES in theirs else 'axial'
    return [f"the network has rotary positions: plugs=[dict(type='RotaryPosition', mode='{mode}')]"]


TIMM_ROPE_VIT = Format(
    'timm ViT with rotary positions',
    NETWORK,
    (QKV, r'blocks\.\d+\.gamma_1'),
    NAMES,
    rotary='axial or mixed',
    prepare=_check_positions,
    finish=_frequencies_by_block,
    notes=_rotary_plug,
)
TIMM_VIT = Format(
    'timm ViT',
    NETWORK,
    (QKV,),
    # SigLIP pools by attention, which no backbone does.
    (*table('reg_token = storage_tokens, attn_pool = .attention_pool'), *NAMES),
    prepare=_check_positions,
    finish=_with_position_of_class,
    restore=_without_position_of_class,
)
MM_VIT = Format('OpenMMLab ViT', NETWORK, (r'layers\.\d+\.attn\.qkv\.weight',))
MMSEG_VIT = Format(
    'mmseg ViT',
    NETWORK,
    (r'layers\.\d+\.attn\.attn\.in_proj_weight',),
    table(
        """
        attn.attn.in_proj_weight = attn.qkv.weight, attn.attn.in_proj_bias = attn.qkv.bias
        attn.attn.out_proj = attn.proj
        """,
        'layers.{}.',
        'layers.{}.',
    ),
    without_bias=('patch_embed.projection.bias',),
)
