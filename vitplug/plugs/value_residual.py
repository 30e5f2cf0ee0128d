"""Value residual: *Value Residual Learning* (Zhou et al., 2024), constant or learned."""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn

from ..attention.carry import Carry, QKVCarry, carrying
from ..attention.site import Site
from .checks import check_choice, check_flag
from .plug import LayerPlan, Plug


class ValueResidual(Plug):
    """Mixes the values of every block with those of the first::

        v_n <- l1 v_1 + l2 v_n          l1 = l2 = 1/2, or learned

    On hierarchical hosts every stage has a first block. Where windows are padded, v_1 is 0.

    Args:
        learnable: Whether every block learns its l1 and l2.
        start: ``'paper'`` starts with 1/2 each, ``'identity'`` with l1 = 0 and l2 = 1, which changes nothing.
        layers: Blocks that get it, see :class:`Plug`. The first of them gives v_1.

    Raises:
        ValueError: If an argument is none of these, each stage has one block, or blocks of one stage have values of
            different widths, or of tokens on different grids.
    """

    name = 'value_residual'
    watched = {'value_lambda': 'lambda'}

    def __init__(self, learnable: bool = False, start: str = 'paper', layers: str | Sequence[int] = 'all'):
        super().__init__(layers)
        self.learnable = check_flag('learnable', learnable)
        self.start = check_choice('start', start, ('paper', 'identity'))
        self.identity_start = start == 'identity'
        if start == 'identity' and not learnable:
            raise ValueError("start='identity' changes nothing without learnable=True; set it, or start='paper'")

    def build_layers(self, plans: Sequence[LayerPlan]) -> Sequence[Mapping[str, nn.Module]]:
        sources = first_of_stages(self, plans)
        shares = (0.5, 0.5) if self.start == 'paper' else (0.0, 1.0)
        return [
            {'qkv': HandedOnValues(self.name) if source is plan else MixedValues(self.name, shares, self.learnable)}
            for plan, source in zip(plans, sources, strict=True)
        ]


def first_of_stages(plug: Plug, plans: Sequence[LayerPlan]) -> list[LayerPlan]:
    """The first block of each block's stage, whose values must be as wide and on the same grid."""
    first: dict[int, LayerPlan] = {}
    sources = [first.setdefault(plan.stage, plan) for plan in plans]
    if plans and len(first) == len(plans):
        raise ValueError(f'{type(plug).__name__} changes nothing with one block per stage; choose more layers')
    for plan, source in zip(plans, sources, strict=True):
        own, first_of = ((p.shape.value_heads, p.shape.head_dims, p.site.key_layout.hw) for p in (plan, source))
        if own != first_of:
            raise ValueError(
                f'{type(plug).__name__}: the values of block {plan.index} have heads, channels and a grid of {own}, '
                f'those of block {source.index} {first_of}; choose other layers'
            )
    return sources


def check_own_values(plug: Plug, plan: LayerPlan) -> None:
    """Checks that each output of the heads has a value of its token."""
    if plan.site.keys is not None or plan.shape.out_heads != plan.shape.value_heads:
        raise ValueError(
            f'{type(plug).__name__}: block {plan.index} has no value of its own for each output: its keys are pooled, '
            'or a plug has changed its heads; choose other layers'
        )


def as_tokens(v_BWHNd: Tensor, site: Site) -> Tensor:
    """Values in windows as tokens ``(B, N, H * d)``, which other windows can take."""
    return site.key_layout.from_windows(v_BWHNd.transpose(2, 3).flatten(3))


class HandedOnValues(nn.Module):
    """Puts the values into the carry as tokens."""

    def __init__(self, key: str):
        super().__init__()
        self.key = key

    def forward(self, q: Tensor, k: Tensor, v_BWHNd: Tensor, site: Site, carry: Carry) -> QKVCarry:
        return q, k, v_BWHNd, carrying(carry, self.key, as_tokens(v_BWHNd, site))


class MixedValues(nn.Module):
    """Adds a share of the values in the carry to one of its own; ``value_lambda`` ``(2,)`` where they are learned."""

    def __init__(self, key: str, shares: tuple[float, float], learnable: bool):
        super().__init__()
        self.key, self.shares, self.learnable = key, shares, learnable
        if learnable:
            self.value_lambda = nn.Parameter(torch.empty(2))
            self.reset_parameters()

    def reset_parameters(self) -> None:
        """Gives learned shares their start."""
        if self.learnable:
            self.value_lambda.data.copy_(torch.tensor(self.shares))

    def forward(self, q: Tensor, k: Tensor, v_BWHNd: Tensor, site: Site, carry: Carry) -> QKVCarry:
        heads = v_BWHNd.shape[2]
        first = site.key_layout.to_windows(carry[self.key].to(v_BWHNd.dtype)).unflatten(-1, (heads, -1))
        first_BWHNd = first.transpose(2, 3)
        if not self.learnable:  # shares of 1 in all: one pass
            return q, k, torch.lerp(v_BWHNd, first_BWHNd, self.shares[0]), carry
        of_first, of_own = self.value_lambda.to(v_BWHNd.dtype)
        return q, k, torch.addcmul(of_first * first_BWHNd, v_BWHNd, of_own), carry
