"""ViT and DeiT of timm, mmpretrain and mmseg."""

from dataclasses import dataclass

from torch import Tensor

from .format import Format, OpenMMLab, State, below

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
    ('mlp.fc1', 'ffn.layers.0.0'),
    ('mlp.fc2', 'ffn.layers.1'),
]
_MMSEG_BLOCK = [
    ('attn.attn.in_proj_weight', 'attn.qkv.weight'),
    ('attn.attn.in_proj_bias', 'attn.qkv.bias'),
    ('attn.attn.out_proj', 'attn.proj'),
]
#: The key by which timm's ViT and its descendants are recognised.
QKV = r'blocks\.\d+\.attn\.qkv\.weight'
#: timm's names, which most code of the papers has, too.
NAMES = [
    *((name, f'backbone.{name}') for name in ('cls_token', 'dist_token', 'pos_embed')),
    ('reg_token', 'backbone.plugs.registers.prefix.register_tokens'),
    ('patch_embed.proj', 'backbone.patch_embed.projection'),
    ('norm_pre', 'backbone.pre_norm'),
    *below('blocks.{}', 'backbone.layers.{}', _BLOCK),
    ('norm', 'backbone.ln1'),
    ('fc_norm', 'backbone.ln2'),
    ('pre_logits.fc', 'head.layers.pre_logits'),
    ('head_dist', 'head.layers.head_dist'),
    ('head', 'head.layers.head'),
    ('head', 'head.fc'),
]

_ROPE_BLOCK = [('gamma_1', 'attn.gamma1.weight'), ('gamma_2', 'ffn.gamma2.weight')]
_FREQUENCIES = 'rope.freqs'


@dataclass(frozen=True)
class RopeViT(Format):
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


TIMM_ROPE_VIT = RopeViT(
    'timm ViT with rotary positions',
    NETWORK,
    (QKV, r'blocks\.\d+\.gamma_1'),
    [*below('blocks.{}', 'backbone.layers.{}', _ROPE_BLOCK), *NAMES],
)
TIMM_VIT = Format('timm ViT', NETWORK, (QKV,), NAMES)
MM_VIT = OpenMMLab('OpenMMLab ViT', NETWORK, (r'layers\.\d+\.attn\.qkv\.weight',))
MMSEG_VIT = OpenMMLab(
    'mmseg ViT',
    NETWORK,
    (r'layers\.\d+\.attn\.attn\.in_proj_weight',),
    below('layers.{}', 'backbone.layers.{}', _MMSEG_BLOCK),
    without_bias=('patch_embed.projection.bias',),
)
