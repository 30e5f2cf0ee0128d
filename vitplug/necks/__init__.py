"""Feature pyramids for backbones with maps of a single resolution."""

from .simple_feature_pyramid import LayerNorm2d, SimpleFeaturePyramid

__all__ = ['LayerNorm2d', 'SimpleFeaturePyramid']
