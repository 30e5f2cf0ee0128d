"""ViT and DeiT of timm, mmpretrain and mmseg."""

from .format import Format, OpenMMLab, below

NETWORK = 'ViT'

_BLOCK = [
    ('norm1', 'ln1'),
    ('norm2', 'ln2'),
    ('attn.rel_pos.mlp', 'plugs.rel_pos_mlp.bias'),
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

TIMM_VIT = Format('timm ViT', NETWORK, (QKV,), NAMES)
MM_VIT = OpenMMLab('OpenMMLab ViT', NETWORK, (r'layers\.\d+\.attn\.qkv\.weight',))
MMSEG_VIT = OpenMMLab(
    'mmseg ViT',
    NETWORK,
    (r'layers\.\d+\.attn\.attn\.in_proj_weight',),
    below('layers.{}', 'backbone.layers.{}', _MMSEG_BLOCK),
    without_bias=('patch_embed.projection.bias',),
)
