"""Conditions of a test: how its images are changed, attacked or replaced, and what is right."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from .attacks import Attack
from .columns import Column
from .scores import Truth

#: Stands for the values that the data preprocessor makes zero.
ZERO = 'zero after the normalisation'
# Steps of a test pipeline that a calibrated receptive field replaces.
RESIZES = re.compile(r'Resize|ResizeEdge|CenterCrop')
CROP = 'CenterCrop'
# Side of ImageNet-C's files, in pixels: they are resized and cropped already.
RELEASED = 224

#: Changes a pipeline; takes its steps, the model and the seed of what is drawn.
Edit = Callable[[list[dict], Column, int], list[dict]]


@dataclass(frozen=True, eq=False)
class Condition:
    """One test: a row of the table.

    Attributes:
        name: Of the row.
        family: The rows that differ in their strength alone have the same; '' for none.
        strength: How strong it is, in ``unit``.
        unit: Of the strength.
        edit: Of the test pipeline; None for none.
        attack: On the pixels of each batch; None for none.
        folder: Other images, in a folder for each class; None for those of the config.
        truth: What is right.
        drawn: Whether it depends on a seed, and so is repeated.
        paper: Figures of the paper, labelled.
        clean: The condition that it is compared with; None for none, on other images.
    """

    name: str
    family: str = ''
    strength: float = 0.0
    unit: str = ''
    edit: Edit | None = None
    attack: Attack | None = None
    folder: Path | None = None
    truth: Truth = field(default_factory=Truth)
    drawn: bool = False
    paper: str = ''
    clean: str | None = 'clean'

    @property
    def key(self) -> str:
        """Its name as a part of names of files."""
        return re.sub(r'[^a-z0-9.]+', '-', self.name.lower()).strip('-')


CLEAN = Condition('clean', clean=None)


def at_input(**step) -> Edit:
    """A step before the packing, on what the model gets, before its normalisation."""
    return lambda pipeline, column, seed: [*pipeline[:-1], _completed(step, column, seed), pipeline[-1]]


def after_loading(**step) -> Edit:
    """A step on the image as it was loaded, before it is resized."""

    def edit(pipeline: list[dict], column: Column, seed: int) -> list[dict]:
        position = next((i for i, one in enumerate(pipeline, 1) if 'LoadImageFromFile' in str(one['type'])), 0)
        return [*pipeline[:position], _completed(step, column, seed), *pipeline[position:]]

    return edit


def calibrated(ratio: float) -> Edit:
    """The resize and the crop replaced by those of a calibrated receptive field."""

    def edit(pipeline: list[dict], column: Column, seed: int) -> list[dict]:
        kept = [step for step in pipeline if not _resizes(step)]
        field = dict(type='vitplug.CalibrateReceptiveField', ratio=ratio, size=column.size)
        return [*kept[:-1], field, kept[-1]]

    return edit


def unresized(pipeline: list[dict], column: Column, seed: int) -> list[dict]:
    """The crop at the centre alone, of images that have the size of :data:`RELEASED` already.

    A pipeline without a crop, or with a larger one, stays as it is: it has to resize.
    """
    crops = any(_kind(step) == CROP for step in pipeline)
    if not crops or column.size > RELEASED:
        return pipeline
    return [step for step in pipeline if _kind(step) == CROP or not _resizes(step)]


def _resizes(step: Mapping) -> bool:
    return RESIZES.fullmatch(_kind(step)) is not None


def _kind(step: Mapping) -> str:
    """The type of a step without its library."""
    return re.split(r'[./]', str(step['type']))[-1]


def _completed(step: Mapping, column: Column, seed: int) -> dict:
    """A step with the seed where it takes one, and the fill of the model's own data preprocessor."""
    step = dict(step)
    if step.get('fill') == ZERO:
        step['fill'] = column.fill
    if 'seed' in step:
        step['seed'] = seed
    return step


def check_resizes(columns: Sequence[Column]) -> None:
    """Checks that all pipelines can be calibrated.

    Raises:
        ValueError: If one has no resize or crop, or no known size.
    """
    for column in columns:
        if not any(map(_resizes, column.pipeline)):
            raise ValueError(
                f'{column.label}: refiner-table5 replaces the resize and the crop of the test pipeline, which has '
                f'{[step["type"] for step in column.pipeline]}: leave this suite out, or resize in the pipeline'
            )
        _ = column.size
