"""The registered hosts."""

from .swin import SwinTransformer
from .vision_transformer import DistilledVisionTransformer, VisionTransformer

__all__ = ['DistilledVisionTransformer', 'SwinTransformer', 'VisionTransformer']
