"""Gated attention: *Gated Attention for Large Language Models* (Qiu et al., 2025), its gate after the weighted sum."""

from collections.abc import Mapping, Sequence

from torch import Tensor, nn

from vitplug.attention import Carry, Site
from vitplug.plugs import LayerPlan, Plug


class GatedAttention(Plug):
    """Multiplies the output of the heads by a gate of the tokens, before the projection::

        Y <- Y * sigmoid(X W_g + b_g)

    Args:
        layers: Blocks that get it, see :class:`~vitplug.plugs.Plug`.
    """

    name = 'gated_attention'

    def __init__(self, layers: str | Sequence[int] = 'all'):
        super().__init__(layers)

    def build_layer(self, plan: LayerPlan) -> Mapping[str, nn.Module]:
        return {'heads': Gate(plan.width_at('heads'), plan.shape.out_heads * plan.shape.head_dims)}


class Gate(nn.Module):
    """``gate``: a linear layer from the tokens' width to that of all heads."""

    def __init__(self, embed_dims: int, heads_dims: int):
        super().__init__()
        self.gate = nn.Linear(embed_dims, heads_dims)

    def forward(self, heads_BNHd: Tensor, tokens_BND: Tensor, site: Site, carry: Carry) -> Tensor:
        return heads_BNHd * self.gate(tokens_BND).sigmoid().view_as(heads_BNHd)
