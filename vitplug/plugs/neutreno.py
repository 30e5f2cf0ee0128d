"""NeuTRENO: *Mitigating Over-smoothing in Transformers via Regularized Nonlocal Functionals* (Nguyen et al., 2023)."""

from collections.abc import Mapping, Sequence

from torch import Tensor, nn

from ..attention.carry import Carry, QKVCarry, carrying
from ..attention.site import Site
from .checks import check_number
from .plug import LayerPlan, Plug
from .value_residual import HandedOnValues, as_tokens, check_own_values, first_of_stages


class NeuTRENO(Plug):
    """Adds what the values of a token have lost since the first block to the output of the heads::

        u_i = sum_j A_ij v_j + lambda (v_i(first) - v_i)

    On hierarchical hosts every stage has a first block. Attention stays fused.

    Args:
        strength: ``lambda``; 0.6 in the authors' code of DeiT. 0 reproduces the host.
        layers: Blocks that get it, see :class:`Plug`. The first of them gives v(first) and stays as it is.

    Raises:
        ValueError: If ``strength`` is no number, or a block's keys are not its queries, or its heads have other values.
    """

    name = 'neutreno'
    #: After plugs that change the values.
    rank = 1

    def __init__(self, strength: float = 0.6, layers: str | Sequence[int] = 'all'):
        super().__init__(layers)
        self.strength = check_number('strength', strength)
        self.identity_start = self.strength == 0

    def build_layers(self, plans: Sequence[LayerPlan]) -> Sequence[Mapping[str, nn.Module]]:
        for plan in plans:
            check_own_values(self, plan)
        return [
            {'qkv': HandedOnValues(self.name)}
            if source is plan
            else {'qkv': Lost(self.name), 'heads': Restored(self.name, self.strength)}
            for plan, source in zip(plans, first_of_stages(self, plans), strict=True)
        ]


class Lost(HandedOnValues):
    """Puts the difference of the first values and the block's own into the carry."""

    def forward(self, q: Tensor, k: Tensor, v_BWHNd: Tensor, site: Site, carry: Carry) -> QKVCarry:
        own = as_tokens(v_BWHNd, site)
        return q, k, v_BWHNd, carrying(carry, f'{self.key}.lost', carry[self.key].to(own.dtype) - own)


class Restored(nn.Module):
    """Adds it to the output of the heads."""

    needs_tokens = False

    def __init__(self, key: str, strength: float):
        super().__init__()
        self.key, self.strength = key, strength

    def forward(self, heads_BNHd: Tensor, tokens_BND: Tensor | None, site: Site, carry: Carry) -> Tensor:
        return heads_BNHd + self.strength * carry[f'{self.key}.lost'].view_as(heads_BNHd)
