"""Additions to mmsegmentation's segmentors."""

from mmengine.model import BaseModule

from vitplug.registry import MODELS


# A function instead of the class, so that mmseg is imported only for configs that use it.
@MODELS.register_module('LinearSegHead')
def build_linear_seg_head(**settings) -> BaseModule:
    """Builds :class:`vitplug.segmentors.linear_head.LinearSegHead`, which classifies the tokens of maps.

    Args:
        settings: Arguments of the head.
    """
    from .linear_head import LinearSegHead

    return LinearSegHead(**settings)
