"""The registered hosts."""

from .swin import SwinTransformer
from .t2t_vit import T2T_ViT
from .vision_transformer import DistilledVisionTransformer, VisionTransformer

__all__ = ['DistilledVisionTransformer', 'SwinTransformer', 'T2T_ViT', 'VisionTransformer']
