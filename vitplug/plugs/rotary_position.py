"""Rotary positions: *Rotary Position Embedding for Vision Transformer* (Heo et al., ECCV 2024), and those of *DINOv3*
(2025)."""

import math
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn

from ..attention.carry import Carry
from ..attention.precision import at_least_float32
from ..attention.site import Site
from .checks import check_choice, check_number
from .plug import LayerPlan, Plug

# The authors' base of the frequencies.
TEMPERATURES = {'axial': 100.0, 'mixed': 10.0, 'dinov3': 100.0}


class RotaryPosition(Plug):
    """Rotates pairs of channels of q and k by angles of the token's place::

        axial     theta_t x for the first half of the pairs, theta_t y for the second     theta_t = T^(-4 t / d)
        mixed     f_t x + g_t y                                                           f, g learned, by head
        dinov3    2 pi y' / p_t, then 2 pi x' / p_t                                       p_t = T^(4 t / d)

    x and y count tokens; x' and y' run from -1 to 1 over the map, at the tokens' middles. Scores depend on offsets
    alone, for any size of image, in windows too. Prefix tokens are not rotated, and attention stays fused.

    Args:
        mode: One of the three.
        temperature: ``T``; None for the authors', 100, 10 and 100.
        rescale: In training, both sides of the map are scaled by up to this factor, or its inverse; 1 for none.
        jitter: The same of each side by itself.
        shift: In training, each side is moved by up to this much, in units of its coordinates.
        layers: Blocks that get it, see :class:`Plug`.

    Raises:
        ValueError: If an argument is none of these, the width of a head is no multiple of 4, or a block's keys are not
            its queries.
    """

    name = 'rotary_position'
    short_name = 'rope'
    watched = {'frequencies': 'f'}

    def __init__(
        self,
        mode: str = 'axial',
        temperature: float | None = None,
        rescale: float = 1.0,
        jitter: float = 1.0,
        shift: float = 0.0,
        layers: str | Sequence[int] = 'all',
    ):
        super().__init__(layers)
        self.mode = check_choice('mode', mode, tuple(TEMPERATURES))
        self.temperature = temperature if temperature is None else check_number('temperature', temperature, least=1.0)
        self.rescale = check_number('rescale', rescale, least=1.0)
        self.jitter = check_number('jitter', jitter, least=1.0)
        self.shift = check_number('shift', shift, least=0.0)

    def build_layer(self, plan: LayerPlan) -> Mapping[str, nn.Module]:
        if plan.site.keys is not None:
            raise ValueError(
                f'RotaryPosition: the keys of block {plan.index} lie on another grid than its queries; choose other '
                'layers'
            )
        if plan.shape.head_dims % 4:
            raise ValueError(
                f'RotaryPosition: heads of block {plan.index} are {plan.shape.head_dims} wide: expected a multiple of '
                '4, two channels for each axis'
            )
        return {'qkv': MODES[self.mode](plan, self)}


class Rotation(nn.Module):
    """Rotates q and k; the modes differ in :meth:`coordinates`, :meth:`angles` and in which channels are pairs."""

    #: Whether a pair is of channels next to each other; otherwise of one in each half.
    interleaved = True

    def __init__(self, plan: LayerPlan, settings: RotaryPosition):
        super().__init__()
        self.dims, self.heads = plan.shape.head_dims, plan.num_heads
        self.temperature = settings.temperature or TEMPERATURES[settings.mode]
        self.rescale, self.jitter, self.shift = settings.rescale, settings.jitter, settings.shift

    def coordinates(self, place: Tensor, side: int) -> Tensor:
        """Of tokens along one axis, from their row or column and the side of the map."""
        return place

    def angles(self, y_N: Tensor, x_N: Tensor) -> Tensor:
        """``(H or 1, N, d / 2)``."""
        raise NotImplementedError

    def forward(
        self, q: Tensor, k: Tensor, v: Tensor, site: Site, carry: Carry
    ) -> tuple[Tensor, Tensor, Tensor, Carry]:
        angles = self.angles(*self._places(site, at_least_float32(q.dtype), q.device))
        prefix = angles.new_zeros(angles.shape[0], site.layout.grid.num_prefix, angles.shape[2])
        angles = torch.cat((prefix, angles), dim=1)
        sin, cos = angles.sin(), angles.cos()
        return *(rotate(t, sin, cos, self.interleaved) for t in (q, k)), v, carry

    def _places(self, site: Site, dtype: torch.dtype, device: torch.device) -> tuple[Tensor, Tensor]:
        grid, hw = site.layout.grid, site.layout.hw
        axes = [
            self.coordinates(torch.arange(side, device=device, dtype=dtype), of_map)
            for side, of_map in zip(grid.hw, hw, strict=True)
        ]
        if self.training:
            axes = move(axes, self.rescale, self.jitter, self.shift)
        y_hw, x_hw = torch.meshgrid(*axes, indexing='ij')
        return y_hw.flatten(), x_hw.flatten()

    def _exponents(self, like: Tensor) -> Tensor:
        """``4 t / d`` for each of the d / 4 frequencies."""
        return torch.arange(0, self.dims, 4, device=like.device, dtype=like.dtype) / self.dims


