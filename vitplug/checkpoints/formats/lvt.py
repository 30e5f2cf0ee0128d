"""LVT of its authors, whose names vitplug has."""

from .format import Format

NETWORK = 'LVT'

LVT = Format(
    'LVT',
    NETWORK,
    (r'backbone\.\d+\.1\.\d+\.attn\.q\.weight',),
    [
        *((name, f'backbone.{name}') for name in ('backbone', 'norm', 'downstream_norms', 'post_network', 'cls_token')),
        ('aux_head', 'head.aux_head'),
        ('head', 'head.layers.head'),
    ],
)
