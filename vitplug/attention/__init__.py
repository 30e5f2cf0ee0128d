"""The one attention core (torch only)."""

from .bias import DenseBias, OffsetBias, PairBias, QueryBias
from .carry import Carry, carrying
from .core import attend, fused_attention, uniform_maps
from .fused import fused
from .grids import GridPair, TokenGrid
from .inputs import Attention, ExtraKeys
from .intermediates import LayerRecord, Recorder
from .layouts import GlobalLayout, Layout, WindowLayout
from .site import Site

__all__ = [
    'Attention',
    'Carry',
    'DenseBias',
    'ExtraKeys',
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
    'fused',
    'fused_attention',
    'uniform_maps',
]
