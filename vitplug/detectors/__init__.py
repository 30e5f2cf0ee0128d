"""What mmdet lacks around its detectors."""

from mmengine.model import BaseTTAModel

from vitplug.registry import MODELS


# A function, not the class: mmdet is imported only for configs that use it.
@MODELS.register_module('DetTTAModel')
def build_det_tta_model(**settings) -> BaseTTAModel:
    """:class:`vitplug.detectors.augmented_test.DetTTAModel`, which merges boxes and masks of several views.

    Args:
        settings: Arguments of mmdet's class of the same name.
    """
    from .augmented_test import DetTTAModel

    return DetTTAModel(**settings)
