"""Value residual: *Value Residual Learning* (Zhou et al., 2024), with the constants of its first form."""

from collections.abc import Mapping, Sequence

from torch import Tensor, nn

from vitplug.attention import Carry, Site, carrying
from vitplug.plugs import LayerPlan, Plug


class ValueResidual(Plug):
    """Averages the values of every block with those of the first::

        v_n <- (v_1 + v_n) / 2

    On hierarchical hosts every stage has a first block. Where windows are padded, v_1 is 0.

    Args:
        layers: Blocks that get it, see :class:`~vitplug.plugs.Plug`. The first of them gives v_1.

    Raises:
        ValueError: If blocks of one stage have values of different widths, or of tokens on different grids.
    """

    name = 'value_residual'

    def __init__(self, layers: str | Sequence[int] = 'all'):
        super().__init__(layers)

    def build_layers(self, plans: Sequence[LayerPlan]) -> Sequence[Mapping[str, nn.Module]]:
        first: dict[int, LayerPlan] = {}
        for plan in plans:
            source = first.setdefault(plan.stage, plan)
            if _value_shape(plan) != _value_shape(source):
                raise ValueError(
                    f'ValueResidual: the values of block {plan.index} have {_value_shape(plan)} heads and channels, '
                    f'those of block {source.index} {_value_shape(source)}; choose other layers'
                )
            grids = [p.site.key_layout.hw for p in (plan, source)]
            if grids[0] != grids[1]:
                raise ValueError(
                    f'ValueResidual: the values of block {plan.index} lie on a grid of {grids[0]}, those of block '
                    f'{source.index} on one of {grids[1]}; choose other layers'
                )
        kinds = (FirstValues if first[plan.stage] is plan else MeanOfValues for plan in plans)
        return [{'qkv': kind(self.name)} for kind in kinds]


def _value_shape(plan: LayerPlan) -> tuple[int, int]:
    return plan.shape.value_heads, plan.shape.head_dims


class FirstValues(nn.Module):
    """Puts the values into the carry as tokens ``(B, N, H * d)``, which other windows can take."""

    def __init__(self, key: str):
        super().__init__()
        self.key = key

    def forward(
        self, q: Tensor, k: Tensor, v_BWHNd: Tensor, site: Site, carry: Carry
    ) -> tuple[Tensor, Tensor, Tensor, Carry]:
        first = site.key_layout.from_windows(v_BWHNd.transpose(2, 3).flatten(3))
        return q, k, v_BWHNd, carrying(carry, self.key, first)


class MeanOfValues(nn.Module):
    """Takes the mean with the values in the carry."""

    def __init__(self, key: str):
        super().__init__()
        self.key = key

    def forward(
        self, q: Tensor, k: Tensor, v_BWHNd: Tensor, site: Site, carry: Carry
    ) -> tuple[Tensor, Tensor, Tensor, Carry]:
        heads = v_BWHNd.shape[2]
        first = site.key_layout.to_windows(carry[self.key].to(v_BWHNd.dtype)).unflatten(-1, (heads, -1))
        return q, k, (first.transpose(2, 3) + v_BWHNd) / 2, carry
