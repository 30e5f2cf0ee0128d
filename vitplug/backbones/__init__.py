"""The registered hosts."""

from .swin import SwinTransformer
from .vision_transformer import VisionTransformer

__all__ = ['SwinTransformer', 'VisionTransformer']
