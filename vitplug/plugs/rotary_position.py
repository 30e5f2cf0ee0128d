"""Rotary positions: *Rotary Position Embedding for Vision Transformer* (Heo et al., ECCV 2024), and those of *DINOv3*
(2025)."""

import math
from collections.abc import Mapping, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..attention import Layout
from ..attention.carry import Carry, QKVCarry, carrying
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

    Raises:
        ValueError: If an argument is none of these, the width of a head is no multiple of 4, or a block's keys are not
            its queries.
    """

    name = 'rotary_position'
    short_name = 'rope'
    watched = {'frequencies': 'f'}
    undecayed = ('frequencies',)

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


class Places(nn.Module):
    """Rows and columns of tokens, which :func:`move` moves in training."""

    rescale, jitter, shift = 1.0, 1.0, 0.0

    def coordinates(self, place: Tensor, side: int) -> Tensor:
        """Of tokens along one axis, from their row or column and the side of the map."""
        return place

    def places(self, layout: Layout, dtype: torch.dtype, device: torch.device) -> tuple[Tensor, Tensor]:
        """Row and column of every token ``(N,)``; prefix tokens are at 0, where nothing turns."""
        axes = [
            self.coordinates(torch.arange(side, device=device, dtype=dtype), of_map)
            for side, of_map in zip(layout.grid.hw, layout.hw, strict=True)
        ]
        if self.training:
            axes = move(axes, self.rescale, self.jitter, self.shift)
        y_hw, x_hw = torch.meshgrid(*axes, indexing='ij')
        before = (layout.grid.num_prefix, 0)
        return F.pad(y_hw.flatten(), before), F.pad(x_hw.flatten(), before)


class Rotation(Places):
    """Rotates q and k; the modes differ in :meth:`coordinates`, :meth:`angles` and in which channels are pairs.

    The first block of a stage makes what others can use and puts it into the carry (:meth:`shared`).
    """

    #: Whether a pair is of channels next to each other; otherwise of one in each half.
    interleaved = True

    def __init__(self, plan: LayerPlan, settings: RotaryPosition):
        super().__init__()
        self.key = f'{settings.name}.{plan.stage}'
        self.dims, self.heads = plan.shape.head_dims, plan.num_heads
        self.temperature = settings.temperature or TEMPERATURES[settings.mode]
        self.rescale, self.jitter, self.shift = settings.rescale, settings.jitter, settings.shift

    def angles(self, y_N: Tensor, x_N: Tensor) -> Tensor:
        """``(H or 1, N, d / 2)``."""
        raise NotImplementedError

    def shared(self, y_N: Tensor, x_N: Tensor) -> tuple[Tensor, Tensor]:
        """What the blocks of a stage share: cosines and sines ``(1, N, d / 2)``, or the places."""
        angles = self.angles(y_N, x_N)
        return angles.cos(), angles.sin()

    def turns(self, shared: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        """Cosines and sines ``(H or 1, N, d / 2)``."""
        return shared

    def forward(self, q: Tensor, k: Tensor, v: Tensor, site: Site, carry: Carry) -> QKVCarry:
        dtype = at_least_float32(q.dtype)
        # Blocks with windows and blocks without lie on different grids.
        key = f'{self.key}.{"windows" if site.layout.is_windowed else "map"}'
        # A frozen block before this one has places that do not move.
        made_for = (site.layout.grid.hw, site.layout.num_prefix, site.layout.hw, dtype, q.device, self.training)
        before, shared = carry.get(key, (None, None))
        if before != made_for:
            shared = self.shared(*self.places(site.layout, dtype, q.device))
            carry = carrying(carry, key, (made_for, shared))
        cos, sin = self.turns(shared)
        return rotate(q, sin, cos, self.interleaved), rotate(k, sin, cos, self.interleaved), v, carry

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
    """Pairs of channels of q or k turned by angles ``(H or 1, N, d / 2)``: neighbours, or one in each half."""
    turn = _turned_neighbours if interleaved else _turned_halves
    return turn(t_BWHNd.to(cos_HNp.dtype), cos_HNp, sin_HNp).to(t_BWHNd.dtype)


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

    def shared(self, y_N: Tensor, x_N: Tensor) -> tuple[Tensor, Tensor]:
        return y_N, x_N

    def turns(self, shared: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        return super().shared(*shared)


class CentredRotation(Rotation):
    """By places from -1 to 1; a pair has a channel in each half."""

    interleaved = False

    def coordinates(self, place: Tensor, side: int) -> Tensor:
        return 2 * (place + 0.5) / side - 1

    def angles(self, y_N: Tensor, x_N: Tensor) -> Tensor:
        frequencies = 2 * math.pi * self.temperature ** -self._exponents(x_N)
        return torch.cat((y_N[:, None] * frequencies, x_N[:, None] * frequencies), dim=1)[None]


def _turned_neighbours(t: Tensor, cos_HNp: Tensor, sin_HNp: Tensor) -> Tensor:
    """Channels 2 i and 2 i + 1 turned. As complex numbers in one pass, which no compiler or exporter takes."""
    pairs = t.unflatten(-1, (-1, 2))
    if not torch.compiler.is_compiling():
        return torch.view_as_real(torch.view_as_complex(pairs) * torch.complex(cos_HNp, sin_HNp)).flatten(-2)
    first, second = pairs.unbind(-1)
    return torch.stack((first * cos_HNp - second * sin_HNp, second * cos_HNp + first * sin_HNp), -1).flatten(-2)


def _turned_halves(t: Tensor, cos_HNp: Tensor, sin_HNp: Tensor) -> Tensor:
    """Channels i and d / 2 + i turned."""
    cos, sin = torch.cat((cos_HNp, cos_HNp), dim=-1), torch.cat((-sin_HNp, sin_HNp), dim=-1)
    return torch.addcmul(t * cos, t.roll(t.shape[-1] // 2, dims=-1), sin)


MODES = {'axial': AxialRotation, 'mixed': MixedRotation, 'dinov3': CentredRotation}
