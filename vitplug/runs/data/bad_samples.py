"""Samples that cannot be used: how they are found, noted and counted."""

import json
import multiprocessing
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from vitplug.commands import call
from vitplug.errors.stops import BadSample
from vitplug.files.atomic import add_line
from vitplug.tasks import LABELS
from vitplug.tasks.labels import ImageSize, Label

RECORDS = 'bad_samples.jsonl'
# Other remedies than repairing a sample, by split; elsewhere, strictness is a choice.
ADVICE = {'test': 'test on a list without it: a result over a part of the images is none'}


class BadSamples:
    """Notes the samples of a data set that cannot be used, from all workers of a loader.

    Every process adds a line to a file for each of them once: the split, the index, the path and the error.

    Args:
        path: The file; lines are added to an existing one.
        split: Name of the data set's part.
        strict: Whether the first one is an error.
        max_in_a_row: How many draws in a row may fail.
    """

    def __init__(self, path: Path, split: str, strict: bool = False, max_in_a_row: int = 20):
        self.path, self.split, self.strict, self.max_in_a_row = path, split, strict, max_in_a_row
        self.count = multiprocessing.Value('q', 0)
        self._noted: set[int] = set()
        self._last = ''

    def note(self, dataset, index: int, error: Exception) -> None:
        """Notes a sample and the error that it gave.

        Raises:
            BadSample: if it is an error already, with the path in its message.
        """
        source = path_of(dataset, index)
        self._last = f'{_shortened(source)}: {_shortened(one_line(error))}'
        with self.count.get_lock():
            self.count.value += 1
        if index not in self._noted:
            self._noted.add(index)
            line = dict(split=self.split, index=index, path=source, error=one_line(error))
            add_line(self.path, json.dumps(line))
        if self.strict:
            choice = ADVICE.get(self.split, 'set default_hooks.bad_samples.strict=False')
            raise BadSample(f'cannot use {self._last}; repair or remove it, or {choice}')

    def too_many(self) -> BadSample:
        """The error for when one draw after another failed."""
        return BadSample(
            f'{self.max_in_a_row} samples drawn in a row cannot be used, the last is {self._last}; {self.path} names '
            f'them: {call("check")} CONFIG finds all of them'
        )

    def none_left(self, size: int) -> BadSample:
        """The error for when none of all samples can be read."""
        return BadSample(
            f'none of the {size} {self.split} images can be read, so there is nothing to evaluate; {self.path} names '
            f'them: {call("check")} CONFIG finds out why'
        )


def path_of(dataset, index: int) -> str:
    """Path of a sample's image, or its index where the data set does not tell."""
    try:
        info = dataset.get_data_info(index)
    except Exception:  # wrappers and data sets of any kind
        info = {}
    return str(info.get('img_path') or f'sample {index}')


def one_line(error: Exception) -> str:
    """Type and message of an error on one line."""
    return f'{type(error).__name__}: {" ".join(str(error).split())}'


def _shortened(text: str, most: int = 400) -> str:
    """A path or a message for a terminal; the file of bad samples has all of it."""
    return text if len(text) <= most else f'{text[: most // 2]} ... {text[-most // 4 :]}'


# --- labels that a pipeline lets through, and on which a model on a GPU fails without naming the cause ---


def check_sample(sample, num_classes: int | None) -> None:
    """Checks a training sample as a pipeline packs it; other forms of samples pass.

    Args:
        sample: `inputs`, an image of shape (channels, height, width), and `data_samples`, its labels.
        num_classes: Number of classes, None if it is not known.

    Raises:
        ValueError: if a label map has another size than the image, or a label is outside of the classes.
    """
    for label, value in _labels_of(sample):
        label.check(value, _size_of(sample['inputs']), num_classes)


def check_evaluated_sample(sample, num_classes: int | None) -> None:
    """Checks a sample that a model is evaluated on, whose label map has the size of the image before the pipeline.

    Raises:
        ValueError: if the class is none, or the label map is one of colours or has another size than the image.
    """
    for label, value in _labels_of(sample):
        if label.evaluated:
            before = sample['data_samples'].get('ori_shape')
            label.check(value, before and tuple(before[:2]), num_classes)


def _labels_of(sample) -> Iterator[tuple[Label, Any]]:
    """The labels of a sample: how each is checked, and its value."""
    labels = sample.get('data_samples') if isinstance(sample, dict) else None
    for name, label in LABELS.items():
        if labels is not None and name in labels:
            yield label, getattr(labels, name)


def _size_of(image) -> ImageSize:
    """Height and width of an image (channels, height, width); None for views in a list."""
    return tuple(image.shape[-2:]) if isinstance(image, torch.Tensor) else None
