"""What a plug is: the change one paper makes to a transformer, offered to any backbone.

A backbone describes its blocks (:class:`BlockShape` before they are built, :class:`LayerPlan` after)
and owns sockets; a plug names the sockets it takes and brings the modules for them. Neither knows
the other. Sockets of a block::

    tap         q, k and v                                   module(q, k, v, grid, carry, valid) -> carry
    bias        position bias of every offset                module(grid) -> (H or 1, 2h-1, 2w-1)
    scores      scores before the softmax (one plug only)    module(scores, bias, grid, carry) -> (logits, carry)
    map         attention maps after it (one plug only)      module(probs, mask, grid, carry) -> (maps, carry)
    msa         tokens after the attention's projection      module(tokens, valid) -> tokens
    mlp_front   tokens before the first layer of the MLP     module(tokens, valid) -> tokens
    mlp_mid     hidden tokens, after the activation          module(tokens, valid) -> tokens
    mlp_end     tokens after the last layer of the MLP       module(tokens, valid) -> tokens

A module in the scores or map socket may also be :class:`HasFastForm`, one in the scores socket :class:`WidensScores`,
one in the map socket :class:`WeighsValues`.

Sockets of the whole network::

    start       the carry the first block receives           module(carry) -> carry
    finish      tokens after the last block                  module(tokens, grid, carry, record) -> tokens

It also owns what modules of many blocks use, under ``shared``, which is never called.

``valid`` is None, or, for a padded batch whose image sizes are known, a mask that is False for padding: ``(B, N)`` with
tokens ``(B, N, D)`` (prefix tokens are True), ``(B, W, N)`` with q, k and v.

Its modules start as their constructors leave them: a model's ``init_cfg``, which reaches layers by class name, does not
change them.
"""

import inspect
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from torch import Tensor, nn

from ..attention.carry import Carry
from ..attention.grids import TokenGrid
from ..attention.inputs import Attention

TOKEN_SOCKETS = ('msa', 'mlp_front', 'mlp_mid', 'mlp_end')
# The sockets of each branch of a block.
BRANCHES = {'attention': ('tap', 'bias', 'scores', 'map', 'msa'), 'MLP': ('mlp_front', 'mlp_mid', 'mlp_end')}
# Only one plug can say what the logits, or the maps, are.
EXCLUSIVE_SOCKETS = ('scores', 'map')
# What a block without q and k, which reuses a map, does not have.
QK_SOCKETS = ('tap', 'bias', 'scores')


# An attention and the carry, to the output (B, W, H, N, d) and the next carry.
FastForm = Callable[[Attention, Carry], tuple[Tensor, Carry]]


@runtime_checkable
class HasFastForm(Protocol):
    """A module of the scores or map socket that can compute the whole attention without forming all maps."""

    def fast_form(self, inputs: Attention) -> FastForm | None:
        """The exact fast form of this attention; None where there is none, or it does not pay."""


@runtime_checkable
class WidensScores(Protocol):
    """A module of the scores socket whose logits are the plain ones of wider q and k, so that attention stays fused."""

    def widens(self, grid: TokenGrid) -> bool:
        """Whether it prefers that on this grid."""

    def widen(
        self, q: Tensor, k: Tensor, bias_Hyx: Tensor | None, grid: TokenGrid, carry: Carry
    ) -> tuple[Tensor, Tensor, Tensor | None, Carry]:
        """Wider q and k and a bias such that ``scale * q @ k^T + bias`` equals the logits, and the next carry."""


@runtime_checkable
class WeighsValues(Protocol):
    """A module of the map socket that says how its maps multiply the values."""

    def weigh(self, maps: Tensor, v_BWHNd: Tensor) -> tuple[Tensor, Tensor]:
        """The output ``(B, W, heads, N, d)``, and the value heads beyond the maps."""


