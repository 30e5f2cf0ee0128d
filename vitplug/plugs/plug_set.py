"""All plugs of one backbone: the modules they add to its blocks, and the check that they go together."""

from collections.abc import Callable, Collection, ItemsView, Mapping, Sequence, ValuesView
from itertools import groupby
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from ..attention.carry import Carry
from ..attention.intermediates import LayerRecord
from ..attention.site import Site
from .plug import BlockShape, LayerPlan, Plug
from .sockets import (
    BRANCHES,
    EXCLUSIVE_SOCKETS,
    NETWORK_SOCKETS,
    NOTHING,
    PAIR_SOCKETS,
    QK_SOCKETS,
    HasFastForm,
    Sockets,
    WeighsValues,
)

# Of a plug in the summary.
CHANGES = ' (changes pretrained outputs from the start)'
# Module of the functions with which an `init_cfg` goes over all layers.
INITIALISERS = 'mmengine.model.weight_init'


def is_plug(key: str) -> bool:
    """Whether a tensor belongs to a plug, by its name in a state dict."""
    return 'plugs' in key.split('.')


class PlugPart(nn.ModuleDict):
    """The modules of one plug in one block, or in the network: socket -> module."""

    def __init__(self, plug: Plug, modules: Mapping[str, nn.Module]):
        super().__init__(modules)
        self.plug = plug


class PlugModules(nn.ModuleDict):
    """Plug modules. They start as their constructors leave them, whatever the model's ``init_cfg`` says."""

    if TYPE_CHECKING:

        def values(self) -> ValuesView[PlugPart]: ...

        def items(self) -> ItemsView[str, PlugPart]: ...

    def apply(self, fn: Callable[[nn.Module], None]) -> 'PlugModules':
        """As torch's, but for mmengine's initialisers, which reach layers by class name."""
        return self if fn.__module__ == INITIALISERS else super().apply(fn)

    def at(self, socket: str) -> list[nn.Module]:
        """The modules in one socket."""
        parts: Any = self._modules
        return [part._modules[socket] for part in parts.values() if socket in part._modules]

    def learned_values(self) -> dict[str, Tensor]:
        """The learned values worth watching, by name of the plug and symbol, such as ``gab.sigma``."""
        return {
            f'{name}.{symbol}': value
            for name, part in self.items()
            for symbol, value in part.plug.learned_values(dict(part.named_parameters())).items()
        }


class LayerPlugs(PlugModules):
    """The plug modules of one block: plug name -> socket -> module. Empty, it does nothing."""

    def bind(self) -> Sockets:
        """The modules by socket.

        They are found again where one was put in, taken out or replaced (edits, PEFT, quantisers, a replica of
        DataParallel): the comparison takes a microsecond a block in each forward.
        """
        parts: Any = self._modules
        if not parts:
            return NOTHING
        if torch.compiler.is_compiling():
            return Sockets([part._modules for part in parts.values()])
        present: list[Any] = []
        for part in parts.values():
            present += part._modules.values()
        before, sockets = self.__dict__.get('_bound', (None, NOTHING))
        if before != present:
            sockets = Sockets([part._modules for part in parts.values()])
            self.__dict__['_bound'] = present, sockets
        return sockets

    def __getstate__(self) -> dict:
        return {key: value for key, value in self.__dict__.items() if key != '_bound'}


#: The plugs of a block, as they are or bound: what takes one takes the other.
Bindable = LayerPlugs | Sockets


class NetworkPlugs(PlugModules):
    """The plug modules of the whole network: plug name -> socket -> module."""

    def start(self) -> Carry:
        """The carry of a new forward."""
        carry: Carry = {}
        for module in self.at('start') if self._modules else ():
            carry = module(carry)
        return carry

    def add_prefix(self, x_BND: Tensor, num_prefix: int) -> Tensor:
        """Tokens with those of the prefix socket after the host's ``num_prefix`` own; kept tokens come first."""
        if not self._modules:
            return x_BND
        for part in sorted((p for p in self.values() if 'prefix' in p), key=lambda part: not part.plug.keeps_prefix):
            x_BND = part['prefix'](x_BND, num_prefix)
            num_prefix += part.plug.num_prefix
        return x_BND

    def drop_prefix(self, x_BND: Tensor, num_prefix: int) -> Tensor:
        """Tokens without those of :meth:`add_prefix` that are not kept."""
        if not self._modules:
            return x_BND
        adding = [part.plug for part in self.values() if 'prefix' in part]
        first = num_prefix + sum(plug.num_prefix for plug in adding if plug.keeps_prefix)
        last = num_prefix + sum(plug.num_prefix for plug in adding)
        return x_BND if first == last else torch.cat((x_BND[:, :first], x_BND[:, last:]), dim=1)

    def finish(self, x_BND: Tensor, site: Site, carry: Carry, record: LayerRecord | None) -> Tensor:
        """Tokens of the last block after the finish socket."""
        for module in self.at('finish') if self._modules else ():
            x_BND = module(x_BND, site, carry, record)
        return x_BND

    def normed(self, x_BND: Tensor) -> Tensor:
        """Tokens after the final norm, ``(B, N, D)``, after the normed socket."""
        for module in self.at('normed') if self._modules else ():
            x_BND = module(x_BND)
        return x_BND


