"""The one attention core (torch only)."""

from .bias import DenseBias, OffsetBias, PairBias, QueryBias
from .carry import Carry, carrying
from .core import attend, attend_windows, fused_attention, uniform_maps
from .forms import fused
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
    'attend_windows',
    'carrying',
    'fused',
    'fused_attention',
    'uniform_maps',
]
