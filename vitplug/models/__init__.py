"""What the libraries lack around the hosts: classifiers, a pyramid, a linear head, preprocessors."""

from importlib.util import find_spec

from mmengine.model import BaseModule

from vitplug.registry import MODELS

from .data_preprocessors import build_det_data_preprocessor, build_seg_data_preprocessor
from .simple_feature_pyramid import SimpleFeaturePyramid

__all__ = [
    'SimpleFeaturePyramid',
    'build_det_data_preprocessor',
    'build_linear_seg_head',
    'build_seg_data_preprocessor',
]

# Without mmpretrain, the import of the backbones' registry must not fail.
if find_spec('mmpretrain'):
    from .distilled import DistilledClassifier
    from .diversity import DiverseClassifier
    from .token_labels import TokenLabelClassifier, TokenLabelHead

    __all__ += ['DistilledClassifier', 'DiverseClassifier', 'TokenLabelClassifier', 'TokenLabelHead']


@MODELS.register_module('LinearSegHead')
def build_linear_seg_head(**settings) -> BaseModule:
    """Builds :class:`vitplug.models.linear_head.LinearSegHead`; mmseg is imported only for configs that use it."""
    from .linear_head import LinearSegHead

    return LinearSegHead(**settings)
