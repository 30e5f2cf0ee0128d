"""Expansion, DLA and reduction as one convolution."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ...attention.carry import Carry
from ...attention.cpu import by_rows, goes_by_parts
from ...attention.forms import fused, of_all, with_biases
from ...attention.grids import GridPair, TokenGrid
from ...attention.inputs import Attention, FastForm, scores_of
from ...attention.precision import softmax, without_autocast
from ...attention.site import Site
from ..learned import FoldsConstants
from .maps import Refine, channels_last, convolve, new_kernel, start_kernels

if TYPE_CHECKING:
    from .plug import Refiner

# Spread of the noise that sets equal copies of a head apart.
NOISE_STD = 0.02


class LinearRefine(Refine, FoldsConstants):
    """Expansion, DLA and reduction as one convolution.

    Parameters (none but these): ``expand`` ``(H', H, 1, 1)``, ``reduce`` ``(H, H', 1, 1)``, and DLA's ``local``
    ``(H', 1, k, k)`` or, for ``'rowcol'``, ``along_keys`` ``(H', 1, 1, k)`` and ``along_queries``
    ``(H', 1, k, 1)``. They are no ``nn.Conv2d``, because the ``init_cfg`` of a host reaches all of those.
    """

    def __init__(self, heads: int, settings: Refiner):
        super().__init__(settings)
        self.constraint = settings.constraint
        expansion, side = settings.expansion, settings.kernel_size
        maps = heads * max(expansion, 1)
        self.expand = new_kernel(maps, heads, 1, 1) if expansion else None
        if self.constraint == 'rowcol':
            self.along_keys = new_kernel(maps, 1, 1, side)
            self.along_queries = new_kernel(maps, 1, side, 1)
        else:
            self.local = new_kernel(maps, 1, side, side)
        self.reduce = new_kernel(heads, maps, 1, 1) if expansion and settings.reduction else None
        self.is_identity, self.heads, self.expansion = settings.init == 'identity', heads, expansion
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draws the kernels, or makes the identity of them."""
        start_kernels(self)
        if self.is_identity:
            self._start_as_identity()

    @torch.no_grad()
    def _start_as_identity(self) -> None:
        heads, expansion = self.heads, self.expansion
        if self.constraint == 'rowcol':
            for kernel in (self.along_keys, self.along_queries):
                nn.init.dirac_(kernel, groups=len(kernel)).div_(2)
        else:
            nn.init.dirac_(self.local, groups=len(self.local))
        if self.expand is None:
            return
        copied = torch.eye(heads).repeat_interleave(expansion, dim=0)
        if self.reduce is not None:
            self.reduce.copy_(copied.T[:, :, None, None] / expansion)
        # Equal copies would get equal gradients for ever.
        noise = NOISE_STD * torch.randn(heads, expansion, heads)
        copied = copied + (noise - noise.mean(dim=1, keepdim=True)).flatten(0, 1)
        self.expand.copy_(copied[:, :, None, None])

    def dla(self) -> Tensor:
        """The depthwise kernel ``(H', 1, k, k)``."""
        if self.constraint != 'rowcol':
            return self.local
        half = self.along_keys.shape[-1] // 2
        return F.pad(self.along_keys, (0, 0, half, half)) + F.pad(self.along_queries, (half, half, 0, 0))

    def joined(self, local: Tensor) -> Tensor:
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
        """Convolved values in place of maps, or maps by rows on a CPU; None where neither is possible or pays."""
        if inputs.mask is not None or self.hands_over or self.copies > 1:
            return None
        if self.constraint == 'spatial':
            return None if self.expansion else partial(self._on_value_grid, site.key_layout.grid)
        pays = inputs.windows == 1 and goes_by_parts(inputs.q, inputs.k, inputs.dropout_p)
        return self._by_rows if pays else None

    def _by_rows(self, inputs: Attention, carry: Carry) -> tuple[Tensor, Carry]:
        q, k, added = with_biases(inputs)
        kernel, added = self.constants()[0], None if added is None else of_all(added, inputs)
        form = partial(_of_rows, inputs.scale, kernel)
        return by_rows(form, q, k, inputs.v, added, halo=kernel.shape[-2] // 2), carry

    def _on_value_grid(self, grid: TokenGrid, inputs: Attention, carry: Carry) -> tuple[Tensor, Carry]:
        """Each query's row convolved over the key grid is attention with values convolved over it."""
        v, dims = inputs.v, inputs.v.shape[-1]
        prefix, image = v[..., : grid.num_prefix, :], v[..., grid.num_prefix :, :].transpose(-2, -1)
        kernel = self.constants()[0].flip(-2, -1).to(v.dtype).repeat_interleave(dims, dim=0)
        image = image.unflatten(-1, grid.hw).flatten(1, 2)
        image = F.conv2d(image, kernel, padding=kernel.shape[-1] // 2, groups=len(kernel))
        image = image.unflatten(1, (-1, dims)).flatten(-2).transpose(-2, -1)
        return fused(inputs._replace(v=torch.cat((prefix, image), dim=-2))), carry

    def make_constants(self) -> tuple[Tensor, Tensor | None]:
        """The one kernel, and that of expansion and reduction ``(maps, H or 1, 1, 1)``, for keys without a place."""
        mixing = self.joined(torch.ones_like(self.local[..., :1, :1])) if self.constraint == 'spatial' else None
        return self.joined(self.dla()), mixing

    def refine(self, maps_BHNN: Tensor, pairs: GridPair) -> Tensor:
        """Maps convolved with one kernel; those of prefix keys, where the plane is the image, mixed over heads only."""
        kernel, mixing = self.constants()
        maps_BHNN = maps_BHNN.to(kernel.dtype)
        if mixing is None:
            return convolve(channels_last(maps_BHNN), kernel).contiguous()
        grid = pairs.keys
        keys_BHNhw = maps_BHNN[..., grid.num_prefix :].unflatten(-1, grid.hw)
        refined = convolve(keys_BHNhw, kernel[:, :, None]).flatten(-2)
        if not grid.num_prefix:
            return refined
        return torch.cat((convolve(maps_BHNN[..., : grid.num_prefix], mixing), refined), dim=-1)


def _of_rows(
    scale: float, kernel: Tensor, q: Tensor, k: Tensor, v: Tensor, added: Tensor | None, around: tuple[int, int]
) -> Tensor:
    """Attention of some rows with maps convolved over those and their neighbours; beyond the plane there are zeros."""
    logits = scores_of(q, k, scale)
    probs = softmax(logits if added is None else logits + added).to(kernel.dtype)
    maps = convolve(channels_last(probs[None]), kernel)[0].contiguous()
    return (maps.to(v.dtype) @ v)[:, around[0] : maps.shape[1] - around[1]]
