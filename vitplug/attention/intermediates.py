"""Intermediates by name, for analysis: on any backbone, with the fused path too."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from torch import Tensor

from .site import Site

MAPS = {
    'scores': 'scaled dot products q @ k^T, before plugs and bias, (B, W, H, Nq, Nk)',
    'bias': 'position bias, added to the scores, (H or 1, Nq, Nk), or (B, W, H, Nq, Nk) where it depends on queries',
    'logits': 'input of the softmax, mask included, (B, W, H, Nq, Nk)',
    'probs': 'attention probabilities, the output of the softmax, (B, W, H, Nq, Nk)',
    'maps': 'maps that multiply v: the probabilities after dropout and the map socket, (B, W, H, Nq, Nk)',
}
NAMES = {
    'q': 'queries, (B, W, H, Nq, d)',
    'k': 'keys, (B, W, H, Nk, d)',
    'v': 'values, (B, W, H, Nk, d)',
    **MAPS,
    'heads': 'output of each head, after plugs, before the projection, (B, N, H, d)',
    'attn': 'output of the attention branch, as it is added to the tokens, (B, N, D)',
    'mlp': 'output of the MLP branch, as it is added to the tokens, (B, N, D)',
    'block': "the block's output tokens, (B, N, D)",
    'site': 'where the tokens are: layout of the windows, mask, valid tokens (a Site, no tensor)',
}

#: Called with name, tensor and site (None in a block without attention) as soon as an intermediate exists. Its result
#: is kept in place of the tensor.
Reduce = Callable[[str, Tensor, Site | None], Any]


class LayerRecord:
    """Takes the intermediates of one layer and keeps the wanted ones.

    Args:
        names: The wanted ones, of :data:`NAMES`.
        reduce: Turns each tensor into what is kept, so that large maps do not pile up; None keeps tensors.
        with_grad: Whether kept tensors keep their gradient in ``.grad`` after a backward.
    """

    def __init__(self, names: frozenset[str], reduce: Reduce | None = None, with_grad: bool = False):
        self.names = names
        self.reduce = reduce
        self.with_grad = with_grad
        self.kept: dict[str, Any] = {}
        self.site: Site | None = None

    @property
    def wants_maps(self) -> bool:
        """Whether maps are wanted, which the fused path must compute besides its output."""
        return not self.names.isdisjoint(MAPS)

    def enter(self, site: Site) -> None:
        """Notes where the following tensors are."""
        self.site = site
        if 'site' in self.names:
            self.kept['site'] = site

    def add(self, **tensors: Tensor | None) -> None:
        """Keeps the wanted ones; None (the bias of a layer without one, say) is left out."""
        for name, tensor in tensors.items():
            if name in self.names and tensor is not None:
                self.kept[name] = self._keep(name, tensor)

    def _keep(self, name: str, tensor: Tensor) -> Any:
        if self.with_grad and tensor.requires_grad:
            tensor.retain_grad()
        return tensor if self.reduce is None else self.reduce(name, tensor, self.site)


class Recorder:
    """Takes the intermediates of one forward.

    Args:
        names: Names from :data:`NAMES` or of ``further``.
        layers: Block indices through all stages.
        num_layers: Number of blocks of the backbone.
        reduce: See :class:`LayerRecord`.
        with_grad: See :class:`LayerRecord`.
        further: Names that plugs add.

    Raises:
        ValueError: If a name or a layer is unknown.
    """

    def __init__(
        self,
        names: Iterable[str],
        layers: Sequence[int],
        num_layers: int,
        reduce: Reduce | None = None,
        with_grad: bool = False,
        further: Iterable[str] = (),
    ):
        known = (*NAMES, *further)
        if unknown := [name for name in names if name not in known]:
            raise ValueError(f'names={unknown}: no such intermediates; choose from {list(known)}')
        if outside := [i for i in layers if not 0 <= i < num_layers]:
            raise ValueError(f'layers={outside}: this backbone has blocks 0 to {num_layers - 1}')
        self.layers = {i: LayerRecord(frozenset(names), reduce, with_grad) for i in layers}

    def at(self, layer: int) -> LayerRecord | None:
        """The record of one layer, None where nothing was asked for."""
        return self.layers.get(layer)

    def collect(self) -> dict[str, dict[int, Any]]:
        """Tensors, or the results of ``reduce``, by name and block index."""
        collected: dict[str, dict[int, Any]] = {}
        for index, record in self.layers.items():
            for name, value in record.kept.items():
                collected.setdefault(name, {})[index] = value
        return collected
