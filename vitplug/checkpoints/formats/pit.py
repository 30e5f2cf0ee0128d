"""PiT of its authors and of timm, whose names vitplug has."""

from .format import Format, below

NETWORK = 'PiT'

_QKV = r'transformers\.\d+\.blocks\.\d+\.attn\.qkv\.weight'
_BLOCK = ('norm1', 'attn.qkv', 'attn.proj', 'norm2', 'mlp.fc1', 'mlp.fc2')
_PARTS = ('pool', *(f'blocks.{{}}.{part}' for part in _BLOCK))
_NAMES = [
    *((name, f'backbone.{name}') for name in ('patch_embed', 'cls_token', 'pos_embed', 'norm')),
    *below('transformers.{}', 'backbone.transformers.{}', [(part, part) for part in _PARTS]),
    ('head_dist', 'head.layers.head_dist'),
    ('head', 'head.layers.head'),
    ('head', 'head.fc'),
]

TIMM_PIT = Format('timm PiT', NETWORK, (_QKV,), _NAMES)
# The authors count the poolings between the stages, timm gives them to the stage after.
ORIGINAL_PIT = Format(
    'original PiT',
    NETWORK,
    (_QKV, r'pools\.0\.conv\.weight'),
    [*((f'pools.{i}', f'backbone.transformers.{i + 1}.pool') for i in range(8)), *_NAMES],
)
