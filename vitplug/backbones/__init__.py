"""The registered hosts."""

from .swin import SwinTransformer
from .swin_v2 import SwinTransformerV2
from .vision_transformer import DistilledVisionTransformer, VisionTransformer

__all__ = ['DistilledVisionTransformer', 'SwinTransformer', 'SwinTransformerV2', 'VisionTransformer']
