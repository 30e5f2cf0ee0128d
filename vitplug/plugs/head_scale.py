"""Head scale: *NormFormer* (Shleifer et al., 2021)."""

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from ..attention.carry import Carry
from ..attention.site import Site
from .plug import LayerPlan, Plug


class HeadScale(Plug):
    """Scales the output of each head by a learned factor, as *NormFormer* (Shleifer et al., 2021) does::

        Y_h <- g_h Y_h          g starts with 1, which changes nothing

    Args:
        layers: Blocks that get it, see :class:`Plug`.
    """

    name = 'head_scale'
    watched = {'head_scale': 'g'}

    def build_layer(self, plan: LayerPlan) -> Mapping[str, nn.Module]:
        return {'heads': ScaledHeads(plan.shape.out_heads)}


class ScaledHeads(nn.Module):
    """``head_scale`` of shape ``(H,)``."""

    needs_tokens = False

    def __init__(self, heads: int):
        super().__init__()
        self.head_scale = nn.Parameter(torch.empty(heads))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Starts as the identity."""
        nn.init.ones_(self.head_scale)

    def forward(self, heads_BNHd: Tensor, tokens_BND: Tensor | None, site: Site, carry: Carry) -> Tensor:
        return heads_BNHd * self.head_scale.to(heads_BNHd.dtype)[:, None]