class PlugSet:
    """The plugs of one backbone.

    Raises:
        ValueError: If a plug occurs twice or wants a block that is not there.
    """

    def __init__(self, plugs: Sequence[Plug], num_layers: int):
        self.num_layers = num_layers
        names = [plug.name for plug in plugs]
        if twice := sorted({type(plug).__name__ for plug in plugs if names.count(plug.name) > 1}):
            raise ValueError(f'plugs: {twice[0]} occurs more than once; give it once, with all its settings')
        # Sorted, so that two plugs in one socket act in the same order however a config lists them.
        self.indices = {
            plug: plug.layer_indices(num_layers) for plug in sorted(plugs, key=lambda plug: (plug.rank, plug.name))
        }
        #: Tokens that the plugs add before the first block.
        self.num_prefix = sum(plug.num_prefix for plug in self.indices)

    def shape_block(self, shape: BlockShape, index: int) -> BlockShape:
        """The shape block ``index`` is to be built with.

        Raises:
            ValueError: If a plug would change a branch that the block lacks.
        """
        for plug in sorted(self.indices, key=lambda plug: plug.shape_rank):
            wanted = plug.shape_block(shape, index, self.num_layers)
            added = [branch for branch in wanted.branches if branch not in shape.branches]
            if added:
                raise ValueError(_without_branch([plug.name], added[0], index))
            shape = wanted
        return shape

    def build(
        self, plans: Sequence[LayerPlan], network_sockets: Collection[str] = NETWORK_SOCKETS
    ) -> tuple[NetworkPlugs, list[LayerPlugs]]:
        """The plug modules of the network and of every block; a plan has the sockets that the host offers there.

        Raises:
            ValueError: If two plugs take one exclusive socket, the host does not offer a socket, or a plug's
                ``num_prefix`` contradicts its sockets.
        """
        self.plans = plans
        network, layers = NetworkPlugs(), [LayerPlugs() for _ in plans]
        for plug, indices in self.indices.items():
            own = [plans[index] for index in indices]
            for index, built in zip(indices, plug.build_layers(own), strict=True):
                _insert(layers[index], plug, built)
            of_network = plug.build_network(own)
            _insert(network, plug, of_network)
            has_modules = of_network or any(plug.name in layer for layer in layers)
            if indices and not has_modules and type(plug).shape_block is Plug.shape_block:
                raise ValueError(f'plugs: {type(plug).__name__} has no module in any block, and so changes nothing')
            _check_prefix(plug, of_network)
        _check_offered(network, network_sockets, 'the network')
        for plan, layer in zip(plans, layers, strict=True):
            _check_block(plan, layer, plans)
        return network, layers

    def summarize(self, layers: Sequence[LayerPlugs]) -> str:
        """One line: which plugs, on which blocks, which of them change the outputs of pretrained weights before any
        training, and whether attention stays fused at the configured size."""
        parts = [
            f'{plug.describe()} on blocks {_ranges(indices)}{"" if plug.identity_start else CHANGES}'
            for plug, indices in self.indices.items()
        ]
        plugs = '; '.join(parts) or 'none'
        if not any('attention' in plan.shape.branches for plan in self.plans):
            return f'plugs: {plugs}; no attention'
        return f'plugs: {plugs}; attention: {self._forms(layers)}'

    def _forms(self, layers: Sequence[LayerPlugs]) -> str:
        """How attention is computed, and where maps are formed."""
        plain = [plan.index for plan in self.plans if layers[plan.index].bind().needs_maps(plan.site)]
        if not plain:
            return 'fused'
        takers = {name for i in plain for name in _takers(layers[i], PAIR_SOCKETS)}
        alone = [layers[i].bind().pairs for i in plain]
        has_fast_form = all(len(modules) == 1 and isinstance(modules[0], HasFastForm) for modules in alone)
        what = 'has an exact fast form, maps where it does not pay' if has_fast_form else 'changes scores or maps'
        return f'fused but on blocks {_ranges(plain)} ({", ".join(sorted(takers))} {what})'


