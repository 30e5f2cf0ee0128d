"""The effect of edits on what a model gives for an image."""

import os
import zlib
from dataclasses import dataclass
from typing import Any

from vitplug.hosting import Edits
from vitplug.lab.study.quantities import edits as interventions

from .observed import Observed, Ran
from .places import ImagePlace


@dataclass(frozen=True)
class Effect:
    """What an edit changes for one image.

    Attributes:
        features: Norm of the change of the backbone's outputs, relative to theirs.
        score: Fall of the mean score of what was predicted.
        prediction: Share of the prediction that is another one.
    """

    features: float
    score: float
    prediction: float


def run_edited(subject: Observed, edits: Edits, batch: Any) -> Ran:
    """Runs a model with edits on the batch of an image."""
    with subject.backbone.edited(edits):
        return subject.run(batch)


def effect_of(subject: Observed, before: Ran, after: Ran) -> Effect:
    """What edits changed, of two runs on one image."""
    whole, left = subject.keeps(before.sample, before.sample), subject.keeps(before.sample, after.sample)
    [change] = interventions.relative_change(before.features, after.features).tolist()
    return Effect(change, whole.score - left.score, whole.share - left.share)


def seed_of(path: ImagePlace, layer: int, head: int = 0) -> int:
    """A seed of an image and a place, the same in every call."""
    return zlib.crc32(os.fsencode(f'{path.name}/{layer}/{head}'))
