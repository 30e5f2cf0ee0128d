"""Sigmoid attention: *Theory, Analysis, and Best Practices for Sigmoid Self-Attention* (Ramapuram et al., 2025)."""

from collections.abc import Mapping, Sequence

from torch import Tensor, nn

from ..attention.carry import Carry
from ..attention.precision import at_least_float32
from ..attention.site import Site
from .checks import check_number
from .plug import LayerPlan, Plug


class SigmoidAttention(Plug):
    """Weighs every key by itself, in place of the softmax::

        A_ij = sigmoid(z_ij + b)          b = -ln N for N keys

    All maps are formed: it is no fused form.

    Args:
        bias: ``b``; None for ``-ln N``.

    Raises:
        ValueError: If ``bias`` is no number.
    """

    name = 'sigmoid_attention'
    short_name = 'sigmoid'

    def __init__(self, bias: float | None = None, layers: str | Sequence[int] = 'all'):
        super().__init__(layers)
        self.bias = bias if bias is None else check_number('bias', bias)

    def build_layer(self, plan: LayerPlan) -> Mapping[str, nn.Module]:
        return {'normalise': Sigmoid(self.bias)}


class Sigmoid(nn.Module):
    """The sigmoid of logits and the bias."""

    def __init__(self, bias: float | None):
        super().__init__()
        self.bias = bias

    def forward(self, logits: Tensor, site: Site, carry: Carry) -> Tensor:
        z = logits.to(at_least_float32(logits.dtype))
        # A tensor: a graph for all sizes takes no logarithm of a size.
        bias = -z.new_full((), z.shape[-1]).log() if self.bias is None else self.bias
        return (z + bias).sigmoid()
