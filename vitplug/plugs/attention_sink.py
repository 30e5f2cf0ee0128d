"""A sink for attention: a null key with a learned logit (gpt-oss, 2025), or the softmax off by one (Miller, 2023)."""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn

from ..attention.site import Site
from .checks import check_flag, check_number
from .plug import LayerPlan, Plug


class AttentionSink(Plug):
    """Lets a head attend to nothing: one more term in the denominator of the softmax, by head::

        A_ij = exp(z_ij) / (exp(s_h) + sum_j exp(z_ij))

    It is a key of zeros with a value of zeros, so attention stays fused; beside a position bias, a learned ``s_h``
    forms maps in training on a CPU. The lower ``s_h``, the nearer to the host.

    Args:
        learnable: Whether ``s_h`` is learned; otherwise it is ``start`` for all heads.
        start: Start of ``s_h``. 0 that is not learned is the softmax off by one.
        layers: Blocks that get it, see :class:`Plug`.

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


class NullKey(nn.Module):
    """``sink_logit`` of shape ``(H, 1)`` where it is learned."""

    def __init__(self, heads: int, start: float, learnable: bool):
        super().__init__()
        self.start, self.sink_logit = start, nn.Parameter(torch.empty(heads, 1)) if learnable else None
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Gives a learned logit its start."""
        if self.sink_logit is not None:
            nn.init.constant_(self.sink_logit, self.start)

    def forward(self, q_BWHNd: Tensor, site: Site) -> tuple[Tensor, Tensor, Tensor | None]:
        zeros = q_BWHNd.new_zeros(1, 1, q_BWHNd.shape[2], 1, q_BWHNd.shape[4])
        logit: Tensor | None = self.sink_logit
        if logit is None and self.start:
            logit = q_BWHNd.new_full((1, 1), self.start)
        return zeros, zeros, logit
