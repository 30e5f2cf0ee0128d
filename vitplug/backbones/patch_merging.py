"""Merging of neighbouring patches between stages."""

import torch.nn.functional as F
from mmcv.cnn.bricks.transformer import PatchMerging
from torch import Tensor, nn

from vitplug.hosting import PixelGrid

from .ffn import layer_norm
from .patch_embed import WholePatches, after_padding


class FastPatchMerging(PatchMerging):
    """mmcv's patch merging, with fewer copies in its unfolding."""

    def __init__(self, *args, **settings):
        super().__init__(*args, **settings)
        WholePatches.replace(self)
        sampler = self.sampler
        self.sampler = FastUnfold(sampler.kernel_size, sampler.dilation, sampler.padding, sampler.stride)
        #: Rows and columns of tokens that become one.
        self.stride = self.sampler.stride

    def place(self, pixels: PixelGrid) -> PixelGrid:
        """Where the merged tokens lie in the image."""
        return after_padding(pixels, self.sampler, self.adaptive_padding)


class PostNormPatchMerging(FastPatchMerging):
    """Patch merging with the norm after the reduction, as in *Swin Transformer V2*; mmcv's has it before."""

    def __init__(self, in_channels: int, out_channels: int, *, norm_cfg: dict | None = dict(type='LN'), **settings):
        if not settings.pop('use_post_norm', True):
            raise ValueError('downsample_cfg: use_post_norm=False: Swin V2 normalises after the reduction')
        super().__init__(in_channels, out_channels, norm_cfg=None, **settings)
        self.norm = layer_norm(norm_cfg, out_channels)

    def forward(self, x_BND: Tensor, hw: tuple[int, int]) -> tuple[Tensor, tuple[int, int]]:
        """Tokens ``(B, h * w, D)`` and their grid, in and out."""
        x_BDhw = x_BND.transpose(1, 2).unflatten(2, hw)
        if self.adaptive_padding is not None:
            x_BDhw = self.adaptive_padding(x_BDhw)
        merged_BND = self.reduction(self.sampler(x_BDhw).transpose(1, 2))
        return self.norm(merged_BND), self.place(PixelGrid(tuple(hw))).hw


class FastUnfold(nn.Unfold):
    """``nn.Unfold``, faster on a channels-last map cut into square patches without gaps, overlap and padding."""

    def forward(self, x_BDhw: Tensor) -> Tensor:
        """A map ``(B, D, h, w)`` to patches ``(B, D * kh * kw, N)``."""
        side = self.kernel_size[0]
        settings = self.kernel_size, self.stride, self.dilation, self.padding
        is_plain = settings == ((side, side), (side, side), (1, 1), (0, 0))
        if not is_plain or any(length % side for length in x_BDhw.shape[2:]):
            return super().forward(x_BDhw)
        return F.pixel_unshuffle(x_BDhw, side).flatten(2)
