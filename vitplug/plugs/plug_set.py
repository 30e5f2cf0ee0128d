"""All plugs of one backbone: what they make of its blocks, and the proof that they go together."""

from collections import Counter
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn

from ..attention.carry import Carry
from ..attention.fused import fused
from ..attention.grids import TokenGrid
from ..attention.inputs import Attention
from ..attention.intermediates import LayerRecord
from .plug import (
    BRANCHES,
    EXCLUSIVE_SOCKETS,
    QK_SOCKETS,
    BlockShape,
    FastForm,
    HasFastForm,
    LayerPlan,
    Plug,
    WeighsValues,
    WidensScores,
)


def _fused_form(inputs: Attention, carry: Carry) -> tuple[Tensor, Carry]:
    return fused(inputs), carry


class PlugPart(nn.ModuleDict):
    """The modules of one plug in one block, or in the network: socket -> module."""

    def __init__(self, plug: Plug, modules: Mapping[str, nn.Module]):
        super().__init__(modules)
        self.plug = plug


class PlugModules(nn.ModuleDict):
    """Plug modules, which start as their constructors leave them whatever a model's ``init_cfg`` says of its layers."""

    #: mmengine's mark of an initialised module: loaded weights are not drawn again.
    is_init = False

    def __init__(self, modules: Mapping[str, nn.Module] | None = None):
        super().__init__(modules)
        self._start: dict[str, Tensor] = {}

    def learned_values(self) -> dict[str, Tensor]:
        """What the plugs have learned that is worth watching: by name of the plug and symbol, such as ``gab.sigma``."""
        return {
            f'{name}.{symbol}': value
            for name, part in self.items()
            for symbol, value in part.plug.learned_values(dict(part.named_parameters())).items()
        }

    def keep_start(self) -> None:
        """Notes the values that the modules have now."""
        self._start = {name: value.detach().clone() for name, value in self.state_dict().items()}

    @torch.no_grad()
    def init_weights(self) -> None:
        """Gives the modules the noted values back.

        mmengine calls this after the ``init_cfg`` of everything around the plugs, which reaches their ``nn.Linear``,
        ``nn.BatchNorm2d`` and so on by class name.
        """
        values = self.state_dict()
        for name, start in self._start.items():
            values[name].copy_(start)
        self._start = {}
        self.is_init = True


class LayerPlugs(PlugModules):
    """The plug modules of one block: plug name -> socket -> module. Empty, it does nothing."""

    def fuses(self, grid: TokenGrid) -> bool:
        """Whether one fused call computes attention on this grid: nothing changes scores or maps, or q and k widen."""
        return not self.at('map') and (self.widens(grid) or not self.at('scores'))

    def fast_form(self, inputs: Attention, widened: bool) -> FastForm | None:
        """The exact fast form of an attention; None where its maps must be formed."""
        takers = self.at('map') + ([] if widened else self.at('scores'))
        if not takers:
            return _fused_form
        if len(takers) == 1 and isinstance(takers[0], HasFastForm):
            return takers[0].fast_form(inputs)
        return None

    @property
    def keeps_windows_apart(self) -> bool:
        """Whether some windows may go through attention without the others."""
        return not any(self.at(socket) for socket in ('tap', *EXCLUSIVE_SOCKETS))

    def widens(self, grid: TokenGrid) -> bool:
        """Whether the module that changes the scores prefers to widen q and k on this grid."""
        return any(isinstance(module, WidensScores) and module.widens(grid) for module in self.at('scores'))

    def widen(self, q, k, bias_Hyx, grid: TokenGrid, carry: Carry) -> tuple[Tensor, Tensor, Tensor | None, Carry]:
        """Wider q and k and a bias such that ``scale * q @ k^T + bias`` equals the logits, and the next carry."""
        (module,) = self.at('scores')
        return module.widen(q, k, bias_Hyx, grid, carry)

    def at(self, socket: str) -> list[nn.Module]:
        """The modules in one socket."""
        return [part[socket] for part in self.values() if socket in part]

    def tokens(self, socket: str, x_BND: Tensor, valid_BN: Tensor | None = None) -> Tensor:
        """What the plugs in a token socket make of a branch's tokens."""
        for module in self.at(socket):
            x_BND = module(x_BND, valid_BN)
        return x_BND

    def tap(
        self, q: Tensor, k: Tensor, v: Tensor, grid: TokenGrid, carry: Carry, valid_BWN: Tensor | None = None
    ) -> Carry:
        """Lets plugs keep q, k and v for later."""
        for module in self.at('tap'):
            carry = module(q, k, v, grid, carry, valid_BWN)
        return carry

    def add_bias(self, bias_Hyx: Tensor | None, grid: TokenGrid) -> Tensor | None:
        """The host's position bias plus those of the plugs, one value for every offset."""
        own = [] if bias_Hyx is None else [bias_Hyx]
        tables = own + [module(grid) for module in self.at('bias')]
        return sum(tables[1:], start=tables[0]) if tables else None

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

    def weigh(self, maps: Tensor, v_BWHNd: Tensor) -> tuple[Tensor, Tensor]:
        """The maps times the values, and the value heads beyond the maps."""
        for module in self.at('map'):
            if isinstance(module, WeighsValues):
                return module.weigh(maps, v_BWHNd)
        heads = maps.shape[2]
        return maps @ v_BWHNd[:, :, :heads], v_BWHNd[:, :, heads:]


