"""What attention asks of a layer's plugs."""

from collections.abc import Callable, Sequence
from typing import Protocol

from torch import Tensor

from .bias import PairBias
from .carry import Carry
from .inputs import Attention, ExtraKeys
from .site import Site

#: An attention and the carry, to the output (B, W, H, Nq, d) and the next carry.
FastForm = Callable[[Attention, Carry], tuple[Tensor, Carry]]


class LayerSockets(Protocol):
    """The sockets of one attention, each with the modules of all plugs; :class:`~vitplug.plugs.LayerPlugs` is one."""

    def change_qkv(
        self, q: Tensor, k: Tensor, v: Tensor, site: Site, carry: Carry
    ) -> tuple[Tensor, Tensor, Tensor, Carry]:
        """q, k and v, and the next carry."""

    def tap(self, q: Tensor, k: Tensor, v: Tensor, site: Site, carry: Carry) -> Carry:
        """The next carry."""

    def extra_keys(self, q: Tensor, site: Site) -> Sequence[ExtraKeys]:
        """Keys that belong to no token."""

    def add_bias(self, biases: Sequence[PairBias], site: Site) -> tuple[PairBias, ...]:
        """The host's biases and the plugs'."""

    def widens(self, site: Site) -> bool:
        """Whether q and k are to be widened in place of a change of the scores."""

    def widen(self, inputs: Attention, carry: Carry) -> tuple[Attention, Carry]:
        """The wider attention, and the next carry."""

    @property
    def keeps_scores(self) -> bool:
        """Whether the logits are the scores plus the biases."""

    def fast_form(self, inputs: Attention, site: Site, widened: bool) -> FastForm | None:
        """What computes the attention without maps; None for nothing."""

    def blend_scores(self, scores: Tensor, bias: Tensor | None, site: Site, carry: Carry) -> tuple[Tensor, Carry]:
        """Logits of scores and bias, and the next carry."""

    def change_logits(self, logits: Tensor, site: Site, carry: Carry) -> tuple[Tensor, Carry]:
        """The logits, and the next carry."""

    def normalise(self, logits: Tensor, site: Site, carry: Carry) -> Tensor:
        """Probabilities of logits with mask."""

    def refine_map(self, probs: Tensor, site: Site, carry: Carry) -> tuple[Tensor, Carry]:
        """The maps that multiply v, and the next carry."""

    def weigh(self, maps: Tensor, v_BWHNd: Tensor) -> tuple[Tensor, Tensor]:
        """The maps times the values, and the value heads beyond the maps."""
