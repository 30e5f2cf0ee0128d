"""The layers of a network without sockets, such as ResNet: their outputs, and nothing else."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from torch import Tensor, nn

from vitplug.attention import GlobalLayout, Layout, Site
from vitplug.hosting import PixelGrid


class NamedLayers:
    """A network whose blocks are the outermost modules in its sequences and lists that occur several times.

    Maps ``(B, C, H, W)`` are recorded as tokens ``(B, H * W, C)``. In mmpretrain's ResNet-50 these are its 16
    bottlenecks. It has the methods of :class:`vitplug.hosting.PluggedModel` that measures of outputs call. With fewer
    than two such modules, it raises a ValueError.
    """

    prefix_names = ()

    def __init__(self, network: nn.Module):
        self.network = network
        found = list(_members(network))
        kinds = Counter(map(type, found))
        self.blocks = [module for module in found if kinds[type(module)] > 1]
        if len(self.blocks) < 2:
            raise ValueError(f'{type(network).__name__} has no two blocks of one kind, whose outputs could be compared')
        #: Tokens before those of the map, as mmpretrain's backbones count them.
        self.num_prefix = getattr(network, 'num_extra_tokens', 0)
        self._layouts: dict[int, GlobalLayout] = {}

    def plugged_blocks(self) -> list[nn.Module]:
        """The blocks in order."""
        return self.blocks

    def learned_values(self) -> dict:
        """None, without plugs."""
        return {}

    def place_maps(self, index: int, image_size: tuple[int, int], name: str = 'probs') -> tuple:
        """Where the tokens of a block's last output lie, as :meth:`vitplug.hosting.PluggedModel.place_maps`."""
        layout = self._layouts[index]
        return ((layout, PixelGrid(layout.hw)),) * 2

    def forward_intermediates(
        self, images: Tensor, names: Iterable[str], reduce: Callable[[str, Tensor, Site], Any]
    ) -> tuple[Any, dict[str, dict[int, Any]]]:
        """The output of the network, and what ``reduce`` kept of the blocks' outputs."""
        kept: dict[int, Any] = {}

        def keep(index: int, output: Any) -> None:
            tokens_BND, self._layouts[index] = self._tokens(output)
            if 'block' in names:
                kept[index] = reduce('block', tokens_BND, Site(self._layouts[index], index=index))

        hooks = [
            block.register_forward_hook(lambda _, __, output, index=index: keep(index, output))
            for index, block in enumerate(self.blocks)
        ]
        try:
            output = self.network(images)
        finally:
            for hook in hooks:
                hook.remove()
        return output, {'block': kept} if kept else {}

    def _tokens(self, output: Any) -> tuple[Tensor, Layout]:
        tensor = output[0] if isinstance(output, (tuple, list)) and output else output
        if isinstance(tensor, Tensor) and tensor.ndim == 4:
            return tensor.flatten(2).mT, GlobalLayout(*tensor.shape[2:])
        if isinstance(tensor, Tensor) and tensor.ndim == 3:
            return tensor, GlobalLayout(1, tensor.shape[1] - self.num_prefix, self.num_prefix)
        what = f'shape {tuple(tensor.shape)}' if isinstance(tensor, Tensor) else type(tensor).__name__
        raise ValueError(f'{type(self.network).__name__}: a block gives {what}: expected (B, N, D) or (B, C, H, W)')


def _members(module: nn.Module) -> Iterator[nn.Module]:
    """The outermost members of sequences and lists, with parameters."""
    lists = (nn.Sequential, nn.ModuleList)
    for child in module.children():
        if isinstance(module, lists) and not isinstance(child, lists):
            if any(True for _ in child.parameters()):
                yield child
        else:
            yield from _members(child)