class NetworkPlugs(PlugModules):
    """The plug modules of the whole network: plug name -> socket -> module."""

    def start(self) -> Carry:
        """The carry of a new forward."""
        carry: Carry = {}
        for part in self.values():
            if 'start' in part:
                carry = part['start'](carry)
        return carry

    def finish(self, x_BND: Tensor, grid: TokenGrid, carry: Carry, record: LayerRecord | None) -> Tensor:
        """What the plugs make of the last block's tokens."""
        for part in self.values():
            if 'finish' in part:
                x_BND = part['finish'](x_BND, grid, carry, record)
        return x_BND


class PlugSet:
    """The plugs of one backbone.

    Args:
        plugs: The plugs, in any order.
        num_layers: Blocks of the backbone.

    Raises:
        ValueError: If a plug occurs twice or wants a block that is not there.
    """

    def __init__(self, plugs: Sequence[Plug], num_layers: int):
        twice = [name for name, count in Counter(type(plug).__name__ for plug in plugs).items() if count > 1]
        if twice:
            raise ValueError(f'plugs: {twice} occur more than once; give each plug once, with all its settings')
        self.num_layers = num_layers
        # Sorted, so that two plugs in one token socket act in the same order however a config lists them.
        self.indices = {plug: plug.layer_indices(num_layers) for plug in sorted(plugs, key=lambda plug: plug.name)}

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

    def build(self, plans: Sequence[LayerPlan]) -> tuple[NetworkPlugs, list[LayerPlugs]]:
        """The plug modules of the network and of every block.

        Raises:
            ValueError: If two plugs take one exclusive socket, or a plug needs what the backbone lacks.
        """
        self.plans = plans
        network, layers = NetworkPlugs(), [LayerPlugs() for _ in plans]
        for plug, indices in self.indices.items():
            by_layer, of_network = plug.build([plans[index] for index in indices])
            for index, built in zip(indices, by_layer, strict=True):
                _insert(layers[index], plug, built)
            _insert(network, plug, of_network)
        for plan, layer in zip(plans, layers, strict=True):
            _check_together(plan, layer)
        for modules in (network, *layers):
            modules.keep_start()
        return network, layers

    def summarize(self, layers: Sequence[LayerPlugs]) -> str:
        """One line: which plugs, on which blocks, and whether attention stays fused at the configured size."""
        if not self.indices:
            return 'plugs: none; attention: fused'
        parts = [f'{plug.describe()} on blocks {_ranges(indices)}' for plug, indices in self.indices.items()]
        plain = [plan.index for plan in self.plans if not layers[plan.index].fuses(plan.grid)]
        if not plain:
            return f'plugs: {"; ".join(parts)}; attention: fused'
        takers = {name for i in plain for name, part in layers[i].items() for s in EXCLUSIVE_SOCKETS if s in part}
        why = f'fused but on blocks {_ranges(plain)} ({", ".join(sorted(takers))} changes scores or maps)'
        return f'plugs: {"; ".join(parts)}; attention: {why}'


def _check_together(plan: LayerPlan, layer: LayerPlugs) -> None:
    for branch in BRANCHES.keys() - plan.shape.branches:
        needy = [name for name, part in layer.items() if not part.keys().isdisjoint(BRANCHES[branch])]
        if needy:
            raise ValueError(_without_branch(needy, branch, plan.index))
    for socket in EXCLUSIVE_SOCKETS:
        owners = [name for name, part in layer.items() if socket in part]
        if len(owners) > 1:
            raise ValueError(f'plugs: {owners} both take the {socket!r} socket of block {plan.index}; keep one of them')
    needy = [name for name, part in layer.items() if not part.keys().isdisjoint(QK_SOCKETS)]
    if needy and not plan.num_heads:
        raise ValueError(
            f'plugs: {needy} need q and k of block {plan.index}, which has none because it reuses the map of an '
            'earlier block; take the block out of their layers, or let it have its own map (share=0)'
        )


def _without_branch(names: Sequence[str], branch: str, index: int) -> str:
    change = f'plugs: {names} change the {branch} branch of block {index}, which has none'
    return f'{change}; take the block out of their layers'


def _insert(modules: PlugModules, plug: Plug, built: Mapping[str, nn.Module]) -> None:
    if built:
        modules[plug.name] = PlugPart(plug, built)


def _ranges(indices: Sequence[int]) -> str:
    """``[0, 1, 2, 5]`` as ``0-2, 5``."""
    runs: list[list[int]] = []
    for i in indices:
        if runs and i == runs[-1][-1] + 1:
            runs[-1].append(i)
        else:
            runs.append([i])
    return ', '.join(f'{run[0]}-{run[-1]}' if len(run) > 1 else str(run[0]) for run in runs) or 'none'
