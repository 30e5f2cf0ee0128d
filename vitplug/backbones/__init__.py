"""The registered hosts."""

from .mlp_mixer import MlpMixer
from .pit import PoolingVisionTransformer
from .swin import SwinTransformer
from .vision_transformer import DistilledVisionTransformer, VisionTransformer

__all__ = [
    'DistilledVisionTransformer',
    'MlpMixer',
    'PoolingVisionTransformer',
    'SwinTransformer',
    'VisionTransformer',
]
