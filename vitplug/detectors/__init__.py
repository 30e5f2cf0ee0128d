"""Additions to mmdet's detectors."""

from mmengine.model import BaseTTAModel

from vitplug.registry import MODELS


# A function instead of the class, so that mmdet is imported only for configs that use it.
@MODELS.register_module('DetTTAModel')
def build_det_tta_model(**settings) -> BaseTTAModel:
    """Builds :class:`vitplug.detectors.augmented_test.DetTTAModel`, which merges boxes and masks of several views.

    Args:
        settings: Arguments of mmdet's ``DetTTAModel``.
    """
    from .augmented_test import DetTTAModel

    return DetTTAModel(**settings)
