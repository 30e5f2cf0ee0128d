"""Differential attention: *Differential Transformer* (Ye et al., ICLR 2025)."""

import math
from collections.abc import Mapping

import torch
from torch import Tensor, nn

from ..attention.carry import Carry
from ..attention.forms import fused, with_biases
from ..attention.inputs import Attention, FastForm
from ..attention.precision import at_least_float32
from ..attention.site import Site
from .plug import LayerPlan, Plug


class DifferentialAttention(Plug):
    """Subtracts the maps of every second head from those before; the values of both heads are one::

        Y = (1 - l0) norm((A_1 - l A_2) [V_1, V_2])          l = exp(a_1 . b_1) - exp(a_2 . b_2) + l0
        l0 = 0.8 - 0.6 exp(-0.3 block)                       norm: root mean square over 2 d channels

    a and b are learned for each block. It has no start that leaves the host as it is. Attention is fused, once for the
    first and once for the second heads.

    Raises:
        ValueError: If a block has an odd number of heads, or other outputs than values.
    """

    name = 'differential_attention'
    short_name = 'diff'
    #: After other plugs that change maps: it makes one map of two.
    rank = 2

    def learned_values(self, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """How far l has come from l0."""
        q1, k1, q2, k2 = (tensors[f'map.lambda_{name}'].detach() for name in ('q1', 'k1', 'q2', 'k2'))
        return {'lambda-l0': (q1 * k1).sum().exp() - (q2 * k2).sum().exp()}

    def build_layer(self, plan: LayerPlan) -> Mapping[str, nn.Module]:
        shape = plan.shape
        if shape.map_heads % 2 or not shape.map_heads or shape.out_heads != shape.value_heads:
            raise ValueError(
                f'DifferentialAttention: block {plan.index} has {shape.map_heads} heads with maps and '
                f'{shape.out_heads} outputs of {shape.value_heads} values: expected pairs of heads, with an output for '
                'each value; choose other layers, or another number of heads'
            )
        return {'map': Difference(shape.head_dims, plan.index)}


class Difference(nn.Module):
    """``lambda_q1``, ``lambda_k1``, ``lambda_q2`` and ``lambda_k2`` of shape ``(d,)``, and ``weight`` ``(2 d,)``."""

    EPS = 1e-5

    def __init__(self, dims: int, index: int):
        super().__init__()
        self.start = 0.8 - 0.6 * math.exp(-0.3 * index)
        self.lambda_q1, self.lambda_k1, self.lambda_q2, self.lambda_k2 = (
            nn.Parameter(torch.empty(dims)) for _ in range(4)
        )
        self.weight = nn.Parameter(torch.empty(2 * dims))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draws a and b; the norm starts with ones."""
        for vector in (self.lambda_q1, self.lambda_k1, self.lambda_q2, self.lambda_k2):
            nn.init.normal_(vector, std=0.1)
        nn.init.ones_(self.weight)

    @property
    def share(self) -> Tensor:
        """What of the second map is subtracted."""
        first, second = (self.lambda_q1 * self.lambda_k1).sum(), (self.lambda_q2 * self.lambda_k2).sum()
        return first.exp() - second.exp() + self.start

    def forward(self, maps: Tensor, site: Site, carry: Carry) -> tuple[Tensor, Carry]:
        """Maps ``(B, W, H, Nq, Nk)`` to their differences ``(B, W, H / 2, Nq, Nk)``."""
        return maps[:, :, ::2] - self.share.to(maps.dtype) * maps[:, :, 1::2], carry

    def weigh(self, maps: Tensor, v_BWHNd: Tensor) -> tuple[Tensor, Tensor]:
        """The outputs of both heads of each pair, and the value heads beyond them."""
        heads = 2 * maps.shape[2]
        return self._normed(maps @ _paired(v_BWHNd[:, :, :heads])), v_BWHNd[:, :, heads:]

    def fast_form(self, inputs: Attention, site: Site) -> FastForm:
        """Two fused calls."""
        return self._by_two

    def _by_two(self, inputs: Attention, carry: Carry) -> tuple[Tensor, Carry]:
        (q, k, added), v = with_biases(inputs), _paired(inputs.v)
        if added is not None:
            added = added[(None,) * (5 - added.ndim)].expand(-1, -1, q.shape[1], -1, -1)
        first, second = (
            fused(
                inputs._replace(
                    q=q[:, start::2],
                    k=k[:, start::2],
                    v=v,
                    biases=(),
                    mask=None if added is None else added[:, :, start::2],
                )
            )
            for start in (0, 1)
        )
        return self._normed(first - self.share.to(first.dtype) * second), carry

    def _normed(self, out_HNe: Tensor) -> Tensor:
        """The outputs of pairs ``(..., H / 2, Nq, 2 d)``, normalised, as those of heads ``(..., H, Nq, d)``."""
        wide = out_HNe.to(at_least_float32(out_HNe.dtype))
        normed = wide * (wide.square().mean(-1, keepdim=True) + self.EPS).rsqrt() * self.weight
        both = (normed * (1 - self.start)).to(out_HNe.dtype).unflatten(-1, (2, -1))
        return both.transpose(-3, -2).flatten(-4, -3)


def _paired(v_HNd: Tensor) -> Tensor:
    """The values of every two heads side by side, ``(..., H / 2, Nk, 2 d)``."""
    return v_HNd.unflatten(-3, (-1, 2)).transpose(-3, -2).flatten(-2)
