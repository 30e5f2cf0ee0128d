"""Expansion, DLA and reduction as one convolution."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from vitplug.compat import replace

from ...attention import tuning
from ...attention.carry import Carry
from ...attention.fused import fused
from ...attention.grids import GridPair, TokenGrid
from ...attention.inputs import Attention
from ...attention.precision import without_autocast
from ...attention.site import Site
from ..sockets import FastForm
from .convolution import channels_last, convolve, delta, new_kernel, start_kernels
from .maps import Refine
from .tiles import attend_to_convolved

if TYPE_CHECKING:
    from .plug import Refiner

# Spread of the noise that sets equal copies of a head apart.
NOISE_STD = 0.02


class LinearRefine(Refine):
    """Expansion, DLA and reduction as one convolution.

    Parameters (none but these): ``expand`` ``(H', H, 1, 1)``, ``reduce`` ``(H, H', 1, 1)``, and DLA's ``local``
    ``(H', 1, k, k)`` or, for ``'rowcol'``, ``along_keys`` ``(H', 1, 1, k)`` and ``along_queries``
    ``(H', 1, k, 1)``. They are no ``nn.Conv2d``, because the ``init_cfg`` of a host reaches all of those.
    """

    def __init__(self, heads: int, settings: Refiner):
        super().__init__(settings)
        self.constraint = settings.constraint
        self.sequential = settings.rowcol_mode == 'sequential'
        expansion, side = settings.expansion, settings.kernel_size
        maps = heads * max(expansion, 1)
        self.expand = new_kernel(maps, heads, 1, 1) if expansion else None
        if self.constraint == 'rowcol':
            self.along_keys = new_kernel(maps, 1, 1, side)
            self.along_queries = new_kernel(maps, 1, side, 1)
        else:
            self.local = new_kernel(maps, 1, side, side)
        self.reduce = new_kernel(heads, maps, 1, 1) if expansion and settings.reduction else None
        self.is_identity, self.sizes = settings.init == 'identity', (heads, expansion)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draws the kernels, or makes the identity of them."""
        start_kernels(self)
        if self.is_identity:
            self._start_as_identity(*self.sizes)

    @torch.no_grad()
    def _start_as_identity(self, heads: int, expansion: int) -> None:
        if self.constraint == 'rowcol':
            share = 1.0 if self.sequential else 0.5
            for kernel in (self.along_keys, self.along_queries):
                kernel.copy_(share * delta(kernel))
        else:
            self.local.copy_(delta(self.local))
        if self.expand is None:
            return
        copied = torch.eye(heads).repeat_interleave(expansion, dim=0)
        if self.reduce is not None:
            self.reduce.copy_(copied.T[:, :, None, None] / expansion)
        if not self.split:
            # Equal copies would get equal gradients for ever. Slices of a head differ in their gradients anyway.
            noise = NOISE_STD * torch.randn(heads, expansion, heads)
            copied = copied + (noise - noise.mean(dim=1, keepdim=True)).flatten(0, 1)
        self.expand.copy_(copied[:, :, None, None])

    def dla(self) -> Tensor:
        """The depthwise kernel ``(H', 1, k, k)``."""
        if self.constraint != 'rowcol':
            return self.local
        if self.sequential:
            return self.along_queries * self.along_keys
        half = self.along_keys.shape[-1] // 2
        return F.pad(self.along_keys, (0, 0, half, half)) + F.pad(self.along_queries, (half, half, 0, 0))

    def fold(self, local: Tensor) -> Tensor:
        """Expansion, a depthwise kernel ``(H', 1, k, k)`` and reduction as one kernel, ``(maps, H or 1, k, k)``."""
        if self.expand is None:
            return local
        kernel = local * self.expand
        if self.reduce is None:
            return kernel
        # Not rounded to half precision, which would lose the identity; the maps are, once.
        with without_autocast(kernel.device):
            return (self.reduce.flatten(1) @ kernel.flatten(1)).unflatten(1, kernel.shape[1:])

    def fast_form(self, inputs: Attention, site: Site) -> FastForm | None:
        """Convolved values in place of maps, or convolved maps by tiles; None where neither is possible or pays."""
        if inputs.mask is not None or self.copies > 1 or self.hands_over:
            return None
        if self.expand is None and self.constraint == 'spatial':
            return partial(self._on_value_grid, site.key_layout.grid)
        if self.constraint == 'spatial':
            return None
        if self.expand is None and inputs.goes_by_tiles(tuning.TILES_FROM):
            return self._on_values
        pays = inputs.goes_by_tiles(tuning.TILES_FROM) or _pays_by_images(inputs)
        return self._by_tiles if inputs.q.shape[1] == 1 and pays else None

    def _by_tiles(self, inputs: Attention, carry: Carry) -> tuple[Tensor, Carry]:
        return attend_to_convolved(inputs.folded(), self.fold(self.dla())), carry

    def _on_values(self, inputs: Attention, carry: Carry) -> tuple[Tensor, Carry]:
        """Along the keys the kernel's rows convolve the values, along the queries the outputs are shifted::

        out[i] = sum_a (A v_a)[i + a - k//2]        v_a[j] = sum_b K[a, b] v[j - b + k//2]
        """
        kernel_Hab = self.dla()[:, 0].to(inputs.v.dtype)
        side = kernel_Hab.shape[-1]
        half = side // 2
        shifted = F.pad(inputs.v, (0, 0, half, half)).unfold(-2, side, 1)
        spread = torch.einsum('hab,xwhndb->xwhnad', kernel_Hab.flip(-1), shifted).flatten(-2)
        outs = F.pad(fused(replace(inputs, v=spread)), (0, 0, half, half)).unflatten(-1, (side, -1))
        tokens = inputs.q.shape[-2]
        return sum(outs[..., a : a + tokens, a, :] for a in range(side)), carry

    def _on_value_grid(self, grid: TokenGrid, inputs: Attention, carry: Carry) -> tuple[Tensor, Carry]:
        """Each query's row convolved over the key grid is attention with values convolved over it."""
        v = inputs.v
        dims = v.shape[-1]
        prefix, image = v[..., : grid.num_prefix, :], v[..., grid.num_prefix :, :].transpose(-2, -1)
        image = image.flatten(0, 1).unflatten(-1, grid.hw).flatten(1, 2)
        kernel = self.local.flip(-2, -1).to(v.dtype).repeat_interleave(dims, dim=0)
        image = F.conv2d(image, kernel, padding=kernel.shape[-1] // 2, groups=len(kernel))
        image = image.unflatten(1, (-1, dims)).flatten(-2).unflatten(0, v.shape[:2]).transpose(-2, -1)
        return fused(replace(inputs, v=torch.cat((prefix, image), dim=-2))), carry

    def refine(self, maps_BHNN: Tensor, pairs: GridPair) -> Tensor:
        return self.convolve(maps_BHNN, pairs, self.fold(self.dla()), self._mixing())

    def _mixing(self) -> Tensor | None:
        """Expansion and reduction as one kernel ``(maps, H or 1, 1, 1)``, for keys without a place in the image."""
        return self.fold(torch.ones_like(self.local[..., :1, :1])) if self.constraint == 'spatial' else None

    def convolve(self, maps_BHNN: Tensor, pairs: GridPair, kernel: Tensor, mixing: Tensor | None) -> Tensor:
        """Maps convolved with one kernel; those of prefix keys, where the plane is the image, mixed over heads only."""
        maps_BHNN = maps_BHNN.to(kernel.dtype)
        if mixing is None:
            return convolve(channels_last(maps_BHNN), kernel).contiguous()
        grid = pairs.keys
        keys_BHNhw = maps_BHNN[..., grid.num_prefix :].unflatten(-1, grid.hw)
        refined = convolve(keys_BHNhw, kernel[:, :, None]).flatten(-2)
        if not grid.num_prefix:
            return refined
        return torch.cat((convolve(maps_BHNN[..., : grid.num_prefix], mixing), refined), dim=-1)

    def folded(self) -> LinearRefine:
        """The same with one kernel; itself where its parameters are one kernel."""
        return self if self.expand is None and self.constraint != 'rowcol' else OneKernel(self)


class OneKernel(LinearRefine):
    """Expansion, DLA and reduction that are not trained any more, as one kernel; maps are always formed.

    Args:
        refine: The trained ones.
    """

    kernel: Tensor
    mixing: Tensor | None

    def __init__(self, refine: LinearRefine):
        nn.Module.__init__(self)
        self.key, self.copies, self.split = refine.key, refine.copies, refine.split
        self.hands_over, self.constraint = refine.hands_over, refine.constraint
        with torch.no_grad():
            self.register_buffer('kernel', refine.fold(refine.dla()))
            self.register_buffer('mixing', refine._mixing())

    def fast_form(self, inputs: Attention, site: Site) -> None:
        """None."""

    def refine(self, maps_BHNN: Tensor, pairs: GridPair) -> Tensor:
        return self.convolve(maps_BHNN, pairs, self.kernel, self.mixing)

    def folded(self) -> OneKernel:
        return self


def _pays_by_images(inputs: Attention) -> bool:
    """Whether a CPU had better go image by image: with nothing to keep for backward, maps that fill its cache alone."""
    if torch.compiler.is_compiling():  # before sizes are compared, which would fix them in an exported graph
        return False
    images, _, heads, tokens, _ = inputs.q.shape
    in_cache = heads * tokens * inputs.num_keys < tuning.MAPS_BY_IMAGE_FROM
    by_image = tuning.on_cpu(inputs.q.device) and not torch.is_grad_enabled() and images > 1 and not in_cache
    return by_image and inputs.goes_by_tiles(0)
