"""Samples that cannot be used: how they are found, noted and counted."""

import json
import multiprocessing
from collections.abc import Sequence
from pathlib import Path

import torch

from .atomic_files import add_line
from .stops import BadSample

IGNORED_LABEL = 255
CLASS = 'gt_label'  # what mmpretrain calls the class of an image
LABEL_MAP = 'gt_sem_seg'  # and mmseg its label map
CLASS_INDICES = f'expected one channel of class indices, where {IGNORED_LABEL} is ignored, not colours'
RECORDS = 'bad_samples.jsonl'
# What can be done beside mending a sample, by split; elsewhere, strictness is a choice.
ADVICE = {'test': 'test on a list without it: a result over a part of the images is none'}


class BadSamples:
    """Notes the samples of a data set that cannot be used, from all workers of a loader.

    Every process adds a line to a file for each of them once: the split, the index, the path and the error.

    Args:
        path: The file. Lines are added to one that is there.
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
            'them: python tools/misc/check_dataset.py CONFIG finds all of them'
        )

    def none_left(self, size: int) -> BadSample:
        """The error for when none of all samples can be read."""
        return BadSample(
            f'none of the {size} {self.split} images can be read, so there is nothing to evaluate; {self.path} names '
            'them: python tools/misc/check_dataset.py CONFIG finds out why'
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


# --- what a pipeline lets through and a model fails on, on a GPU without a word on the cause ---


def check_sample(sample, num_classes: int | None) -> None:
    """Checks a training sample as a pipeline packs it; other forms of samples pass.

    Args:
        sample: `inputs`, an image of shape (channels, height, width), and `data_samples`, its labels.
        num_classes: Number of classes, None if it is not known.

    Raises:
        ValueError: if a label map has another size than the image, or a label is outside of the classes.
    """
    labels = sample.get('data_samples') if isinstance(sample, dict) else None
    for name, check in CHECKS.items():
        if labels is not None and name in labels:
            check(getattr(labels, name), sample['inputs'], num_classes)


def check_evaluated_sample(sample, num_classes: int | None) -> None:
    """Checks a sample that a model is evaluated on, whose label map has the size of the image before the pipeline.

    Raises:
        ValueError: if the class is none, or the label map is one of colours or has another size than the image.
    """
    labels = sample.get('data_samples') if isinstance(sample, dict) else None
    if labels is None:
        return
    if CLASS in labels:
        CHECKS[CLASS](getattr(labels, CLASS), sample['inputs'], num_classes)
    if LABEL_MAP in labels:
        check_channels(getattr(labels, LABEL_MAP).data.shape)
    if LABEL_MAP in labels and 'ori_shape' in labels:
        sizes = tuple(getattr(labels, LABEL_MAP).data.shape[-2:]), tuple(labels.ori_shape[:2])
        if sizes[0] != sizes[1]:
            raise ValueError(f'the label map has size {sizes[0]}, the image {sizes[1]}')
        check_labels(getattr(labels, LABEL_MAP).data, num_classes, ignored=IGNORED_LABEL)


def check_labels(labels: torch.Tensor, num_classes: int | None, ignored: int | None = None) -> None:
    """Checks labels, integers of any shape; where the number of classes is not known, that none is negative.

    Raises:
        ValueError: names those outside of the classes.
    """
    outside = labels < 0 if num_classes is None else (labels < 0) | (labels >= num_classes)
    wrong = labels[outside & (labels != ignored)] if ignored is not None else labels[outside]
    if len(wrong):
        classes = 'classes' if num_classes is None else f'{num_classes} classes'
        raise ValueError(f'labels {wrong.unique().tolist()[:5]} are outside of the {classes}')


def _check_class(label: torch.Tensor, inputs: torch.Tensor, num_classes: int | None) -> None:
    if not label.is_floating_point():  # soft labels are shares
        check_labels(label, num_classes)


def check_channels(shape: Sequence[int]) -> None:
    """Checks the shape of a label map as mmseg packs it, (1, height, width).

    Raises:
        ValueError: if it has more channels, which come last where a picture of colours is taken for a label map.
    """
    if len(shape) == 3 and shape[0] != 1:
        raise ValueError(f'the label map has {shape[-1]} channels: {CLASS_INDICES}')


def _check_map(seg_map, inputs: torch.Tensor, num_classes: int | None) -> None:
    check_channels(seg_map.data.shape)
    if seg_map.data.shape[-2:] != inputs.shape[-2:]:
        sizes = [tuple(tensor.shape[-2:]) for tensor in (seg_map.data, inputs)]
        raise ValueError(f'the label map has size {sizes[0]}, the image {sizes[1]}')
    check_labels(seg_map.data, num_classes, ignored=IGNORED_LABEL)


def _check_token_labels(labels: torch.Tensor, inputs: torch.Tensor, num_classes: int | None) -> None:
    check_labels(labels[1], num_classes)


def _check_instances(instances, inputs: torch.Tensor, num_classes: int | None) -> None:
    check_labels(instances.labels, num_classes)


# Under the names that mmpretrain, mmseg and mmdet give them.
CHECKS = {
    CLASS: _check_class,
    LABEL_MAP: _check_map,
    'gt_instances': _check_instances,
    'token_labels': _check_token_labels,
}