def move(axes: Sequence[Tensor], rescale: float, jitter: float, shift: float) -> list[Tensor]:
    """Coordinates along the axes, shifted and scaled at random, see :class:`RotaryPosition`."""
    scale = rescale ** torch.empty(1, device=axes[0].device).uniform_(-1, 1) if rescale > 1 else 1.0
    moved = []
    for axis in axes:
        if shift:
            axis = axis + torch.empty(1, device=axis.device).uniform_(-shift, shift)
        if jitter > 1:
            axis = axis * jitter ** torch.empty(1, device=axis.device).uniform_(-1, 1)
        moved.append(axis * scale)
    return moved


def rotate(t_BWHNd: Tensor, sin_HNp: Tensor, cos_HNp: Tensor, interleaved: bool) -> Tensor:
    """Pairs of channels turned by angles.

    Args:
        t_BWHNd: q or k.
        sin_HNp: Sines of the angles, ``(H or 1, N, d / 2)``.
        cos_HNp: Their cosines.
        interleaved: Whether a pair is of channels next to each other; otherwise of one in each half.
    """
    wide = t_BWHNd.to(sin_HNp.dtype)
    first, second = wide.unflatten(-1, (-1, 2)).unbind(-1) if interleaved else wide.chunk(2, dim=-1)
    turned = first * cos_HNp - second * sin_HNp, second * cos_HNp + first * sin_HNp
    both = torch.stack(turned, -1).flatten(-2) if interleaved else torch.cat(turned, -1)
    return both.to(t_BWHNd.dtype)


class AxialRotation(Rotation):
    """By one axis for each half of the pairs."""

    def angles(self, y_N: Tensor, x_N: Tensor) -> Tensor:
        frequencies = self.temperature ** -self._exponents(x_N)
        return torch.cat((x_N[:, None] * frequencies, y_N[:, None] * frequencies), dim=1)[None]


class MixedRotation(Rotation):
    """By both axes; ``frequencies`` ``(2, H, d / 2)``, of x and of y."""

    def __init__(self, plan: LayerPlan, settings: RotaryPosition):
        super().__init__(plan, settings)
        self.frequencies = nn.Parameter(torch.empty(2, self.heads, self.dims // 2))
        self.reset_parameters()

    @torch.no_grad()
    def reset_parameters(self) -> None:
        """Axial frequencies, turned by a random angle for each head."""
        sizes = self.temperature ** -self._exponents(self.frequencies)
        angle = torch.empty_like(self.frequencies[0, :, :1]).uniform_(0, 2 * math.pi)
        both = torch.cat((angle.expand(-1, len(sizes)), angle.expand(-1, len(sizes)) + math.pi / 2), dim=1)
        self.frequencies.copy_(sizes.repeat(2) * torch.stack((both.cos(), both.sin())))

    def angles(self, y_N: Tensor, x_N: Tensor) -> Tensor:
        of_x, of_y = self.frequencies.to(x_N.dtype).unsqueeze(-2)
        return x_N[:, None] * of_x + y_N[:, None] * of_y


class CentredRotation(Rotation):
    """By places from -1 to 1; a pair has a channel in each half."""

    interleaved = False

    def coordinates(self, place: Tensor, side: int) -> Tensor:
        return 2 * (place + 0.5) / side - 1

    def angles(self, y_N: Tensor, x_N: Tensor) -> Tensor:
        frequencies = 2 * math.pi * self.temperature ** -self._exponents(x_N)
        return torch.cat((y_N[:, None] * frequencies, x_N[:, None] * frequencies), dim=1)[None]


MODES = {'axial': AxialRotation, 'mixed': MixedRotation, 'dinov3': CentredRotation}
