"""Head scale: *NormFormer* (Shleifer et al., 2021)."""

from collections.abc import Mapping

from torch import Tensor, nn

from ..attention.carry import Carry
from ..attention.site import Site
from .learned import LearnedVectors
from .plug import LayerPlan, Plug


class HeadScale(Plug):
    """Scales the output of each head by a learned factor, as *NormFormer* (Shleifer et al., 2021) does::

    Y_h <- g_h Y_h          g starts with 1, which changes nothing
    """

    name = 'head_scale'
    identity_start = True
    watched = {'head_scale': 'g'}

    def build_layer(self, plan: LayerPlan) -> Mapping[str, nn.Module]:
        return {'heads': ScaledHeads(plan.shape.out_heads, head_scale=1)}


class ScaledHeads(LearnedVectors):
    """``head_scale`` of shape ``(H,)``."""

    needs_tokens = False
    head_scale: nn.Parameter

    def forward(self, heads_BNHd: Tensor, tokens_BND: Tensor | None, site: Site, carry: Carry) -> Tensor:
        return heads_BNHd * self.head_scale.to(heads_BNHd.dtype)[:, None]
