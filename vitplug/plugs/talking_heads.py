"""Talking heads: *Talking-Heads Attention* (Shazeer et al., 2020), with the biases that CaiT's code adds."""

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from ..attention.carry import Carry
from ..attention.site import Site, without_hidden
from .plug import LayerPlan, Plug


class TalkingHeads(Plug):
    """Mixes the heads before and after the softmax::

        maps = W softmax(L logits)         W and L: H x H, each with a bias of its own

    The logits are the scores with position biases, and with what another plug has made of them.
    """

    name = 'talking_heads'
    identity_start = True

    def build_layer(self, plan: LayerPlan) -> Mapping[str, nn.Module]:
        return {'logits': MixedLogits(plan.num_heads), 'map': MixedMaps(plan.num_heads)}


class Mix(nn.Module):
    """``weight`` ``(H, H)`` and ``bias`` ``(H,)``, the identity at first."""

    def __init__(self, heads: int):
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.empty(heads, heads)), nn.Parameter(torch.empty(heads))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Starts as the identity."""
        nn.init.eye_(self.weight)
        nn.init.zeros_(self.bias)

    def mix(self, maps: Tensor) -> Tensor:
        """``(B, W, H, Nq, Nk)`` to the same shape."""
        mixed = (maps.transpose(2, -1) @ self.weight.to(maps.dtype).T).transpose(2, -1)
        return mixed + self.bias.to(maps.dtype)[:, None, None]


class MixedLogits(Mix):
    """The logits socket."""

    def forward(self, logits: Tensor, site: Site, carry: Carry) -> tuple[Tensor, Carry]:
        return self.mix(logits), carry


class MixedMaps(Mix):
    """The map socket."""

    def forward(self, probs: Tensor, site: Site, carry: Carry) -> tuple[Tensor, Carry]:
        return without_hidden(self.mix(probs), site), carry
