"""Merging of neighbouring patches between stages."""

from mmcv.cnn.bricks.transformer import PatchMerging
from torch import Tensor, nn

from .pixels import PixelGrid


class FastPatchMerging(PatchMerging):
    """mmcv's patch merging, with fewer copies in its unfolding."""

    def __init__(self, *args, **settings):
        super().__init__(*args, **settings)
        own = self.sampler
        self.sampler = FastUnfold(own.kernel_size, own.dilation, own.padding, own.stride)
        #: Rows and columns of tokens that become one.
        self.stride = self.sampler.stride

    def place(self, pixels: PixelGrid) -> PixelGrid:
        """Where the merged tokens lie in the image."""
        return pixels.after(self.sampler, self.adaptive_padding)


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
