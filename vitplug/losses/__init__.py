"""Losses of segmentation heads."""

from importlib.util import find_spec

__all__ = []

# Who has mmpretrain or mmdet alone must still find the backbones in the registry.
if find_spec('mmseg'):
    from .class_weights import SegCrossEntropyLoss

    __all__ += ['SegCrossEntropyLoss']
