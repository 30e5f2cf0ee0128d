"""ViT and DeiT of timm, mmpretrain and mmseg."""

from dataclasses import dataclass

import torch.nn.functional as F
from torch import Tensor

from .format import OpenMMLab, State, below
from .joined import JoinedFormat

NETWORK = 'ViT'

_BLOCK = [
    ('norm1', 'ln1'),
    ('norm2', 'ln2'),
    ('attn.rel_pos.mlp', 'plugs.rel_pos_mlp.bias'),
    ('attn.gate', 'plugs.gated_attention.heads.gate'),
    *((f'attn.lambda_{name}', f'plugs.differential_attention.map.lambda_{name}') for name in ('q1', 'k1', 'q2', 'k2')),
    ('attn.sub_norm', 'plugs.differential_attention.map'),
    ('attn.qkv', 'attn.qkv'),
    ('attn.proj', 'attn.proj'),
    ('ls1.gamma', 'attn.gamma1.weight'),
    ('ls2.gamma', 'ffn.gamma2.weight'),
]
_MLP = [('mlp.fc1', 'ffn.layers.0.0'), ('mlp.fc2', 'ffn.layers.1')]
_MMSEG_BLOCK = [
    ('attn.attn.in_proj_weight', 'attn.qkv.weight'),
    ('attn.attn.in_proj_bias', 'attn.qkv.bias'),
    ('attn.attn.out_proj', 'attn.proj'),
]
#: The key by which timm's ViT and its descendants are recognised.
QKV = r'blocks\.\d+\.attn\.qkv\.weight'
_OUTSIDE = [
    *((name, f'backbone.{name}') for name in ('cls_token', 'dist_token', 'pos_embed')),
    ('patch_embed.proj', 'backbone.patch_embed.projection'),
    ('norm_pre', 'backbone.pre_norm'),
    ('norm', 'backbone.ln1'),
    ('fc_norm', 'backbone.ln2'),
    ('pre_logits.fc', 'head.layers.pre_logits'),
    ('head_dist', 'head.layers.head_dist'),
    ('head', 'head.layers.head'),
    ('head', 'head.fc'),
]
#: timm's names, which most code of the papers has, too.
NAMES = [*_OUTSIDE, *below('blocks.{}', 'backbone.layers.{}', [*_BLOCK, *_MLP])]


@dataclass(frozen=True)
class TimmViT(JoinedFormat):
    """timm's ViT, in which the position of the class token is part of the token where there are registers."""

    def to_vitplug(self, state: State) -> dict[str, Tensor]:
        ours = super().to_vitplug(state)
        if all(f'backbone.{name}' in ours for name in ('storage_tokens', 'cls_token', 'pos_embed')):
            ours['backbone.pos_embed'] = F.pad(ours['backbone.pos_embed'], (0, 0, 1, 0))
        return ours

    def from_vitplug(self, state: State) -> dict[str, Tensor]:
        theirs = super().from_vitplug(state)
        if 'reg_token' in theirs and 'pos_embed' in theirs and 'cls_token' in theirs:
            table = theirs['pos_embed']
            theirs |= dict(cls_token=theirs['cls_token'] + table[:, :1], pos_embed=table[:, 1:])
        return theirs


@dataclass(frozen=True)
class RopeViT(TimmViT):
    """ViT with rotary positions (Heo et al.) of timm; mixed ones are one tensor of all blocks, ``(2, L, H, d / 2)``."""

    def to_vitplug(self, state: State) -> dict[str, Tensor]:
        ours = super().to_vitplug({key: value for key, value in state.items() if key != _FREQUENCIES})
        if _FREQUENCIES in state:
            for index, block in enumerate(state[_FREQUENCIES].unbind(1)):
                ours[f'backbone.layers.{index}.plugs.rotary_position.qkv.frequencies'] = block
        return ours

    def notes(self, state: State) -> list[str]:
        mode = 'mixed' if _FREQUENCIES in state else 'axial'
        return [f"the network has rotary positions: plugs=[dict(type='RotaryPosition', mode='{mode}')]"]


_FREQUENCIES = 'rope.freqs'
TIMM_ROPE_VIT = RopeViT(
    'timm ViT with rotary positions',
    NETWORK,
    (QKV, r'blocks\.\d+\.gamma_1'),
    _OUTSIDE,
    inside=[('gamma_1', 'attn.gamma1.weight'), ('gamma_2', 'ffn.gamma2.weight'), *_BLOCK],
    plain=_MLP,
)
TIMM_VIT = TimmViT(
    'timm ViT',
    NETWORK,
    (QKV,),
    # SigLIP pools by attention, which no backbone does.
    [('reg_token', 'backbone.storage_tokens'), ('attn_pool', 'attention_pool'), *_OUTSIDE],
    inside=_BLOCK,
    plain=_MLP,
    gated=[('mlp.fc1', 'ffn.w12'), ('mlp.fc2', 'ffn.w3')],
)
MM_VIT = OpenMMLab('OpenMMLab ViT', NETWORK, (r'layers\.\d+\.attn\.qkv\.weight',))
MMSEG_VIT = OpenMMLab(
    'mmseg ViT',
    NETWORK,
    (r'layers\.\d+\.attn\.attn\.in_proj_weight',),
    below('layers.{}', 'backbone.layers.{}', _MMSEG_BLOCK),
    without_bias=('patch_embed.projection.bias',),
)
