"""The one attention core (torch only)."""

from .bias import DenseBias, OffsetBias, PairBias, QueryBias
from .carry import Carry, carrying
from .core import attend, fused_attention
from .grids import GridPair, TokenGrid
from .inputs import Attention
from .intermediates import LayerRecord, Recorder
from .layouts import GlobalLayout, Layout, WindowLayout
from .site import Site

__all__ = [
    'Attention',
    'Carry',
    'DenseBias',
    'GlobalLayout',
    'GridPair',
    'LayerRecord',
    'Layout',
    'OffsetBias',
    'PairBias',
    'QueryBias',
    'Recorder',
    'Site',
    'TokenGrid',
    'WindowLayout',
    'attend',
    'carrying',
    'fused_attention',
]
