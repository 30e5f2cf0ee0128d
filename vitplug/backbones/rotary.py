"""Rotary positions of the host itself: those of *DINOv3* (2025) and *EVA-02* (2023).

Queries and keys of patch tokens are turned in pairs of channels by angles of their place; prefix tokens are not. Unlike
the plug ``RotaryPosition``, the periods are part of the weights: released DINOv3 files hold them rounded to bfloat16.
"""

import math
from typing import NamedTuple

import torch
from torch import Tensor

from vitplug.attention import Layout
from vitplug.attention.precision import at_least_float32
from vitplug.compat import register_load_state_dict_pre_hook
from vitplug.plugs.checks import check_choice, check_integer, check_number
from vitplug.plugs.rotary_position import Places, rotate


class Turn(NamedTuple):
    """By which angles the pairs of channels of some tokens are turned: sines and cosines ``(1, N, d / 2)``."""

    sin: Tensor
    cos: Tensor
    #: Whether a pair is of channels next to each other; otherwise of one in each half.
    interleaved: bool

    def of(self, t_BWHNd: Tensor) -> Tensor:
        """q or k, turned."""
        return rotate(t_BWHNd, self.sin, self.cos, self.interleaved)

    @staticmethod
    def key(layout: Layout) -> str:
        """Where the carry holds it for blocks with windows, and for those without."""
        return 'rotary-windows' if layout.is_windowed else 'rotary'


#: Base of the periods, and whether a pair is of channels next to each other, of each mode.
MODES = {'dinov3': (100.0, False), 'eva02': (10_000.0, True)}


class RotaryTable(Places):
    """Angles of the tokens of a map, for d / 4 frequencies of each axis, those of y first::

        dinov3    2 pi y' / p_t     y' = 2 (row + 1/2) / rows - 1    p_t = 100^(4 t / d)     pairs: t and t + d / 2
        eva02     y'' / p_t         y'' = reference row / rows       p_t = 10000^(4 t / d)   pairs: 2 t and 2 t + 1

    Args:
        head_dims: Width of a head, ``d``.
        mode: ``'dinov3'`` or ``'eva02'``.
        rescale: In training, both axes are scaled by up to this factor, or its inverse; 1 for none.
        reference: Rows and columns of tokens in EVA-02's pre-training.

    Raises:
        ValueError: If an argument is out of range, or the width of a head is no multiple of 4.
    """

    def __init__(self, head_dims: int, mode: str, rescale: float = 1.0, reference: int = 16):
        super().__init__()
        if head_dims % 4:
            raise ValueError(f'rotary: heads are {head_dims} wide: expected a multiple of 4')
        self.mode = check_choice('rotary: mode', mode, tuple(MODES))
        self.rescale = check_number('rotary: rescale', rescale, least=1.0)
        self.reference = check_integer('rotary: reference', reference, least=1)
        self.register_buffer('periods', torch.empty(head_dims // 4, dtype=torch.float32))
        register_load_state_dict_pre_hook(self, _keep_periods)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Computes the periods."""
        count = len(self.periods)
        self.periods = MODES[self.mode][0] ** (torch.arange(count, device=self.periods.device) / count)

    def _apply(self, fn, *args, **kwargs):
        """Moves the periods, and leaves their precision: half of it would turn far tokens by other angles."""
        before = self.periods
        super()._apply(fn, *args, **kwargs)
        if self.periods.dtype != before.dtype:
            self.periods = before.to(self.periods.device)
        return self

    def coordinates(self, place: Tensor, side: int) -> Tensor:
        """Of tokens along one axis, with all factors but the period, from their row or column and the map's side."""
        if self.mode == 'dinov3':
            return 2 * math.pi * (2 * (place + 0.5) / side - 1)
        return place / side * self.reference

    def forward(self, layout: Layout, dtype: torch.dtype) -> Turn:
        """The angles of the tokens of one window, or of a whole map and its prefix tokens.

        ``dtype`` is that of q and k; half precision gets angles in float32.
        """
        dtype = at_least_float32(dtype)
        places_N21 = torch.stack(self.places(layout, dtype, self.periods.device), dim=1).unsqueeze(-1)
        angles = (places_N21 / self.periods.to(dtype)).flatten(1)[None]
        return Turn(angles.sin(), angles.cos(), interleaved=MODES[self.mode][1])


def _keep_periods(table: RotaryTable, state_dict, prefix, *_) -> None:
    """A file without periods, as most are, leaves those of the constructor."""
    state_dict.setdefault(f'{prefix}periods', table.periods)
