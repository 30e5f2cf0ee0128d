"""The registered hosts."""

from .lvt import LVT
from .swin import SwinTransformer
from .vision_transformer import DistilledVisionTransformer, VisionTransformer

__all__ = ['LVT', 'DistilledVisionTransformer', 'SwinTransformer', 'VisionTransformer']
