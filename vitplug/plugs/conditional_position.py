"""Conditional positions: *Conditional Positional Encodings for Vision Transformers* (Chu et al., ICLR 2023)."""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn

from ..attention.carry import Carry
from ..attention.site import Site
from .checks import check_choice, check_integer
from .plug import LayerPlan, Plug


class ConditionalPosition(Plug):
    """Adds a depthwise convolution of the token map to the tokens (PEG), once in each stage::

        x <- x + W * x          after the first block of ``layers`` in the stage

    Prefix tokens stay as they are, and padding of a batch whose sizes are known counts as 0.

    Args:
        kernel_size: Side of W, odd.
        start: ``'identity'`` starts with W = 0, which changes nothing; ``'paper'`` as torch's convolution does.
        layers: Blocks of which the first in each stage gets it, see :class:`Plug`.

    Raises:
        ValueError: If an argument is none of these.
    """

    name = 'conditional_position'
    short_name = 'peg'

    def __init__(self, kernel_size: int = 3, start: str = 'identity', layers: str | Sequence[int] = 'all'):
        super().__init__(layers)
        self.kernel_size = check_integer('kernel_size', kernel_size, least=1)
        self.start = check_choice('start', start, ('identity', 'paper'))
        self.identity_start = start == 'identity'
        if kernel_size % 2 == 0:
            raise ValueError(f'kernel_size={kernel_size}: expected an odd integer')

    def build_layers(self, plans: Sequence[LayerPlan]) -> Sequence[Mapping[str, nn.Module]]:
        first: dict[int, LayerPlan] = {}
        return [
            {'block_out': PositionMap(plan.width_at('block_out'), self.kernel_size, self.start == 'identity')}
            if first.setdefault(plan.stage, plan) is plan
            else {}
            for plan in plans
        ]


class PositionMap(nn.Conv2d):
    """The convolution, of ``D`` channels; its kernel starts with zeros where that is to change nothing."""

    def __init__(self, dims: int, kernel_size: int, is_identity: bool):
        self.is_identity = is_identity
        super().__init__(dims, dims, kernel_size, padding=kernel_size // 2, groups=dims)

    def reset_parameters(self) -> None:
        """Draws the kernel, or sets it to 0."""
        super().reset_parameters()
        if self.is_identity:
            for parameter in self.parameters():
                nn.init.zeros_(parameter)

    def forward(  # type: ignore[override]  # a socket's arguments
        self, x_BND: Tensor, site: Site, carry: Carry
    ) -> tuple[Tensor, Carry]:
        prefix = site.layout.num_prefix or x_BND.shape[1] - site.layout.hw[0] * site.layout.hw[1]
        own_BND = x_BND if site.valid is None else x_BND.masked_fill(~site.valid[:, :, None], 0)
        map_BDhw = own_BND[:, prefix:].transpose(1, 2).unflatten(2, site.layout.hw)
        added_BND = super().forward(map_BDhw).flatten(2).transpose(1, 2)
        return torch.cat((x_BND[:, :prefix], x_BND[:, prefix:] + added_BND), dim=1), carry
