"""The registered hosts."""

from .mvit import MViT
from .swin import SwinTransformer
from .vision_transformer import DistilledVisionTransformer, VisionTransformer

__all__ = ['DistilledVisionTransformer', 'MViT', 'SwinTransformer', 'VisionTransformer']
