"""Exclusive self-attention (Ard2QzPAUK on OpenReview)."""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn

from ..attention.carry import Carry
from ..attention.precision import at_least_float32
from ..attention.site import Site
from .checks import check_flag
from .learned import LearnedVectors
from .plug import LayerPlan, Plug
from .value_residual import HandedOnValues, check_own_values


class ExclusiveSelfAttention(Plug):
    """Takes the part along a token's own value out of what it gets from attention (XSA), by head::

        y_i <- y_i - (y_i . v_i) / (v_i . v_i) v_i

    Attention stays fused.

    Args:
        gated: Whether the part is taken times ``tanh(g)``, with a learned scalar g for each block that starts with 0
            and changes nothing then (record 82 of modded-nanogpt). The plain form has no such start.

    Raises:
        ValueError: If a block's keys are not its queries, or its heads have other values.
    """

    name = 'exclusive_self_attention'
    #: After plugs that change the values.
    rank = 1
    short_name = 'xsa'
    watched = {'xsa_gate': 'tanh g'}

    def __init__(self, gated: bool = False, layers: str | Sequence[int] = 'all'):
        super().__init__(layers)
        self.gated = self.identity_start = check_flag('gated', gated)

    def learned_values(self, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        return {symbol: gate.tanh() for symbol, gate in super().learned_values(tensors).items()}

    def build_layer(self, plan: LayerPlan) -> Mapping[str, nn.Module]:
        check_own_values(self, plan)
        return {'qkv': HandedOnValues(self.name), 'heads': WithoutOwn(self.name, self.gated)}


class WithoutOwn(LearnedVectors):
    """Takes the part along the values in the carry out; ``xsa_gate`` of shape ``(1,)`` where it is gated."""

    needs_tokens = False
    xsa_gate: nn.Parameter

    def __init__(self, key: str, gated: bool = False):
        super().__init__(1, **(dict(xsa_gate=0.0) if gated else {}))
        self.key, self.gated = key, gated

    def forward(self, heads_BNHd: Tensor, tokens_BND: Tensor | None, site: Site, carry: Carry) -> Tensor:
        own_BNHd = carry[self.key].view_as(heads_BNHd)
        wide_BNHd = own_BNHd.to(at_least_float32(own_BNHd.dtype))  # whose squares would leave float16
        along = (heads_BNHd * wide_BNHd).sum(-1, keepdim=True)
        length = wide_BNHd.square().sum(-1, keepdim=True).clamp(min=torch.finfo(wide_BNHd.dtype).tiny)
        share = (along / length).to(heads_BNHd.dtype)
        if self.gated:
            share = share * self.xsa_gate.tanh().to(share.dtype)
        return torch.addcmul(heads_BNHd, share, own_BNHd, value=-1)
