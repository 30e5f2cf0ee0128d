"""Losses of segmentation heads."""

from torch import nn

from vitplug.registry import MODELS


# A function, not the class: mmseg, which upstream needs mmcv's ops for, is imported only for configs that use it.
@MODELS.register_module('SegCrossEntropyLoss')
def build_seg_cross_entropy_loss(**settings) -> nn.Module:
    """:class:`vitplug.losses.class_weights.SegCrossEntropyLoss`, whose class weights go with ignored pixels.

    Args:
        settings: Arguments of mmseg's ``CrossEntropyLoss``.
    """
    from .class_weights import SegCrossEntropyLoss

    return SegCrossEntropyLoss(**settings)
