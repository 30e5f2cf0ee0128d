"""Intermediates by name: what analysis wants to see, on any backbone, with the fused path too."""

from collections.abc import Iterable, Sequence

from torch import Tensor

MAPS = {
    'scores': 'scaled dot products q @ k^T, before plugs and bias, (B, W, H, N, N)',
    'bias': 'position bias that is added to the scores, (H or 1, N, N)',
    'logits': 'what enters the softmax, mask included, (B, W, H, N, N)',
    'probs': 'attention probabilities, the output of the softmax, (B, W, H, N, N)',
    'maps': 'what multiplies v: the probabilities after dropout and the map socket, (B, W, H, N, N)',
}
NAMES = {
    **MAPS,
    'block': "the block's output tokens, (B, N, D)",
    'broad_probs': 'at the last block: the probabilities of BroadAttention, over all blocks, (B, 1, H, N, N)',
}


class LayerRecord:
    """Takes the intermediates of one layer and keeps those that were asked for."""

    def __init__(self, names: frozenset[str]):
        self.names = names
        self.tensors: dict[str, Tensor] = {}

    @property
    def wants_maps(self) -> bool:
        """Whether maps are wanted, which the fused path has to compute besides its output."""
        return not self.names.isdisjoint(MAPS)

    def add(self, **tensors: Tensor | None) -> None:
        """Keeps the wanted ones; None (a layer without bias, say) is left out."""
        self.tensors.update({k: t for k, t in tensors.items() if k in self.names and t is not None})


class Recorder:
    """Takes the intermediates of one forward.

    Args:
        names: Names from :data:`NAMES`.
        layers: Block indices through all stages.
        num_layers: Number of blocks of the backbone.

    Raises:
        ValueError: If a name or a layer is unknown.
    """

    def __init__(self, names: Iterable[str], layers: Sequence[int], num_layers: int):
        unknown = [name for name in names if name not in NAMES]
        if unknown:
            raise ValueError(f'names={unknown}: no such intermediates; choose from {list(NAMES)}')
        outside = [i for i in layers if not 0 <= i < num_layers]
        if outside:
            raise ValueError(f'layers={outside}: this backbone has blocks 0 to {num_layers - 1}')
        self.layers = {i: LayerRecord(frozenset(names)) for i in layers}

    def at(self, layer: int) -> LayerRecord | None:
        """The record of one layer, None where nothing was asked for."""
        return self.layers.get(layer)

    def collect(self) -> dict[str, dict[int, Tensor]]:
        """Tensors by name and block index."""
        found: dict[str, dict[int, Tensor]] = {}
        for index, record in self.layers.items():
            for name, tensor in record.tensors.items():
                found.setdefault(name, {})[index] = tensor
        return found
