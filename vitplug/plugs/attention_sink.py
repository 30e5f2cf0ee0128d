"""A sink for attention: a null key with a learned logit (gpt-oss, 2025), or the softmax off by one (Miller, 2023)."""

from collections.abc import Mapping, Sequence

from torch import Tensor, nn

from ..attention.site import Site
from .checks import check_flag, check_number
from .learned import LearnedVectors
from .plug import LayerPlan, Plug


class AttentionSink(Plug):
    """Lets a head attend to nothing: one more term in the denominator of the softmax, by head::

        A_ij = exp(z_ij) / (exp(s_h) + sum_j exp(z_ij))

    It is a key of zeros with a value of zeros, so attention stays fused; beside a position bias, a learned ``s_h``
    forms maps in training on a CPU. The lower ``s_h``, the nearer to the host.

    Args:
        learnable: Whether ``s_h`` is learned; otherwise it is ``start`` for all heads.
        start: Start of ``s_h``. 0 that is not learned is the softmax off by one.

    Raises:
        ValueError: If an argument is none of these.
    """

    name = 'attention_sink'
    short_name = 'sink'
    watched = {'sink_logit': 's'}
    undecayed = ('sink_logit',)

    def __init__(self, learnable: bool = True, start: float = 0.0, layers: str | Sequence[int] = 'all'):
        super().__init__(layers)
        self.learnable = check_flag('learnable', learnable)
        self.start = check_number('start', start, least=-1000.0, most=1000.0)

    def build_layer(self, plan: LayerPlan) -> Mapping[str, nn.Module]:
        return {'extra_keys': NullKey(plan.num_heads, self.start, self.learnable)}


class NullKey(LearnedVectors):
    """``sink_logit`` of shape ``(H, 1)`` where it is learned."""

    sink_logit: nn.Parameter

    def __init__(self, heads: int, start: float, learnable: bool):
        super().__init__((heads, 1), **(dict(sink_logit=start) if learnable else {}))
        self.start, self.learnable = start, learnable

    def forward(self, q_BWHNd: Tensor, site: Site) -> tuple[Tensor, Tensor, Tensor | None]:
        zeros = q_BWHNd.new_zeros(1, 1, q_BWHNd.shape[2], 1, q_BWHNd.shape[4])
        if self.learnable:
            return zeros, zeros, self.sink_logit
        return zeros, zeros, q_BWHNd.new_full((1, 1), self.start) if self.start else None
