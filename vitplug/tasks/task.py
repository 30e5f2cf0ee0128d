"""The description of a task: everything in which mmpretrain, mmseg and mmdet differ for vitplug."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from mmengine.config import Config
from mmengine.structures import BaseDataElement
from torch import Tensor, nn

from .class_counts import ClassCounts
from .experiments.own_data import OwnData, Split
from .networks import Part
from .targets import Target

if TYPE_CHECKING:  # matplotlib and mmcv, which most commands do without
    from matplotlib.axes import Axes

    from .predictions import Predictions


@dataclass(frozen=True)
class Experiment:
    """Changes to a base config for an experiment on one's own data.

    Attributes:
        dataset: The type of the data sets.
        read: Reads the data; takes the folder and the names of classes from the command line.
        evaluator: The metric of a split; takes the base, the data and the split.
        steps: Changes to a step of a pipeline.
        model: Changes to the model beside its backbone and its numbers of classes.
        trained: Settings of the training data beside the files.
        tested: The same of the validation and test data.
    """

    dataset: str
    read: Callable[[Path, Sequence[str]], OwnData]
    evaluator: Callable[[Config, OwnData, Split], dict]
    steps: Callable[[OwnData, Mapping], dict] = lambda data, step: {}
    model: Callable[[Config, OwnData], dict] = lambda cfg, data: {}
    trained: Mapping[str, Any] = field(default_factory=dict)
    tested: Mapping[str, Any] = field(default_factory=dict)


class Task(ABC):
    """What differs between mmpretrain, mmseg and mmdet.

    The description imports no library; methods that need one import it when they are called.

    Attributes:
        library: Name of the package, and `default_scope` of its configs.
        name: Name of the task, as commands take it.
        needs_ops: True if the models need mmcv's ops, compiled or those of :mod:`vitplug.ops`.
        result_dump: Type of the metric that writes predictions to a file (`tools/test.py --out`).
        tta_model: Settings of the model that merges the predictions of several views (`tools/test.py --tta`).
        class_counts: Settings that count classes.
        experiment: Settings of experiments on one's own data.
        target: Makes the score of a prediction that Grad-CAM explains; without arguments, the most prominent one.
        parts: Parts of a model that an exported file can hold, by name; the first is the usual one.
    """

    library: str
    name: str
    needs_ops: bool = False
    result_dump: str = 'DumpResults'
    tta_model: Mapping[str, Any]
    class_counts: ClassCounts
    experiment: Experiment
    target: Callable[..., Target]
    parts: Mapping[str, Part]

    @abstractmethod
    def show_predictions(self, cfg: Config, hook: Mapping[str, Any], folder: str | None) -> None:
        """Makes a test draw its predictions.

        Args:
            cfg: The config; changed in place.
            hook: Settings of the hook that draws: `show`, `wait_time`.
            folder: Where pictures are written; None for nowhere.

        Raises:
            ValueError: if the library cannot draw them.
        """

    @abstractmethod
    def run_inference(self, model: nn.Module, images: Tensor) -> None:
        """Runs the parts of a model whose costs are counted.

        Args:
            model: The model, in evaluation mode.
            images: Images ``(B, C, H, W)``, which may be on the meta device.
        """

    @abstractmethod
    def made_sample(self, size: tuple[int, int]) -> BaseDataElement:
        """The annotations of a made image of ``(height, width)`` pixels, all of the first class."""

    def made_samples(self, images: Tensor) -> list[BaseDataElement]:
        """The annotations of :meth:`made_sample` for each of some images ``(B, C, H, W)``, on their device."""
        return [self.made_sample(tuple(images.shape[-2:])).to(images.device) for _ in images]

    @abstractmethod
    def training_losses(self, model: nn.Module, images: Tensor) -> Iterable[Tensor]:
        """Losses of a training step on images ``(B, C, H, W)`` with made annotations, without reading a value.

        They have the sizes of the model's own losses, and run on fake tensors.
        """

    @abstractmethod
    def describe_inference(self, model: nn.Module) -> str:
        """Says what :meth:`run_inference` runs of a model."""

    @abstractmethod
    def predictions(
        self,
        cfg: Config,
        model: nn.Module,
        classes: list[str] | None,
        palette: Sequence[tuple[int, ...]],
        score_thr: float | None,
    ) -> 'Predictions':
        """The model behind its library's inferencer, with the form of pictures and results.

        Args:
            cfg: The config, with the data set of the test as `test_dataloader.dataset`.
            model: The model, with its weights.
            classes: Names of its classes, None if unknown.
            palette: A colour for each class.
            score_thr: Lowest score that is drawn; None for the task's own.

        Raises:
            ValueError: if the task has no scores, or classes have no names.
        """

    @abstractmethod
    def draw_panels(
        self, panels: Sequence['Axes'], image: np.ndarray, sample: BaseDataElement, metainfo: Mapping[str, Any]
    ) -> None:
        """Draws truth and prediction of an image.

        Args:
            panels: Two, for the truth and for the prediction.
            image: The image ``(H, W, 3)``, RGB.
            sample: Annotations and predictions.
            metainfo: The data set's classes and palette.
        """
