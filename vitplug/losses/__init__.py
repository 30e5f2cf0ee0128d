"""Losses of segmentation heads."""

from importlib.util import find_spec

__all__ = []

# Without mmseg, the import of the backbones' registry must not fail.
if find_spec('mmseg'):
    from .class_weights import SegCrossEntropyLoss

    __all__ += ['SegCrossEntropyLoss']
