"""Merging of neighbouring patches between stages."""

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
    """``nn.Unfold``, faster on a channels-last map that is cut into patches without gaps, overlap and padding."""

    def forward(self, x_BDhw: Tensor) -> Tensor:
        """A map ``(B, D, h, w)`` to patches ``(B, D * kh * kw, N)``."""
        plain = (self.stride, self.dilation, self.padding) == (self.kernel_size, (1, 1), (0, 0))
        sides = list(zip(x_BDhw.shape[2:], self.kernel_size, strict=True))
        if not plain or any(side % kernel for side, kernel in sides):
            return super().forward(x_BDhw)
        (rows, kh), (cols, kw) = ((side // kernel, kernel) for side, kernel in sides)
        x_BhywxD = x_BDhw.permute(0, 2, 3, 1).unflatten(2, (cols, kw)).unflatten(1, (rows, kh))
        # First patches into one piece, then their channels to the front: rows of D entries, then matrices of kh * kw
        # by D, are copied at a time, not single entries.
        patches_BNkD = x_BhywxD.transpose(2, 3).flatten(3, 4).flatten(1, 2)
        return patches_BNkD.transpose(2, 3).flatten(2).transpose(1, 2)
