"""The sockets: where a plug's modules act, and the arguments of each.

Sockets of a block, in the order in which they act::

    block_in      tokens that enter the block                  module(tokens, site, carry) -> (tokens, carry)
    qkv           q, k and v, before anything uses them        module(q, k, v, site, carry) -> (q, k, v, carry)
    tap           q, k and v, to be handed on                  module(q, k, v, site, carry) -> carry
    extra_keys    keys and values that belong to no token      module(q, site) -> (k, v, logits)
    bias          position bias                                module(site) -> PairBias
    scores *      scores, with which the bias is joined        module(scores, bias, site, carry) -> (logits, carry)
    logits        scores and bias together, without mask       module(logits, site, carry) -> (logits, carry)
    normalise *   what is done in place of the softmax         module(logits, site, carry) -> probs
    map           attention maps                               module(maps, site, carry) -> (maps, carry)
    heads         output of each head, before the projection   module(heads, tokens, site, carry) -> heads
    msa           tokens after the attention's projection      module(tokens, site) -> tokens
    msa_residual  the attention branch as it is added          module(tokens, site) -> tokens
    mlp_front     tokens before the first layer of the MLP     module(tokens, site) -> tokens
    mlp_mid       hidden tokens, after the activation          module(tokens, site) -> tokens
    mlp_end       tokens after the last layer of the MLP       module(tokens, site) -> tokens
    mlp_residual  the MLP branch as it is added                module(tokens, site) -> tokens
    block_out     tokens that leave the block                  module(tokens, site, carry) -> (tokens, carry)

Plugs in one socket act one after the other, in the order of their rank (:attr:`~vitplug.plugs.Plug.rank`) and name. A
socket with * takes one plug only. ``msa`` and ``mlp_end`` come before the branch's last norm, LayerScale and stochastic
depth, ``msa_residual`` and ``mlp_residual`` after them.

Sockets of the whole network::

    start       the carry the first block receives           module(carry) -> carry
    prefix      tokens before the first block                module(tokens, num_prefix) -> more tokens
    finish      tokens after the last block                  module(tokens, site, carry, record) -> tokens

Each has a protocol below, which needs torch alone: a model of another library that calls
:class:`~vitplug.plugs.LayerPlugs` in this order takes every plug.

Shapes: q ``(B, W, H, Nq, d)``, k and v ``(B, W, H, Nk, d)``, tokens ``(B, N, D)``. A site
(:class:`~vitplug.attention.site.Site`) tells where the tokens are: windows, grids, mask, and ``valid`` for a padded
batch, the tokens that count.
"""

from typing import Protocol, runtime_checkable

from torch import Tensor, nn

from ..attention.bias import PairBias
from ..attention.carry import Carry
from ..attention.inputs import Attention
from ..attention.intermediates import LayerRecord
from ..attention.site import Site
from ..attention.sockets import FastForm


class QkvSocket(Protocol):
    """Changes q, k and v. The carry takes tensors that later blocks need."""

    def __call__(
        self, q_BWHNd: Tensor, k_BWHNd: Tensor, v_BWHNd: Tensor, site: Site, carry: Carry
    ) -> tuple[Tensor, Tensor, Tensor, Carry]:
        """q, k and v of the same shapes, and the next carry."""


class TapSocket(Protocol):
    """Hands q, k and v on."""

    def __call__(self, q_BWHNd: Tensor, k_BWHNd: Tensor, v_BWHNd: Tensor, site: Site, carry: Carry) -> Carry:
        """The next carry."""


class BiasSocket(Protocol):
    """A position bias, added to the host's."""

    def __call__(self, site: Site) -> PairBias:
        """The bias; ``OffsetBias(table, site.pairs)`` where it depends on the offset alone."""


class ExtraKeysSocket(Protocol):
    """Keys that every query sees besides the tokens', such as null keys and learned prefixes; padding hides none.

    They have no place: a block with them takes no plug in ``scores``, ``logits`` or ``map``, and recorded maps are
    without their columns.
    """

    def __call__(self, q_BWHNd: Tensor, site: Site) -> tuple[Tensor, Tensor, Tensor | None]:
        """k and v ``(B or 1, W or 1, H, E, d)``, and what is added to their scores, ``(H or 1, E)``; None for 0."""


class ScoresSocket(Protocol):
    """Makes logits of scores ``(B, W, H, Nq, Nk)``."""

    def __call__(self, scores: Tensor, bias: Tensor | None, site: Site, carry: Carry) -> tuple[Tensor, Carry]:
        """The logits without mask, and the next carry. ``bias`` is ``(..., H or 1, Nq, Nk)``, None for none."""


class LogitsSocket(Protocol):
    """Changes logits ``(B, W, H, Nq, Nk)``, which are without mask."""

    def __call__(self, logits: Tensor, site: Site, carry: Carry) -> tuple[Tensor, Carry]:
        """The logits, and the next carry."""


