"""What mmpretrain, mmseg and mmdet differ in, beside their data: names, drawing, one step."""

from collections.abc import Callable, Mapping
from typing import Any

from mmengine.config import Config
from mmengine.structures import BaseDataElement
from torch import Tensor, nn

from .networks import Part
from .targets import Target


class Task:
    """One task, of one library. Methods import the library when they are called.

    Attributes:
        library: Name of the package, and `default_scope` of its configs.
        name: Name of the task, as commands take it.
        result_dump: Type of the metric that writes predictions to a file (`tools/test.py --out`).
        tta_model: Settings of the model that merges the predictions of several views (`tools/test.py --tta`).
        target: Makes the score of a prediction that Grad-CAM explains; without arguments, the most prominent one.
        parts: Parts of a model that an exported file can hold, by name; the first is the usual one.
    """

    library: str
    name: str
    result_dump: str = 'DumpResults'
    tta_model: Mapping[str, Any]
    target: Callable[..., Target]
    parts: Mapping[str, Part]

    def show_predictions(self, cfg: Config, hook: Mapping[str, Any], folder: str | None) -> None:
        """Makes a test draw its predictions, and write them to a folder: changes the config.

        ``hook`` has the settings of the hook that draws, `show` and `wait_time`.
        """
        raise NotImplementedError

    def run_inference(self, model: nn.Module, images: Tensor) -> None:
        """Runs what :meth:`describe_inference` names on images ``(B, C, H, W)``, which may be on the meta device."""
        raise NotImplementedError

    def describe_inference(self, model: nn.Module) -> str:
        """The parts of a model whose costs are counted, in words."""
        raise NotImplementedError

    def made_sample(self, size: tuple[int, int]) -> BaseDataElement:
        """The annotations of a made image of ``(height, width)`` pixels, all of the first class."""
        raise NotImplementedError
