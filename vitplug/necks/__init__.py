"""Feature pyramids for backbones whose maps all have one resolution."""

from .simple_feature_pyramid import LayerNorm2d, SimpleFeaturePyramid

__all__ = ['LayerNorm2d', 'SimpleFeaturePyramid']
