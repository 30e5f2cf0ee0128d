"""The layers of a network without sockets, such as ResNet: their outputs, and nothing else."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any

from torch import Tensor, nn

from vitplug.attention import GlobalLayout, Site
from vitplug.hosting import PixelGrid


class NamedLayers:
    """A network whose blocks are the outermost modules in its sequences and lists that occur several times.

    Maps ``(B, C, H, W)`` are recorded as tokens ``(B, H * W, C)``. In mmpretrain's ResNet-50 these are its 16
    bottlenecks. It has the methods of :class:`vitplug.hosting.PluggedModel` that measures of outputs call.
    """

    prefix_names = ()

    def __init__(self, network: nn.Module):
        self.network = network
        found = list(_members(network))
        kinds = Counter(map(type, found))
        self.blocks = [module for module in found if kinds[type(module)] > 1]
        if len(self.blocks) < 2:
            raise ValueError(f'{type(network).__name__} has no two blocks of one kind, whose outputs could be compared')
        self._layouts: dict[int, GlobalLayout] = {}

    def plugged_blocks(self) -> list[nn.Module]:
        return self.blocks

    def learned_values(self) -> dict:
        return {}

    def place_maps(self, index: int, image_size: tuple[int, int], name: str = 'probs') -> tuple:
        """Where the tokens of a block's last output lie."""
        layout = self._layouts[index]
        return ((layout, PixelGrid(layout.hw)),) * 2

    def forward_intermediates(
        self, images: Tensor, names: Iterable[str], reduce: Callable[[str, Tensor, Site], Any]
    ) -> None:
        """Gives the blocks' outputs to ``reduce``."""

        def keep(index: int, block: nn.Module, inputs: Any, output: Any) -> None:
            tensor = output[0] if isinstance(output, (tuple, list)) else output
            if tensor.ndim == 4:
                tokens_BND, self._layouts[index] = tensor.flatten(2).mT, GlobalLayout(*tensor.shape[2:])
            else:  # mmpretrain's backbones count the tokens before those of the map
                prefix = getattr(self.network, 'num_extra_tokens', 0)
                tokens_BND, self._layouts[index] = tensor, GlobalLayout(1, tensor.shape[1] - prefix, prefix)
            reduce('block', tokens_BND, Site(self._layouts[index], index=index))

        hooks = [block.register_forward_hook(partial(keep, index)) for index, block in enumerate(self.blocks)]
        try:
            self.network(images)
        finally:
            for hook in hooks:
                hook.remove()


def _members(module: nn.Module) -> Iterator[nn.Module]:
    """The outermost members of sequences and lists, with parameters."""
    lists = (nn.Sequential, nn.ModuleList)
    for child in module.children():
        if isinstance(module, lists) and not isinstance(child, lists):
            if any(True for _ in child.parameters()):
                yield child
        else:
            yield from _members(child)
