"""The simple feature pyramid of *Exploring Plain Vision Transformer Backbones for Object Detection* (ViTDet)."""

from collections.abc import Mapping, Sequence
from functools import partial

import torch.nn.functional as F
from mmcv.cnn import ConvModule, build_norm_layer
from mmengine.model import BaseModule
from torch import Tensor, nn
from torchvision.models.convnext import LayerNorm2d

from vitplug.registry import MODELS

SCALES = (4, 2, 1, 0.5)
# Twice as many rows and columns, from some channels to others.
_double = partial(nn.ConvTranspose2d, kernel_size=2, stride=2)


MODELS.register_module(module=LayerNorm2d)  # over the channels of maps


@MODELS.register_module()
class SimpleFeaturePyramid(BaseModule):
    """A feature pyramid computed from the last map of a plain backbone.

    Each level is computed separately, without a top-down path: transposed convolutions enlarge the map, max pooling
    shrinks it. A 1 x 1 and a 3 x 3 convolution follow, each with a norm::

        stride 16 --+-- x4  deconv, norm, GELU, deconv --+
                    +-- x2  deconv ----------------------+-- 1x1, norm, 3x3, norm --> strides 4, 8, 16, 32
                    +-- x1  -----------------------------+                            (and 64, by subsampling)
                    +-- x1/2  max pool ------------------+

    Args:
        in_channels: Channels of the backbone's map, ``D``.
        out_channels: Channels of each level.
        scale_factors: Scale of each level, fine to coarse, from 4, 2, 1 and 0.5.
        num_outs: Number of levels; each additional level subsamples the previous one by 2.
        norm_cfg: Config of the norms; layer norm over channels by default.
        init_cfg: Weight initialisation.

    Raises:
        ValueError: If a scale is unknown or there are fewer outputs than scales.
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int = 256,
        scale_factors: Sequence[float] = SCALES,
        num_outs: int = 5,
        norm_cfg: Mapping = dict(type='vitplug.LayerNorm2d', eps=1e-6),
        init_cfg: Mapping | None = None,
    ):
        super().__init__(init_cfg)
        if not scale_factors or not {*scale_factors} <= {*SCALES}:
            raise ValueError(f'scale_factors={list(scale_factors)}: expected some of {list(SCALES)}')
        if num_outs < len(scale_factors):
            raise ValueError(f'num_outs={num_outs}: expected at least {len(scale_factors)}, one per scale factor')
        self.num_outs = num_outs
        self.levels = nn.ModuleList()
        for scale in scale_factors:
            rescale, channels = _rescale(scale, in_channels, norm_cfg)
            conv = dict(out_channels=out_channels, norm_cfg=norm_cfg, act_cfg=None)
            lateral = ConvModule(channels, kernel_size=1, **conv)
            smooth = ConvModule(out_channels, kernel_size=3, padding=1, **conv)
            self.levels.append(nn.Sequential(*rescale, lateral, smooth))

    def forward(self, inputs: Sequence[Tensor]) -> tuple[Tensor, ...]:
        """The levels ``(B, out_channels, s h, s w)``, fine to coarse, of the last map ``(B, D, h, w)``."""
        outs = [level(inputs[-1]) for level in self.levels]
        while len(outs) < self.num_outs:
            outs.append(F.max_pool2d(outs[-1], 1, stride=2))
        return tuple(outs)


def _rescale(scale: float, channels: int, norm_cfg: Mapping) -> tuple[list[nn.Module], int]:
    """The layers that rescale a map of some channels, and their output channels."""
    half, quarter = channels // 2, channels // 4
    if scale == 4:
        norm = build_norm_layer(norm_cfg, half)[1]
        return [_double(channels, half), norm, nn.GELU(), _double(half, quarter)], quarter
    if scale == 2:
        return [_double(channels, half)], half
    return ([nn.MaxPool2d(2, stride=2)] if scale == 0.5 else []), channels
