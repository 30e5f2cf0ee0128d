"""Gated attention: *Gated Attention for Large Language Models* (Qiu et al., 2025), its gate after the weighted sum."""

from collections.abc import Mapping, Sequence

from torch import Tensor, nn

from ..attention.carry import Carry
from ..attention.site import Site
from .checks import check_choice
from .plug import LayerPlan, Plug


class GatedAttention(Plug):
    """Multiplies the output of the heads by a gate of the tokens, before the projection::

        Y <- Y * sigmoid(X W_g + b_g)          X the tokens that enter the branch

    Args:
        granularity: ``'element'`` has a gate for each channel of each head, ``'head'`` one for each head.
        start: ``'paper'`` leaves W_g to torch's linear layer, so that gates start near 0.5; ``'identity'`` starts
            with W_g = b_g = 0 and gates of ``2 sigmoid``, which change nothing.

    Raises:
        ValueError: If an argument is none of these.
    """

    name = 'gated_attention'
    short_name = 'gate'
    watched = {'bias': 'gate'}

    def __init__(self, granularity: str = 'element', start: str = 'paper', layers: str | Sequence[int] = 'all'):
        super().__init__(layers)
        self.granularity = check_choice('granularity', granularity, ('element', 'head'))
        self.start = check_choice('start', start, ('paper', 'identity'))
        self.identity_start = start == 'identity'

    def learned_values(self, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """The gates where ``X W_g`` is 0, as it is on average for normalised tokens."""
        most = 2 if self.start == 'identity' else 1
        return {symbol: most * bias.sigmoid() for symbol, bias in super().learned_values(tensors).items()}

    def build_layer(self, plan: LayerPlan) -> Mapping[str, nn.Module]:
        heads, width = plan.shape.out_heads, plan.shape.head_dims if self.granularity == 'element' else 1
        return {'heads': Gate(plan.width_at('heads'), heads, width, self.start == 'identity')}


class Gate(nn.Module):
    """``gate``: a linear layer from the tokens' width to that of all gates, ``width`` for each output of a head."""

    def __init__(self, dims: int, heads: int, width: int, is_identity: bool):
        super().__init__()
        self.width, self.is_identity = width, is_identity
        self.gate = nn.Linear(dims, heads * width)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Starts without effect, where it is to."""
        if self.is_identity:
            nn.init.zeros_(self.gate.weight)
            nn.init.zeros_(self.gate.bias)

    def forward(self, heads_BNHd: Tensor, tokens_BND: Tensor, site: Site, carry: Carry) -> Tensor:
        gates_BNHw = self.gate(tokens_BND).sigmoid().unflatten(-1, (-1, self.width))
        return heads_BNHd * (2 * gates_BNHw if self.is_identity else gates_BNHw)
