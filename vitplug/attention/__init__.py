"""The one attention core (torch only)."""

from .carry import Carry, carrying
from .core import attend, fused_attention
from .grids import TokenGrid, WindowLayout
from .intermediates import LayerRecord, Recorder

__all__ = ['Carry', 'LayerRecord', 'Recorder', 'TokenGrid', 'WindowLayout', 'attend', 'carrying', 'fused_attention']
