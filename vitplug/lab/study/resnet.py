"""The blocks of ResNets, of mmpretrain and of timm, which have no sockets: their outputs, and nothing else."""

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

from torch import Tensor, nn

from vitplug.attention import GlobalLayout, Site
from vitplug.hosting import PixelGrid

KINDS = 'BasicBlock', 'Bottleneck'


class ResidualBlocks:
    """A ResNet with the methods of :class:`vitplug.hosting.PluggedModel` that measures of outputs call.

    Maps ``(B, C, H, W)`` are recorded as tokens ``(B, H * W, C)``.
    """

    def __init__(self, network: nn.Module):
        self.network = network
        self.blocks = [module for module in network.modules() if type(module).__name__ in KINDS]
        if not self.blocks:
            raise ValueError(f'{type(network).__name__} has neither sockets nor the blocks of a ResNet')
        self._layouts: dict[int, GlobalLayout] = {}

    def plugged_blocks(self) -> list[nn.Module]:
        return self.blocks

    def place_maps(self, index: int, image_size: tuple[int, int]) -> tuple:
        """Where the tokens of a block's last output lie."""
        layout = self._layouts[index]
        return ((layout, PixelGrid(layout.hw)),) * 2

    def forward_intermediates(
        self, images: Tensor, names: Iterable[str], reduce: Callable[[str, Tensor, Site], Any]
    ) -> None:
        """Gives the blocks' outputs to ``reduce``."""

        def keep(index: int, block: nn.Module, inputs: Any, maps_BCHW: Tensor) -> None:
            self._layouts[index] = GlobalLayout(*maps_BCHW.shape[2:])
            reduce('block', maps_BCHW.flatten(2).mT, Site(self._layouts[index], index=index))

        hooks = [block.register_forward_hook(partial(keep, index)) for index, block in enumerate(self.blocks)]
        try:
            self.network(images)
        finally:
            for hook in hooks:
                hook.remove()
