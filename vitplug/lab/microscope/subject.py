"""A model under analysis: what it is made from, and what its blocks can tell."""

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import torch
from mmengine.config import Config
from mmengine.structures import BaseDataElement
from torch import Tensor, nn

from vitplug.checkpoints.files import local_file
from vitplug.files.fingerprint import file_hash
from vitplug.hosting import PluggedModel
from vitplug.lab.microscope.truths import Listed, find_listed
from vitplug.lab.study.quantities.fields import effective_receptive_field
from vitplug.lab.study.quantities.grad_cam import GradCam, grad_cams
from vitplug.runs.checks.data import max_pixels
from vitplug.runs.prediction import Predictor
from vitplug.tasks.kept import Kept
from vitplug.tasks.outcomes import Outcome

from .images import load_image, read_image
from .loaded import Loaded
from .observed import Observed, Ran
from .places import ImagePlace


@dataclass(eq=False)
class Subject(Observed):
    """A model of a config and a checkpoint.

    Attributes:
        label: ``'model'`` or ``'baseline'``.
        cfg: Config of its training.
        checkpoint: As it was named.
        predictor: The model with its pipeline.
        sha256: Of the checkpoint file.
        backbone: What is measured: a backbone of vitplug.
        recorded: Shapes of the intermediates of the first image, by name and block; see :meth:`probe`.
        sizes: Height and width of each image as the backbone gets it.
        paths: The images.
        kept: What measures of this model share.
    """

    label: str
    cfg: Config
    checkpoint: str
    predictor: Predictor
    sha256: str
    backbone: PluggedModel
    recorded: Mapping[str, Mapping[int, tuple[int, ...]]] = field(default_factory=dict)
    sizes: Sequence[tuple[int, int]] = ()
    paths: Sequence[ImagePlace] = ()
    kept: dict = field(default_factory=dict)
    _places: dict = field(default_factory=dict)

    @classmethod
    def read(
        cls,
        label: str,
        cfg: Config,
        checkpoint: str,
        device: str | None,
        allow_changes: bool,
    ) -> 'Subject':
        """Builds a model of a config with the weights of a checkpoint.

        Args:
            label: ``'model'`` or ``'baseline'``.
            cfg: The config.
            checkpoint: The checkpoint.
            device: Where it runs; None for an accelerator where there is one.
            allow_changes: Whether the checkpoint may be of other settings.

        Raises:
            ValueError: If its backbone is none of vitplug's.
            Exception: As :class:`~vitplug.runs.prediction.Predictor` does.
        """
        path = local_file(checkpoint)
        predictor = Predictor(cfg, path, device, allow_changes=allow_changes)
        backbone = _measured(getattr(predictor.model, 'backbone', None), cfg.filename)
        return cls(label, cfg, str(checkpoint), predictor, file_hash(Path(path)), backbone)

    @property
    def model(self) -> nn.Module:
        return self.predictor.model

    @property
    def changes_maps(self) -> bool:
        """Whether a plug changes the maps of some block, so that there are maps before and after it."""
        return self.is_plugged and any(block.plugs.at('map') for block in self.backbone.plugged_blocks())

    @property
    def name(self) -> str:
        return Path(self.cfg.filename or '').stem

    @property
    def made_of(self) -> str:
        return f'{self.cfg.filename}, {self.checkpoint} (sha256 {self.sha256[:12]})'

    @property
    def about(self) -> str:
        return f'{type(self.model.backbone).__name__}: {self.backbone.plug_summary}'

    @property
    def is_plugged(self) -> bool:
        """Whether the backbone is one of vitplug's."""
        return isinstance(self.backbone, PluggedModel)

    @property
    def slides(self) -> bool:
        """Whether the model is run on crops of an image, as segmentors with a sliding window are."""
        return (getattr(self.model, 'test_cfg', None) or {}).get('mode') == 'slide'

    def load(self, path: ImagePlace) -> Loaded:
        """An image through the model's own test pipeline."""
        return load_image(self.predictor, path, max_pixels(self.cfg))

    def batch(self, path: ImagePlace) -> Mapping:
        return self.predictor.collate([read_image(self.predictor, path, max_pixels(self.cfg))])

    @torch.no_grad()
    def run(self, batch: Mapping) -> Ran:
        kept: list[tuple[Tensor, ...]] = []
        hook = self.backbone.register_forward_hook(lambda module, args, outs: kept.append(_tensors(outs)))
        try:
            [sample] = self.predictor.run(batch)
        finally:
            hook.remove()
        return Ran(sample, tuple(itertools.chain.from_iterable(kept)))  # a sliding window calls it several times

    def outcome(self, sample: BaseDataElement, size: tuple[int, int]) -> Outcome:
        return self.predictor.task.outcome(sample, size)

    def keeps(self, before: BaseDataElement, after: BaseDataElement) -> Kept:
        return self.predictor.task.kept(before, after)

    def grad_cams(self, inputs: Tensor) -> dict[int, GradCam]:
        return grad_cams(self.model, inputs)

    def receptive_field(self, inputs: Iterable[Tensor]) -> Tensor:
        return effective_receptive_field(self.backbone, inputs)

    def truths(self, paths: Sequence[ImagePlace]) -> dict[ImagePlace, Callable[[tuple[int, int]], Outcome | None]]:
        return {path: partial(self._truth, path, listed) for path, listed in find_listed(self.cfg, paths).items()}

    def _truth(self, path: ImagePlace, listed: Listed, size: tuple[int, int]) -> Outcome | None:
        """What a data set says of an image, placed on the input as a prediction is."""
        return self.predictor.task.truth(*listed, self.run(self.batch(path)).sample, size)


def _tensors(outs) -> tuple[Tensor, ...]:
    """The tensors of a backbone's outputs, which may be tuples of tokens."""
    return (outs,) if isinstance(outs, Tensor) else tuple(tensor for out in outs for tensor in _tensors(out))


def _measured(backbone: nn.Module | None, config: str) -> PluggedModel:
    """The backbone as it is measured.

    Raises:
        ValueError: If it is none of vitplug's.
    """
    if isinstance(backbone, PluggedModel):
        return backbone
    raise ValueError(
        f'{config}: model.backbone is a {type(backbone).__name__}, which records no intermediates: expected one of '
        "vitplug's, such as vitplug.VisionTransformer or vitplug.SwinTransformer, which have the same arguments and "
        'weights'
    )
