"""MLP-Mixer of timm and mmpretrain."""

from .format import Format, OpenMMLab, below

NETWORK = 'MLP-Mixer'

_BLOCK = [
    ('norm1', 'ln1'),
    ('mlp_tokens.fc1', 'token_mix.layers.0.0'),
    ('mlp_tokens.fc2', 'token_mix.layers.1'),
    ('norm2', 'ln2'),
    ('mlp_channels.fc1', 'channel_mix.layers.0.0'),
    ('mlp_channels.fc2', 'channel_mix.layers.1'),
]

TIMM_MIXER = Format(
    'timm MLP-Mixer',
    NETWORK,
    (r'blocks\.\d+\.mlp_tokens\.fc1\.weight',),
    [
        ('stem.proj', 'backbone.patch_embed.projection'),
        *below('blocks.{}', 'backbone.layers.{}', _BLOCK),
        ('norm', 'backbone.ln1'),
        ('head', 'head.fc'),
    ],
)
MM_MIXER = OpenMMLab('OpenMMLab MLP-Mixer', NETWORK, (r'layers\.\d+\.token_mix\.layers\.0\.0\.weight',))
