"""Plugs on any model of torch: the loop over blocks, branches with sockets, tokens on images (torch only).

A model that is a :class:`PluggedModel` takes every plug, and every analysis takes it.
"""

from .attach import build_plugs, plugs_text
from .attention import SelfAttention
from .edits import EDITABLE, Edit, Edits
from .heads import fit_heads, overlay
from .mlp import Mlp, feed_forward
from .model import PluggedModel
from .padding import TokenMap, keep_padding, mark_padding, valid_sizes
from .pixels import PixelGrid
from .places import Merge, Section

__all__ = [
    'EDITABLE',
    'Edit',
    'Edits',
    'Merge',
    'Mlp',
    'PixelGrid',
    'PluggedModel',
    'Section',
    'SelfAttention',
    'TokenMap',
    'build_plugs',
    'feed_forward',
    'fit_heads',
    'keep_padding',
    'mark_padding',
    'overlay',
    'plugs_text',
    'valid_sizes',
]