class NormaliseSocket(Protocol):
    """Makes probabilities of logits ``(B, W, H, Nq, Nk)``, in which the mask's entries are far below all others."""

    def __call__(self, logits: Tensor, site: Site, carry: Carry) -> Tensor:
        """The probabilities."""


class MapSocket(Protocol):
    """Changes the maps ``(B, W, H, Nq, Nk)``, which are the probabilities at first, or replaces them."""

    def __call__(self, maps: Tensor, site: Site, carry: Carry) -> tuple[Tensor, Carry]:
        """The maps, and the next carry. The last ones multiply the values."""


class HeadsSocket(Protocol):
    """Changes the output of each head; attention stays fused.

    Attributes:
        needs_tokens: Whether it uses the tokens. A block that pools its queries has none of them; it gives None.
    """

    needs_tokens: bool = True

    def __call__(self, heads_BNHd: Tensor, tokens_BND: Tensor | None, site: Site, carry: Carry) -> Tensor:
        """``(B, N, H, d)``, of the heads' outputs and the tokens that entered the attention branch."""


class TokenSocket(Protocol):
    """Changes tokens."""

    def __call__(self, tokens_BND: Tensor, site: Site) -> Tensor:
        """``(B, N, D)``, as the tokens."""


class BlockSocket(Protocol):
    """Changes the tokens between two blocks. The site is that of the block."""

    def __call__(self, tokens_BND: Tensor, site: Site, carry: Carry) -> tuple[Tensor, Carry]:
        """``(B, N, D)``, as the tokens, and the next carry."""


class StartSocket(Protocol):
    """Puts something into the carry of a new forward."""

    def __call__(self, carry: Carry) -> Carry:
        """The next carry."""


class PrefixSocket(Protocol):
    """Adds tokens before the first block: as many as the plug's ``num_prefix`` says."""

    def __call__(self, tokens_BND: Tensor, num_prefix: int) -> Tensor:
        """The tokens with the new ones after the first ``num_prefix``, which are the host's own."""


class FinishSocket(Protocol):
    """Changes the tokens after the last block, before the final norm."""

    def __call__(self, tokens_BND: Tensor, site: Site, carry: Carry, record: LayerRecord | None) -> Tensor:
        """``(B, N, D)``, as the tokens. ``record`` is the last block's."""


#: Sockets that see tokens and nothing else.
TOKEN_SOCKETS = ('msa', 'msa_residual', 'mlp_front', 'mlp_mid', 'mlp_end', 'mlp_residual')
#: Sockets between blocks.
STREAM_SOCKETS = ('block_in', 'block_out')
#: Sockets of a block that need its q and k. A block that reuses the map of an earlier one has neither.
QK_SOCKETS = ('qkv', 'tap', 'extra_keys', 'bias', 'scores', 'logits', 'normalise')
#: The sockets of each branch of a block.
BRANCHES = {
    'attention': (*QK_SOCKETS, 'map', 'heads', 'msa', 'msa_residual'),
    'MLP': ('mlp_front', 'mlp_mid', 'mlp_end', 'mlp_residual'),
}
BLOCK_SOCKETS = ('block_in', *(socket for sockets in BRANCHES.values() for socket in sockets), 'block_out')
NETWORK_SOCKETS = ('start', 'prefix', 'finish')
#: Not a socket: modules of the network that blocks use and nobody calls.
SHARED = 'shared'
#: Sockets for one plug only: it defines the logits, or the probabilities.
EXCLUSIVE_SOCKETS = ('scores', 'normalise')
#: Sockets whose modules see every pair of a query and a key, so that all maps are formed but for fast forms.
PAIR_SOCKETS = ('scores', 'logits', 'normalise', 'map')

# --- further protocols of modules ---


@runtime_checkable
class HasFastForm(Protocol):
    """A module of a socket of pairs that can compute the whole attention without forming all maps."""

    def fast_form(self, inputs: Attention, site: Site) -> FastForm | None:
        """The exact fast form of this attention; None where there is none, or it does not pay."""


@runtime_checkable
class WidensScores(Protocol):
    """A module of the scores socket whose logits are the plain ones of wider q and k, so that attention stays fused."""

    def widens(self, site: Site) -> bool:
        """Whether it prefers that for these tokens."""

    def widen(self, inputs: Attention, carry: Carry) -> tuple[Attention, Carry]:
        """Wider q and k and biases such that ``scale * q @ k^T + biases`` equals the logits, and the next carry."""


@runtime_checkable
class WeighsValues(Protocol):
    """A module of the map socket that says how its maps multiply the values; it is the last of its block."""

    def weigh(self, maps: Tensor, v_BWHNd: Tensor) -> tuple[Tensor, Tensor]:
        """The output ``(B, W, heads, Nq, d)``, and the value heads beyond the maps."""


@runtime_checkable
class Folds(Protocol):
    """A module of a plug, or a part of one, whose work on its parameters alone an exported model need not repeat."""

    def folded(self) -> nn.Module:
        """A module that takes its place: the same outputs in evaluation, from constants."""
