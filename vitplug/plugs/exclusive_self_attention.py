"""Exclusive self-attention (Ard2QzPAUK on OpenReview)."""

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from ..attention.carry import Carry
from ..attention.site import Site
from .plug import LayerPlan, Plug
from .value_residual import HandedOnValues, check_own_values


class ExclusiveSelfAttention(Plug):
    """Takes the part along a token's own value out of what it gets from attention (XSA), by head::

        y_i <- y_i - (y_i . v_i) / (v_i . v_i) v_i

    Attention stays fused. It has no start that leaves the host as it is.

    Args:
        layers: Blocks that get it, see :class:`Plug`.

    Raises:
        ValueError: If a block's keys are not its queries, or its heads have other values.
    """

    name = 'exclusive_self_attention'
    #: After plugs that change the values.
    rank = 1
    short_name = 'xsa'

    def build_layer(self, plan: LayerPlan) -> Mapping[str, nn.Module]:
        check_own_values(self, plan)
        return {'qkv': HandedOnValues(self.name), 'heads': WithoutOwn(self.name)}


class WithoutOwn(nn.Module):
    """Takes the part along the values in the carry out."""

    needs_tokens = False

    def __init__(self, key: str):
        super().__init__()
        self.key = key

    def forward(self, heads_BNHd: Tensor, tokens_BND: Tensor | None, site: Site, carry: Carry) -> Tensor:
        own_BNHd = carry[self.key].view_as(heads_BNHd)
        along = (heads_BNHd * own_BNHd).sum(-1, keepdim=True)
        length = own_BNHd.square().sum(-1, keepdim=True).clamp(min=torch.finfo(own_BNHd.dtype).tiny)
        return torch.addcmul(heads_BNHd, along / length, own_BNHd, value=-1)