@dataclass(frozen=True)
class BlockShape:
    """Heads and widths of one block, which a plug may change before the block is built.

    Args:
        head_dims: Width of one head, ``d``.
        map_heads: Heads that have q and k, and so an attention map. 0: the block reuses a map.
        value_heads: Heads that have v. Those beyond the maps attend uniformly. 0: the block has no attention.
        out_heads: Heads of width ``d`` that enter the projection.
        hidden_dims: Width inside the MLP. 0: the block has none.
        repeats: How many outputs of each head that has a map enter the projection, side by side.
    """

    head_dims: int
    map_heads: int
    value_heads: int
    out_heads: int
    hidden_dims: int
    repeats: int = 1

    @classmethod
    def stock(cls, embed_dims: int, num_heads: int, hidden_dims: int) -> 'BlockShape':
        """The host's own shape.

        Raises:
            ValueError: If the width is no multiple of the heads.
        """
        if embed_dims % num_heads:
            raise ValueError(f'embed_dims={embed_dims} is no multiple of num_heads={num_heads}')
        return cls(embed_dims // num_heads, num_heads, num_heads, num_heads, hidden_dims)

    @property
    def branches(self) -> tuple[str, ...]:
        """The branches the block has, keys of :data:`BRANCHES`."""
        sizes = {'attention': self.value_heads, 'MLP': self.hidden_dims}
        return tuple(branch for branch, size in sizes.items() if size)


@dataclass(frozen=True)
class LayerPlan:
    """What a plug may know of one block when its modules are built.

    Args:
        index: Block index through all stages.
        num_layers: Blocks of the backbone.
        embed_dims: Width of a token, ``D``.
        shape: Heads and widths of the block.
        grid: Token grid of its attention at the configured image size.
        stage: Stage of a hierarchical backbone, 0 elsewhere.
        num_stages: Stages of the backbone, 1 where it is columnar.
    """

    index: int
    num_layers: int
    embed_dims: int
    shape: BlockShape
    grid: TokenGrid
    stage: int = 0
    num_stages: int = 1

    @property
    def num_heads(self) -> int:
        """Heads that have an attention map, ``H``."""
        return self.shape.map_heads

    def width_at(self, socket: str) -> int:
        """Width of the tokens in a token socket."""
        return self.shape.hidden_dims if socket == 'mlp_mid' else self.embed_dims


class Plug:
    """One paper's change, as configured; it builds the modules but holds no parameters.

    Args:
        layers: Blocks that get the plug: ``'all'``, ``'upper'`` (the second half) or a list of block
            indices through all stages.

    Raises:
        ValueError: If ``layers`` is something else.
    """

    #: Name of the plug's sub-modules, so that its keys stay apart from the host's.
    name: str
    #: What is worth watching of what it learns: names of parameters, and their symbols in the paper.
    watched: Mapping[str, str] = {}
    #: Blocks are shaped in the order of this rank: who multiplies heads comes after who adds or removes them.
    shape_rank = 0

    def __init__(self, layers: str | Sequence[int] = 'all'):
        is_indices = isinstance(layers, Sequence) and not isinstance(layers, str)
        if layers not in ('all', 'upper') and not (is_indices and all(type(i) is int for i in layers)):
            raise ValueError(f"layers={layers!r}: expected 'all', 'upper' or a list of block indices")
        self.layers = layers

    def shape_block(self, shape: BlockShape, index: int, num_layers: int) -> BlockShape:
        """The shape block ``index`` is to be built with; asked for every block."""
        return shape

    def build(self, plans: Sequence[LayerPlan]) -> tuple[Sequence[Mapping[str, nn.Module]], Mapping[str, nn.Module]]:
        """The modules for the plug's blocks and those for the network, for plugs in which the two belong together."""
        return self.build_layers(plans), self.build_network(plans)

    def build_layers(self, plans: Sequence[LayerPlan]) -> Sequence[Mapping[str, nn.Module]]:
        """The modules for the plug's blocks, for plugs whose blocks depend on each other."""
        return [self.build_layer(plan) for plan in plans]

    def build_layer(self, plan: LayerPlan) -> Mapping[str, nn.Module]:
        """The modules for one of the plug's blocks, by socket.

        Raises:
            ValueError: If the block lacks what the plug needs.
        """
        return {}

    def build_network(self, plans: Sequence[LayerPlan]) -> Mapping[str, nn.Module]:
        """The modules for the network's sockets, by socket. ``plans`` are those of the plug's blocks."""
        return {}

    def learned_values(self, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """What is worth watching of the learned tensors of one block, or of the network.

        Args:
            tensors: Parameters by name below the plug, such as ``bias.gab_sigma``: of a model, or of a checkpoint.

        Returns:
            The values as they act, by the symbols of :attr:`watched`; with the socket, ``Lambda.mlp_mid``, where
            several sockets have one.
        """
        found = [(self.watched.get(name.rpartition('.')[2]), name.partition('.')[0], t) for name, t in tensors.items()]
        counts = Counter(symbol for symbol, *_ in found)
        return {
            symbol if counts[symbol] == 1 else f'{symbol}.{socket}': tensor.detach()
            for symbol, socket, tensor in found
            if symbol is not None
        }

    def describe(self) -> str:
        """The plug and the arguments in which it differs from its defaults, as one would write them."""
        defaults = {key: p.default for key, p in inspect.signature(type(self)).parameters.items() if key != 'layers'}
        changed = {key: value for key, value in vars(self).items() if key in defaults and value != defaults[key]}
        return f'{type(self).__name__}({", ".join(f"{key}={value!r}" for key, value in changed.items())})'

    def layer_indices(self, num_layers: int) -> list[int]:
        """The blocks that get the plug.

        Raises:
            ValueError: If an index is outside the backbone or named twice.
        """
        if self.layers == 'all':
            return list(range(num_layers))
        if self.layers == 'upper':
            return list(range(num_layers // 2, num_layers))
        outside = [i for i in self.layers if not 0 <= i < num_layers]
        if outside or len(set(self.layers)) < len(self.layers):
            raise ValueError(
                f'{type(self).__name__}: layers={list(self.layers)}: expected different block indices '
                f'from 0 to {num_layers - 1}'
            )
        return sorted(self.layers)
