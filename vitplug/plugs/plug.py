"""What a plug is: the change one paper makes to a transformer, offered to any backbone.

A backbone describes its blocks (:class:`LayerPlan`) and owns sockets; a plug names the sockets it
takes and brings the modules for them. Neither knows the other::

    bias        position bias added to the scores             module(grid, like) -> (H or 1, N, N)
    scores      scores before the softmax (one plug at most)  module(scores, bias, grid, carry) -> (logits, carry)
    map         attention maps after it (one plug at most)    module(probs, mask, grid, carry) -> (maps, carry)
    msa         tokens after the attention's projection       module(tokens) -> tokens
    mlp_front   tokens before the first layer of the MLP      module(tokens) -> tokens
    mlp_mid     hidden tokens, after the activation           module(tokens) -> tokens
    mlp_end     tokens after the last layer of the MLP        module(tokens) -> tokens
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from torch import Tensor, nn

from ..attention.carry import Carry
from ..attention.core import TokenGrid

TOKEN_SOCKETS = ('msa', 'mlp_front', 'mlp_mid', 'mlp_end')
# Only one plug can say what the logits, or the maps, are.
EXCLUSIVE_SOCKETS = ('scores', 'map')


@dataclass(frozen=True)
class LayerPlan:
    """What a plug may know of one block when it is built.

    Args:
        index: Block index through all stages.
        num_layers: Blocks of the backbone.
        embed_dims: Width of a token.
        hidden_dims: Width inside the MLP.
        num_heads: Attention heads.
        grid: Token grid of one attention at the configured image size.
        stage: Stage of a hierarchical backbone, 0 elsewhere.
    """

    index: int
    num_layers: int
    embed_dims: int
    hidden_dims: int
    num_heads: int
    grid: TokenGrid
    stage: int = 0

    def width_at(self, socket: str) -> int:
        """Width of the tokens in a token socket."""
        return self.hidden_dims if socket == 'mlp_mid' else self.embed_dims


class Plug:
    """One paper's change, as configured; it builds the modules but holds no parameters.

    Args:
        layers: Blocks that get the plug: ``'all'``, ``'upper'`` (the second half) or a list of block
            indices through all stages.

    Raises:
        ValueError: If ``layers`` is something else.
    """

    #: Name of the plug's sub-module in every layer, so that its keys stay apart from the host's.
    name: str

    def __init__(self, layers: str | Sequence[int] = 'all'):
        is_indices = isinstance(layers, Sequence) and not isinstance(layers, str)
        if layers not in ('all', 'upper') and not (is_indices and all(type(i) is int for i in layers)):
            raise ValueError(f"layers={layers!r}: expected 'all', 'upper' or a list of block indices")
        self.layers = layers

    def build_layer(self, plan: LayerPlan) -> Mapping[str, nn.Module]:
        """The modules for one layer, by socket."""
        raise NotImplementedError

    def describe(self) -> str:
        """The plug and its settings, as one would write them."""
        settings = ', '.join(f'{key}={value!r}' for key, value in vars(self).items() if key != 'layers')
        return f'{type(self).__name__}({settings})'

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


class LayerPlugs(nn.ModuleDict):
    """The plug modules of one layer: plug name -> socket -> module. Empty, it does nothing."""

    @property
    def fusable(self) -> bool:
        """Whether one fused call may compute attention: nothing changes scores or maps."""
        return not any(socket in part for part in self.values() for socket in EXCLUSIVE_SOCKETS)

    def at(self, socket: str) -> list[nn.Module]:
        """The modules in one socket."""
        return [part[socket] for part in self.values() if socket in part]

    def tokens(self, socket: str, x_BND: Tensor) -> Tensor:
        """What the plugs in a token socket make of a branch's tokens."""
        for module in self.at(socket):
            x_BND = module(x_BND)
        return x_BND

    def add_bias(self, bias_HNN: Tensor | None, grid: TokenGrid, like: Tensor) -> Tensor | None:
        """The host's position bias plus those of the plugs."""
        for module in self.at('bias'):
            extra_HNN = module(grid, like)
            bias_HNN = extra_HNN if bias_HNN is None else bias_HNN + extra_HNN
        return bias_HNN

    def blend_scores(self, scores, bias_HNN, grid: TokenGrid, carry: Carry) -> tuple[Tensor, Carry]:
        """Logits from scores and bias."""
        for module in self.at('scores'):
            return module(scores, bias_HNN, grid, carry)
        return (scores if bias_HNN is None else scores + bias_HNN), carry

    def refine_map(self, probs, mask_WNN, grid: TokenGrid, carry: Carry) -> tuple[Tensor, Carry]:
        """The maps that multiply v."""
        for module in self.at('map'):
            return module(probs, mask_WNN, grid, carry)
        return probs, carry


def plug_layers(plugs: Sequence[Plug], plans: Sequence[LayerPlan]) -> list[LayerPlugs]:
    """Builds the plug modules of every layer and proves that the plugs go together.

    Args:
        plugs: The plugs, in any order.
        plans: The backbone's blocks.

    Returns:
        One (possibly empty) :class:`LayerPlugs` for every block.

    Raises:
        ValueError: If a plug occurs twice, two plugs take one exclusive socket, or a plug needs what
            the backbone lacks.
    """
    twice = [name for name, count in Counter(type(plug).__name__ for plug in plugs).items() if count > 1]
    if twice:
        raise ValueError(f'plugs: {twice} occur more than once; give each plug once, with all its settings')
    layers = [LayerPlugs() for _ in plans]
    for plug in plugs:
        for index in plug.layer_indices(len(plans)):
            layers[index][plug.name] = nn.ModuleDict(plug.build_layer(plans[index]))
    for index, layer in enumerate(layers):
        for socket in EXCLUSIVE_SOCKETS:
            owners = [name for name, part in layer.items() if socket in part]
            if len(owners) > 1:
                raise ValueError(f'plugs: {owners} both take the {socket!r} socket of block {index}; keep one of them')
    return layers


def summarize(plugs: Sequence[Plug], layers: Sequence[LayerPlugs]) -> str:
    """One line: which plugs, on which blocks, and whether attention stays fused."""
    if not plugs:
        return 'plugs: none; attention: fused'
    parts = [f'{plug.describe()} on blocks {_ranges(plug.layer_indices(len(layers)))}' for plug in plugs]
    plain = [i for i, layer in enumerate(layers) if not layer.fusable]
    takers = sorted({name for i in plain for name, part in layers[i].items() for s in EXCLUSIVE_SOCKETS if s in part})
    attention = f'plain on blocks {_ranges(plain)} ({", ".join(takers)} changes scores or maps)' if plain else 'fused'
    return f'plugs: {"; ".join(parts)}; attention: {attention}'


def _ranges(indices: Sequence[int]) -> str:
    """``[0, 1, 2, 5]`` as ``0-2, 5``."""
    runs: list[list[int]] = []
    for i in indices:
        if runs and i == runs[-1][-1] + 1:
            runs[-1].append(i)
        else:
            runs.append([i])
    return ', '.join(f'{run[0]}-{run[-1]}' if len(run) > 1 else str(run[0]) for run in runs) or 'none'