def _check_prefix(plug: Plug, of_network: Mapping[str, nn.Module]) -> None:
    if (plug.num_prefix > 0) != ('prefix' in of_network):
        raise ValueError(
            f'plugs: {plug.name} has num_prefix={plug.num_prefix} and the sockets {list(of_network)} of the network: '
            "num_prefix must be the number of tokens that its module in the socket 'prefix' adds"
        )


def _check_block(plan: LayerPlan, layer: LayerPlugs, plans: Sequence[LayerPlan]) -> None:
    """Checks that the plugs of a block go together, and with the block."""
    _check_offered(layer, plan.sockets, f'block {plan.index}', plans)
    for branch in BRANCHES.keys() - plan.shape.branches:
        if needy := _takers(layer, BRANCHES[branch]):
            raise ValueError(_without_branch(needy, branch, plan.index))
    for socket in EXCLUSIVE_SOCKETS:
        if len(owners := _takers(layer, [socket])) > 1:
            raise ValueError(f'plugs: {owners} both take the {socket!r} socket of block {plan.index}; keep one of them')
    needy = [name for name, part in layer.items() if 'heads' in part and getattr(part['heads'], 'needs_tokens', True)]
    if needy and not plan.has_query_tokens:
        others = [other.index for other in plans if other.has_query_tokens]
        raise ValueError(
            f'plugs: {needy} need the tokens of the queries in the socket heads, which block {plan.index} pools; '
            f'layers={others} are the blocks that do not'
        )
    changing = _takers(layer, ['map'])
    reusing = _takers(layer, QK_SOCKETS) or (changing if len(changing) > 1 else [])
    if reusing and not plan.num_heads:
        raise ValueError(
            f'plugs: {reusing} need a map of block {plan.index} itself, which has neither q nor k as it reuses that of '
            'an earlier block; take the block out of their layers, or let it have its own map (share=0)'
        )
    weighing = [name for name, part in layer.items() if 'map' in part and isinstance(part['map'], WeighsValues)]
    if weighing and changing[-1] != weighing[0]:
        raise ValueError(
            f'plugs: {weighing[0]} makes several outputs of a map, and {changing} change the maps of block '
            f'{plan.index} in this order: expected {weighing[0]} as the last; keep one of them, or raise its rank'
        )
    extra, placed = _takers(layer, ['extra_keys']), _takers(layer, ['scores', 'logits', 'map'])
    if extra and placed:
        raise ValueError(
            f'plugs: {extra} add keys that belong to no token to block {plan.index}, where {placed} need a place of '
            'every key; take one of them, or give them layers=[...] without common blocks'
        )


def _takers(modules: PlugModules, sockets: Collection[str]) -> list[str]:
    """Names of the plugs that take any of some sockets."""
    return [name for name, part in modules.items() if not part.keys().isdisjoint(sockets)]


def _check_offered(modules: PlugModules, offered: Collection[str], where: str, plans: Sequence[LayerPlan] = ()) -> None:
    """Checks that plugs take sockets that the host offers; ``plans`` are the blocks to take instead."""
    for name, part in modules.items():
        for socket in part.keys() - set(offered):
            others = [plan.index for plan in plans if part.keys() <= set(plan.sockets)]
            raise ValueError(
                f'plugs: {name} takes the socket {socket!r}, which {where} does not offer; it offers {list(offered)}'
                + (f'; layers={others} are the blocks that do' if others else '')
            )


def _without_branch(names: Sequence[str], branch: str, index: int) -> str:
    change = f'plugs: {names} change the {branch} branch of block {index}, which has none'
    return f'{change}; take the block out of their layers'


def _insert(modules: PlugModules, plug: Plug, built: Mapping[str, nn.Module]) -> None:
    if built is None:
        raise ValueError(f'plugs: {type(plug).__name__} has built None, not modules by socket; is a `return` missing?')
    if built:
        modules[plug.name] = PlugPart(plug, built)


def _ranges(indices: Sequence[int]) -> str:
    """``[0, 1, 2, 5]`` as ``0-2, 5``."""
    # In a run of numbers without gaps, number minus place is one and the same.
    runs = [[i for _, i in run] for _, run in groupby(enumerate(indices), lambda placed: placed[1] - placed[0])]
    return ', '.join(f'{run[0]}-{run[-1]}' if len(run) > 1 else str(run[0]) for run in runs) or 'none'
