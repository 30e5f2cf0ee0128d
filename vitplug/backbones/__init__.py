"""The registered hosts."""

from .foundation import FoundationTransformer
from .lvt import LVT
from .mlp_mixer import MlpMixer
from .mvit import MViT
from .pit import PoolingVisionTransformer
from .swin import SwinTransformer
from .swin_v2 import SwinTransformerV2
from .t2t_vit import T2T_ViT
from .vision_transformer import DistilledVisionTransformer, VisionTransformer

__all__ = [
    'LVT',
    'DistilledVisionTransformer',
    'FoundationTransformer',
    'MViT',
    'MlpMixer',
    'PoolingVisionTransformer',
    'SwinTransformer',
    'SwinTransformerV2',
    'T2T_ViT',
    'VisionTransformer',
]
