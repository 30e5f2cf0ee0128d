"""The layers of a backbone without plugs, such as ResNet, as an analysis asks for blocks."""

import re
from collections.abc import Callable, Iterable, Sequence
from fnmatch import fnmatchcase
from typing import Any

from torch import Tensor, nn

from vitplug.attention import GlobalLayout, Layout, Site
from vitplug.hosting import PixelGrid

# Groups of modules that a message proposes.
MOST_PROPOSED = 6


class NamedLayers:
    """A backbone whose blocks are the modules that a pattern names. It records their outputs, and nothing else.

    Maps ``(B, C, H, W)`` are recorded as tokens ``(B, H * W, C)``.

    Args:
        backbone: The backbone.
        pattern: Module names, one ``*``, ``?`` or word between two dots, such as ``'layer*.*'``.

    Raises:
        ValueError: If the pattern names fewer than two modules; says which there are.
    """

    plug_summary = 'no plugs'
    prefix_names = ()

    def __init__(self, backbone: nn.Module, pattern: str):
        self.backbone = backbone
        blocks = {name: module for name, module in backbone.named_modules() if name and _matches(name, pattern)}
        if len(blocks) < 2:
            raise ValueError(
                f'--blocks {pattern}: names {len(blocks)} modules of {type(backbone).__name__}: expected the blocks in '
                f'order, such as {proposed(backbone)}'
            )
        self.blocks = blocks
        #: Tokens before those of the map, as mmpretrain's backbones count them.
        self.num_prefix = getattr(backbone, 'num_extra_tokens', 0)
        self._layouts: dict[int, GlobalLayout] = {}

    def plugged_blocks(self) -> list[nn.Module]:
        """The blocks in order."""
        return list(self.blocks.values())

    def learned_values(self) -> dict:
        """None, without plugs."""
        return {}

    def place_maps(self, index: int, image_size: tuple[int, int], name: str = 'probs') -> Sequence:
        """Where the tokens of a block's last output lie, as :meth:`vitplug.hosting.PluggedModel.place_maps`."""
        layout = self._layouts[index]
        return ((layout, PixelGrid(layout.hw)),) * 2

    def forward_intermediates(
        self, images: Tensor, names: Iterable[str], reduce: Callable[[str, Tensor, Site], Any]
    ) -> tuple[Any, dict[str, dict[int, Any]]]:
        """The output of the backbone, and what ``reduce`` kept of the blocks' outputs.

        Raises:
            ValueError: If a block returns neither tokens nor a map.
        """
        kept: dict[int, Any] = {}

        def keep(index: int, name: str, output: Any) -> None:
            tokens_BND, self._layouts[index] = self._tokens(name, output)
            if 'block' in names:
                kept[index] = reduce('block', tokens_BND, Site(self._layouts[index], index=index))

        hooks = [
            block.register_forward_hook(lambda _, __, output, index=index, name=name: keep(index, name, output))
            for index, (name, block) in enumerate(self.blocks.items())
        ]
        try:
            output = self.backbone(images)
        finally:
            for hook in hooks:
                hook.remove()
        return output, {'block': kept} if kept else {}

    def _tokens(self, name: str, output: Any) -> tuple[Tensor, Layout]:
        tensor = output[0] if isinstance(output, (tuple, list)) and output else output
        if isinstance(tensor, Tensor) and tensor.ndim == 4:
            return tensor.flatten(2).mT, GlobalLayout(*tensor.shape[2:])
        if isinstance(tensor, Tensor) and tensor.ndim == 3:
            return tensor, GlobalLayout(1, tensor.shape[1] - self.num_prefix, self.num_prefix)
        what = f'shape {tuple(tensor.shape)}' if isinstance(tensor, Tensor) else type(tensor).__name__
        raise ValueError(f'--blocks: {name} returns {what}: expected tokens (B, N, D) or a map (B, C, H, W)')


def _matches(name: str, pattern: str) -> bool:
    """Whether a dotted name has the parts of a pattern, one by one."""
    parts, wanted = name.split('.'), pattern.split('.')
    return len(parts) == len(wanted) and all(map(fnmatchcase, parts, wanted))


def proposed(backbone: nn.Module) -> str:
    """Patterns of modules of one class that occur several times, outermost first: ``'layer*.*' (16 of Bottleneck)``."""
    groups: dict[tuple[str, str], int] = {}
    for name, module in backbone.named_modules():
        if any(True for _ in module.parameters()):
            group = re.sub(r'\d+', '*', name), type(module).__name__
            groups[group] = groups.get(group, 0) + 1
    common = sorted((item for item in groups.items() if item[1] > 1), key=lambda item: item[0][0].count('.'))
    return ', '.join(f'{pattern!r} ({count} of {kind})' for (pattern, kind), count in common[:MOST_PROPOSED])
