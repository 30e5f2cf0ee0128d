"""The one attention core (torch only)."""

from .carry import Carry, carrying
from .core import TokenGrid, attend, fused_attention
from .intermediates import LayerRecord, Recorder

__all__ = ['Carry', 'LayerRecord', 'Recorder', 'TokenGrid', 'attend', 'carrying', 'fused_attention']
