"""A plug: the change one paper makes to a transformer, for any backbone.

A backbone describes its blocks (:class:`BlockShape` before they are built, :class:`LayerPlan` after) and declares the
sockets of each; a plug names the sockets it takes (:mod:`~vitplug.plugs.sockets`) and builds the modules for them.
Neither knows the other.

Its modules start as their constructors leave them: a model's ``init_cfg``, which reaches layers by class name, does not
change them.
"""

import inspect
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor, nn

from ..attention.grids import TokenGrid
from ..attention.site import Site
from .sockets import BLOCK_SOCKETS

#: What plugs record besides the intermediates of every block, and what it is.
INTERMEDIATES: dict[str, str] = {}


@dataclass(frozen=True)
class BlockShape:
    """Heads and widths of one block, which a plug may change before the block is built.

    Args:
        head_dims: Width of one head, ``d``.
        map_heads: Heads that have q and k, and so an attention map. 0: the block reuses a map.
        value_heads: Heads that have v. Heads without a map attend uniformly. 0: the block has no attention.
        out_heads: Heads of width ``d`` that enter the projection.
        hidden_dims: Width inside the MLP. 0: the block has no MLP.
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
    """The properties of one block that a plug may use to build its modules.

    Args:
        index: Block index through all stages.
        num_layers: Blocks of the backbone.
        embed_dims: Width of a token, ``D``.
        shape: Heads and widths of the block.
        site: Where its tokens are at the configured image size.
        stage: Stage of a hierarchical backbone, 0 elsewhere.
        num_stages: Stages of the backbone, 1 where it is columnar.
        sockets: The sockets that the host offers in this block.
        prefix_names: Names of the host's own tokens before those of the grid, such as ``'cls_token'``.
        widths: Widths of the tokens in sockets where they are others, as in a block that changes the width.
        has_query_tokens: Whether the tokens that enter the attention branch are those of its queries.
        has_cosines: Whether scores are cosines of q and k times a learned factor, which q has already.
    """

    index: int
    num_layers: int
    embed_dims: int
    shape: BlockShape
    site: Site
    stage: int = 0
    num_stages: int = 1
    sockets: tuple[str, ...] = BLOCK_SOCKETS
    prefix_names: tuple[str, ...] = ()
    widths: Mapping[str, int] = field(default_factory=dict)
    has_query_tokens: bool = True
    has_cosines: bool = False

    @property
    def grid(self) -> TokenGrid:
        """Grid of the queries of one window at the configured image size."""
        return self.site.layout.grid

    @property
    def num_heads(self) -> int:
        """Heads that have an attention map, ``H``."""
        return self.shape.map_heads

    def width_at(self, socket: str) -> int:
        """Width of the tokens in a token socket, or of those that the ``heads`` socket gets."""
        stock = self.shape.hidden_dims if socket == 'mlp_mid' else self.embed_dims
        return self.widths.get(socket, stock)


class Plug:
    """One paper's change, as configured; it builds the modules but holds no parameters.

    Args:
        layers: Blocks that get the plug: ``'all'``, ``'upper'`` (the second half) or a list of block
            indices through all stages.

    Raises:
        ValueError: If ``layers`` is something else.
    """

    #: Name of the plug's sub-modules, so that its keys stay apart from the host's, and of its entries in the carry.
    name: str
    #: What a text of plugs calls it, where that is not its name with hyphens.
    short_name = ''
    #: Learned parameters worth watching: names, and their symbols in the paper.
    watched: Mapping[str, str] = {}
    #: Learned tables and tokens that take no weight decay, by name; scalars and vectors outside of layers never do.
    undecayed: tuple[str, ...] = ()
    #: Plugs in one socket act in the order of this rank, those of one rank in that of their names.
    rank = 0
    #: Maps ``(B, 1, H, N, N)`` of the last block's tokens that its module in the ``finish`` socket records, by name.
    intermediates: Mapping[str, str] = {}
    #: Blocks are shaped in the order of this rank: plugs that multiply heads come after plugs that add or remove them.
    shape_rank = 0
    #: Tokens that the plug adds before the first block, by a module in the network's ``prefix`` socket.
    num_prefix = 0
    #: Whether these stay in the host's output of all tokens (``out_type='raw'``); no other output has them.
    keeps_prefix = False
    #: Whether a host's outputs are at first what they are without the plug. The summary names plugs that change them.
    identity_start = False

    def __init_subclass__(cls) -> None:
        INTERMEDIATES.update(cls.intermediates)

    def __init__(self, layers: str | Sequence[int] = 'all'):
        is_indices = isinstance(layers, Sequence) and not isinstance(layers, str)
        if layers not in ('all', 'upper') and not (is_indices and all(type(i) is int for i in layers)):
            raise ValueError(f"layers={layers!r}: expected 'all', 'upper' or a list of block indices")
        self.layers = layers

    def shape_block(self, shape: BlockShape, index: int, num_layers: int) -> BlockShape:
        """The shape block ``index`` is to be built with; asked for every block."""
        return shape

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
        """The modules for the network's sockets, by socket. ``plans`` describe the plug's blocks."""
        return {}

    def learned_values(self, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """The learned values worth watching, of one block or of the network.

        Args:
            tensors: Parameters by name below the plug, such as ``bias.gab_sigma``: of a model, or of a checkpoint.

        Returns:
            The values as they act, by the symbols of :attr:`watched`; with the socket, ``Lambda.mlp_mid``, where
            several sockets have one.
        """
        named = [(self.watched.get(name.rpartition('.')[2]), name.partition('.')[0], t) for name, t in tensors.items()]
        counts = Counter(symbol for symbol, *_ in named)
        return {
            symbol if counts[symbol] == 1 else f'{symbol}.{socket}': tensor.detach()
            for symbol, socket, tensor in named
            if symbol is not None
        }

    def settings(self) -> dict[str, Any]:
        """The arguments in which the plug differs from its defaults."""
        defaults = {key: parameter.default for key, parameter in inspect.signature(type(self)).parameters.items()}
        return {key: value for key, value in vars(self).items() if key in defaults and value != defaults[key]}

    def describe(self) -> str:
        """The plug and the arguments in which it differs from its defaults, without its blocks, as one writes them."""
        changed = [f'{key}={value!r}' for key, value in self.settings().items() if key != 'layers']
        return f'{type(self).__name__}({", ".join(changed)})'

    def layer_indices(self, num_layers: int) -> list[int]:
        """The blocks that get the plug.

        Raises:
            ValueError: If an index is outside the backbone or named twice.
        """
        if isinstance(self.layers, str):
            return list(range(num_layers // 2 if self.layers == 'upper' else 0, num_layers))
        outside = [i for i in self.layers if not 0 <= i < num_layers]
        if outside or len(set(self.layers)) < len(self.layers):
            raise ValueError(
                f'{type(self).__name__}: layers={list(self.layers)}: expected different block indices '
                f'from 0 to {num_layers - 1}'
            )
        return sorted(self.layers)
