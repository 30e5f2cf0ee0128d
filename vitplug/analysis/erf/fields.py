"""The models whose effective receptive fields are measured, and how their images are read."""

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import mmcv
import numpy as np
import torch
from mmengine.logging import print_log
from torch import nn

from vitplug.analysis.measures.receptive_field import describe_last_map, last_map
from vitplug.analysis.measures.reset import RESETS, can_reset, reset_copy
from vitplug.analysis.study.loaded import Loaded
from vitplug.analysis.study.observed import MODEL
from vitplug.analysis.study.results import describe
from vitplug.analysis.study.subject import Subject
from vitplug.analysis.timm_models import TimmSubject, describe_feature_map, feature_map
from vitplug.files.picture_sources import Reader
from vitplug.hosting import PluggedModel
from vitplug.runs.prediction import Predictor
from vitplug.tasks.predictions import Predictions


@dataclass(eq=False)
class Field:
    """A model whose ERF is measured: as it is, or with its positions re-initialised.

    Attributes:
        label: ``'model'``, ``'baseline'`` or, say, ``'model reset ape'``.
        subject: The model that it is made of, which reads the images.
        network: Its backbone, or a copy of it with other positions.
        reset: Kind of re-initialisation and the parameters that it changed; None for none.
    """

    label: str
    subject: Subject | TimmSubject
    network: nn.Module
    reset: tuple[str, Sequence[str]] | None = None

    @cached_property
    def features(self):
        """From an image to the last map, as the measures take it."""
        return self.network if isinstance(self.network, PluggedModel) else feature_map(self.network)

    def map_size(self, image: Loaded) -> tuple[int, int]:
        """Rows and columns of the last map."""
        with torch.no_grad():
            is_plugged = isinstance(self.network, PluggedModel)
            feature_map = last_map(self.network, image.inputs) if is_plugged else self.features(image.inputs)
        return tuple(feature_map.shape[-2:])

    def describe(self) -> dict:
        """Which model it is, and which of its maps counts."""
        subject = self.subject
        about = describe(subject) if isinstance(subject, Subject) else subject.describe()
        if isinstance(self.network, PluggedModel):
            about |= dict(map=describe_last_map(self.network))
        else:
            about |= dict(map=describe_feature_map(self.network))
        if self.reset:
            kind, names = self.reset
            about |= dict(reset=dict(kind=kind, about=RESETS[kind].about, parameters=names))
        return about


def fields_of(subject: Subject | TimmSubject, resets: Sequence[str]) -> Iterator[Field]:
    """The ERFs of a model: its own and, of the model but not of its baseline, those after each reset.

    Kinds of positions that the model lacks are left out, which the log says.

    Raises:
        ValueError: If it has none of them.
    """
    yield Field(subject.label, subject, subject.backbone)
    wanted = list(dict.fromkeys(resets if subject.label == MODEL else ()))
    found = [kind for kind in wanted if can_reset(subject.backbone, kind)]
    if found and found != wanted:
        lacking = ', '.join(kind for kind in wanted if kind not in found)
        print_log(f'--reset {lacking}: left out, the model has no such positions', 'current', logging.WARNING)
    for kind in found or wanted:
        network, names = reset_copy(subject.backbone, kind)
        yield Field(f'{subject.label} reset {kind}', subject, network, (kind, names))


@dataclass(frozen=True)
class Cropping:
    """A predictor that crops images at their centre to the shape of a size, and resizes them to it.

    All images then have one size after the test pipeline, too.

    Attributes:
        predictor: The model with its pipeline.
        size: Height and width in pixels.
    """

    predictor: Predictor
    size: tuple[int, int]

    @property
    def read(self) -> Reader:
        """Reads an image file, uncropped."""
        return self.predictor.read

    def collate(self, pictures: Sequence[np.ndarray]) -> Mapping:
        """Pictures ``(height, width, channels)``, cropped, as a batch."""
        return self.predictor.collate([self._crop(picture) for picture in pictures])

    def _crop(self, pixels: np.ndarray) -> np.ndarray:
        height, width = self.size
        scale = min(pixels.shape[0] / height, pixels.shape[1] / width)
        sides = [max(1, round(side * scale)) for side in self.size]
        top, left = ((has - wanted) // 2 for has, wanted in zip(pixels.shape[:2], sides, strict=True))
        return mmcv.imresize(pixels[top : top + sides[0], left : left + sides[1]], (width, height))

    @property
    def task(self) -> Predictions:
        return self.predictor.task

    @property
    def model(self) -> nn.Module:
        return self.predictor.model
