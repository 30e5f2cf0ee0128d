"""QK-norm: *Scaling Vision Transformers to 22 Billion Parameters* (Dehghani et al., ICML 2023)."""

from collections.abc import Mapping

from torch import Tensor, nn

from ..attention.carry import Carry, QKVCarry
from ..attention.site import Site
from .plug import LayerPlan, Plug


class QKNorm(Plug):
    """Normalises q and k of each head by a layer norm, as *Scaling Vision Transformers to 22 Billion Parameters*
    (Dehghani et al., ICML 2023) does against logits that grow without bound.

    It acts before other plugs of q, k and v, and after the host's own rotary positions. It has no start that leaves the
    host as it is.

    Raises:
        ValueError: If the host takes cosines of q and k, times a factor that this norm would divide out.
    """

    name = 'qk_norm'
    rank = -1

    def build_layer(self, plan: LayerPlan) -> Mapping[str, nn.Module]:
        if plan.has_cosines:
            raise ValueError(f'QKNorm: block {plan.index} has normed q and k already: its scores are their cosines')
        return {'qkv': NormedPair(plan.shape.head_dims)}


class NormedPair(nn.Module):
    """``q`` and ``k``: a layer norm over the channels of a head each."""

    def __init__(self, dims: int):
        super().__init__()
        self.q, self.k = nn.LayerNorm(dims), nn.LayerNorm(dims)

    def forward(self, q: Tensor, k: Tensor, v: Tensor, site: Site, carry: Carry) -> QKVCarry:
        return self.q(q).to(q.dtype), self.k(k).to(k.dtype), v, carry
