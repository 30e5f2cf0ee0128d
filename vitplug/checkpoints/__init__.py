"""Reads, converts and loads checkpoints of timm, OpenMMLab and the authors of papers."""

from .files import find_weights, read_checkpoint
from .formats import convert, recognise
from .pretrained import Pretrained, load_pretrained

__all__ = ['Pretrained', 'convert', 'find_weights', 'load_pretrained', 'read_checkpoint', 'recognise']
