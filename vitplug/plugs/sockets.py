"""The sockets: where a plug's modules act, and the arguments of each.

Sockets of a block, in the order in which they act::

    block_in      tokens that enter the block                  module(tokens, site, carry) -> (tokens, carry)
    qkv           q, k and v, before anything uses them        module(q, k, v, site, carry) -> (q, k, v, carry)
    tap           q, k and v, to be handed on                  module(q, k, v, site, carry) -> carry
    extra_keys    keys and values that belong to no token      module(q, site) -> (k, v, logits)
    bias          position bias                                module(site) or module(site, q) -> PairBias
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
    normed      tokens after the final norm                  module(tokens) -> tokens

Shapes: q ``(B, W, H, Nq, d)``, k and v ``(B, W, H, Nk, d)``, scores, logits and maps ``(B, W, H, Nq, Nk)``, outputs of
heads ``(B, N, H, d)``, tokens ``(B, N, D)``. What comes out is shaped as what goes in; the last maps multiply v.
A site (:class:`~vitplug.attention.site.Site`) tells where the tokens are: windows, grids, mask, and ``valid`` for a
padded batch, the tokens that count. The carry holds tensors of earlier blocks.

- ``extra_keys``: k and v ``(B or 1, W or 1, H, E, d)``, and what is added to their scores, ``(H or 1, E)``, None for 0.
  Padding hides none of them. They have no place: a block with them takes no plug in ``scores``, ``logits`` or ``map``,
  and recorded maps are without their columns.
- ``bias``: ``OffsetBias(table, site.pairs)`` where it depends on the offset alone. A module with
  ``needs_queries = True`` gets q as it enters the scores, before their scale.
- ``scores``: the bias is ``(..., H or 1, Nq, Nk)``, None for none; the logits are without mask.
- ``normalise``: the logits are with mask, whose entries are far below all others.
- ``heads``: attention stays fused. A block that pools its queries has none of their tokens and gives None; a module
  that does without says ``needs_tokens = False``.
- ``prefix``: as many new tokens as the plug's ``num_prefix`` says, after the first ``num_prefix``, the host's own.
- ``finish``: before the final norm; ``record`` is the last block's.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from torch import Tensor

from ..attention.bias import PairBias
from ..attention.carry import Carry, taken
from ..attention.inputs import Attention, FastForm
from ..attention.intermediates import LayerRecord
from ..attention.site import Site

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
NETWORK_SOCKETS = ('start', 'prefix', 'finish', 'normed')
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
class MadeTogether(Protocol):
    """A module of the bias socket whose biases depend on parameters alone, so that blocks on one grid get theirs at
    once, before the first block."""

    @property
    def together_key(self) -> Any:
        """Only modules with equal keys are asked together."""

    @staticmethod
    def together(modules: Sequence[Any], site: Site) -> Sequence[PairBias] | None:
        """The biases of some such modules; None where each is to be asked by itself."""


@runtime_checkable
class Folds(Protocol):
    """A module of a plug, or a part of one, whose work on its parameters alone an exported model need not repeat."""

    def fold(self) -> None:
        """Does it once: the same outputs in evaluation, from constants."""


# --- bound modules ---


class Sockets:
    """The modules of one block by socket, in the order in which they act, and what follows of them.

    Made where plugs change, not in every forward.

    Args:
        parts: The modules of each plug by socket, plugs in their order.
    """

    if TYPE_CHECKING:

        def __getattr__(self, socket: str) -> tuple[Any, ...]: ...

    def __init__(self, parts: Iterable[Mapping[str, Any]] = ()):
        parts = list(parts)
        for socket in BLOCK_SOCKETS:
            setattr(self, socket, tuple(part[socket] for part in parts if socket in part))
        #: Modules that need maps, but for fast forms; the one in the scores socket comes first.
        self.pairs = (*self.scores, *self.logits, *self.normalise, *self.map)
        #: Whether attention is more than one fused call of the tokens' own keys.
        self.sees_pairs = bool(self.pairs or self.extra_keys)
        #: Stands for the biases of the bias socket before they are made, and which modules need q for theirs.
        self.unmade = (None,) * len(self.bias)
        self.needs_queries = tuple(getattr(module, 'needs_queries', False) for module in self.bias)
        #: Position and module of biases that blocks on one grid get at once.
        self.made_together = [(i, m) for i, m in enumerate(self.bias) if isinstance(m, MadeTogether)]
        #: The module that says how maps multiply the values; None for the plain product.
        self.weighs = next((module for module in self.map if isinstance(module, WeighsValues)), None)

    def bind(self) -> 'Sockets':
        """Itself: what takes plugs takes bound ones too."""
        return self

    def widens(self, site: Site) -> bool:
        """Whether the module that changes the scores prefers to widen q and k."""
        return any(isinstance(module, WidensScores) and module.widens(site) for module in self.scores)

    def needs_maps(self, site: Site) -> bool:
        """Whether attention forms maps for want of a fast form: a plug changes scores or maps, and q and k stay."""
        return bool(self.pairs[self.widens(site) :])

    def fast_form(self, inputs: Attention, site: Site, widened: bool) -> FastForm | None:
        """What computes an attention without its maps, by the one module of pairs; None where there is none."""
        modules = self.pairs[widened:]
        is_alone = len(modules) == 1 and isinstance(modules[0], HasFastForm)
        return modules[0].fast_form(inputs, site) if is_alone else None

    def tokens(self, socket: str, x_BND: Tensor, site: Site) -> Tensor:
        """Tokens of a branch after a token socket."""
        for module in getattr(self, socket):
            x_BND = module(x_BND, site)
        return x_BND

    def residual(self, branch: str, x_BND: Tensor, site: Site, record: LayerRecord | None) -> Tensor:
        """Output of a branch, ``'msa'`` or ``'mlp'``, as it is added to the tokens; it is recorded."""
        for module in self.msa_residual if branch == 'msa' else self.mlp_residual:
            x_BND = module(x_BND, site)
        if record is not None:
            record.add(**{'attn' if branch == 'msa' else branch: x_BND})
        return x_BND

    def stream(self, socket: str, x_BND: Tensor, site: Site, carry: Carry) -> tuple[Tensor, Carry]:
        """Tokens between blocks after ``'block_in'`` or ``'block_out'``, and the next carry."""
        for module in getattr(self, socket):
            x_BND, carry = taken(socket, module(x_BND, site, carry), 2)
        return x_BND, carry

    def change_heads(
        self,
        heads_BNe: Tensor,
        tokens_BND: Tensor | None,
        site: Site,
        carry: Carry,
        head_dims: int,
        record: LayerRecord | None = None,
    ) -> Tensor:
        """Outputs of the heads, side by side, after the heads socket; they are recorded.

        Args:
            heads_BNe: The outputs.
            tokens_BND: The tokens that entered the branch; None where they are not those of the queries.
            site: Where they are.
            carry: Tensors that earlier blocks and sockets handed on.
            head_dims: Width of one head.
            record: Takes them.
        """
        if len(self.heads) == 0 and record is None:
            return heads_BNe
        heads_BNHd = heads_BNe.unflatten(-1, (-1, head_dims))
        for module in self.heads:
            heads_BNHd = module(heads_BNHd, tokens_BND, site, carry)
        if record is not None:
            record.add(heads=heads_BNHd)
        return heads_BNHd.flatten(2)


#: Of a block without plugs.
NOTHING = Sockets()
