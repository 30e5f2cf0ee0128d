"""A model under analysis, of whatever library: what it is asked for."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from vitplug.attention.intermediates import MAPS
from vitplug.lab.study.quantities.grad_cam import GradCam
from vitplug.lab.study.quantities.places import Place
from vitplug.tasks.kept import Kept
from vitplug.tasks.outcomes import Outcome

from .loaded import Loaded
from .places import ImagePlace

MODEL, BASELINE = 'model', 'baseline'
# Intermediates that tell which blocks have attention and which have a bias.
PROBED = (*MAPS, 'heads', 'attn', 'mlp', 'block')


@dataclass(frozen=True)
class Ran:
    """What a model gave for an image.

    Attributes:
        sample: Its prediction.
        features: The outputs of its backbone.
    """

    sample: Any
    features: tuple[Tensor, ...]


class Observed(ABC):
    """The model, or its baseline.

    Attributes:
        label: ``'model'`` or ``'baseline'``.
        backbone: What is measured, a :class:`~vitplug.hosting.PluggedModel`.
        recorded: Shapes of the intermediates of the first image, by name and block; see :meth:`probe`.
    """

    label: str
    backbone: Any
    recorded: Mapping[str, Mapping[int, tuple[int, ...]]]
    _places: dict

    @property
    @abstractmethod
    def name(self) -> str:
        """A short name."""

    @property
    @abstractmethod
    def about(self) -> str:
        """Host and plugs, in one line."""

    @property
    @abstractmethod
    def made_of(self) -> str:
        """Where the model and its weights come from."""

    @abstractmethod
    def load(self, path: ImagePlace) -> Loaded:
        """An image as the model gets it.

        Raises:
            Unreadable: If it cannot be read.
        """

    @abstractmethod
    def batch(self, path: ImagePlace) -> Any:
        """An image as :meth:`run` takes it."""

    @abstractmethod
    def run(self, batch: Any) -> Ran:
        """One run of the whole model."""

    @abstractmethod
    def outcome(self, sample: Any, size: tuple[int, int]) -> Outcome:
        """A prediction in words; ``size`` is the height and width of the input."""

    @abstractmethod
    def keeps(self, before: Any, after: Any) -> Kept:
        """How much of a prediction another one for the same image keeps."""

    @abstractmethod
    def grad_cams(self, inputs: Tensor) -> dict[int, GradCam]:
        """The Grad-CAMs of all blocks.

        Raises:
            ValueError: If there is no score to explain.
        """

    @abstractmethod
    def receptive_field(self, inputs: Iterable[Tensor]) -> Tensor:
        """The effective receptive field of the central token over images ``(1, C, H, W)`` of one size."""

    def truths(self, paths: Sequence[ImagePlace]) -> Mapping[ImagePlace, Callable[[tuple[int, int]], Outcome | None]]:
        """What data sets say of images, by path: called with the size of the input. Nothing by default."""
        return {}

    @property
    def num_layers(self) -> int:
        return len(self.backbone.plugged_blocks())

    @property
    def has_class_token(self) -> bool:
        return self.backbone.prefix_names[:1] == ('cls_token',)

    def place(self, layer: int, size: tuple[int, int]) -> Place:
        """Where the tokens of a block lie in an image of a size; kept for the last size."""
        if self._places.get('size') != size:
            self._places = dict(size=size)
        if layer not in self._places:
            self._places[layer] = Place.of(self.backbone, layer, size)
        return self._places[layer]

    @torch.no_grad()
    def probe(self, image: Loaded) -> None:
        """Notes which intermediates which blocks have."""
        _, self.recorded = self.backbone.forward_intermediates(
            image.inputs, PROBED, reduce=lambda name, tensor, site: tuple(tensor.shape)
        )

    def layers_with(self, name: str) -> list[int]:
        """The blocks that have an intermediate."""
        return sorted(self.recorded.get(name, ()))
