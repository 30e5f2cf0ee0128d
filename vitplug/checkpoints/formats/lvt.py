"""LVT of its authors, who count the stages below ``backbone``, as a classifier with vitplug's backbone does."""

from .format import OpenMMLab, Released

NETWORK = 'LVT'

_QUERIES = r'\d+\.1\.\d+\.attn\.q\.weight'
_NORM = r'(?:norm|downstream_norms\.\d+)\.weight'

ORIGINAL_LVT = Released(
    'original LVT',
    NETWORK,
    (rf'backbone\.{_QUERIES}', _NORM),
    [
        ('backbone', 'backbone'),
        *((name, f'backbone.{name}') for name in ('norm', 'downstream_norms', 'post_network', 'cls_token')),
        ('aux_head', 'head.aux_head'),
        ('head', 'head.layers.head'),
    ],
)
LVT = OpenMMLab('vitplug LVT', NETWORK, (_QUERIES, _NORM))
