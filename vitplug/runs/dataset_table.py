"""What a check of data saw, by split: images, objects, classes and sizes."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from vitplug.tables import format_table

HEADINGS = ('split', 'images', 'objects', 'classes', 'width: min, median, max', 'height: min, median, max')
NAMED = 8


@dataclass
class Seen:
    """What is in a split.

    Attributes:
        split: Its name.
        images: Number of samples.
        labels: Number of objects of each class, or of images that have it.
        has_objects: Whether objects are annotated, not whole images or pixels.
        sizes: Width and height of each image that can be read, as loaded.
        classes: Names of the classes; numbers where they have none.
    """

    split: str
    images: int = 0
    labels: Counter = field(default_factory=Counter)
    has_objects: bool = False
    sizes: list[tuple[int, int]] = field(default_factory=list)
    classes: list[str] = field(default_factory=list)

    def add(self, size: tuple[int, int] | None, labels: Sequence[int], are_objects: bool) -> None:
        """Adds a sample.

        Args:
            size: Width and height of the image; None if it cannot be read.
            labels: The class of each object, or the classes of the image.
            are_objects: Whether they are those of objects.
        """
        self.images += 1
        self.sizes += [size] if size else []
        self.labels.update(labels)
        self.has_objects |= are_objects

    @property
    def without_sample(self) -> str:
        """The classes of which there is nothing; '' if there are none."""
        missing = [name for label, name in enumerate(self.classes) if not self.labels[label]]
        more = f' and {len(missing) - NAMED} more' if len(missing) > NAMED else ''
        return ', '.join(missing[:NAMED]) + more if self.labels else ''

    def row(self) -> tuple[str, ...]:
        """Its line of the table."""
        present = sum(bool(count) for count in self.labels.values())
        objects = f'{self.labels.total():,}' if self.has_objects else '-'
        classes = f'{present} of {len(self.classes)}' if self.classes else str(present or '-')
        return self.split, f'{self.images:,}', objects, classes, *_sides(self.sizes)


def labels_of(info: Mapping) -> tuple[list[int], bool]:
    """The classes that a data set tells of a sample, and whether they are those of objects."""
    if 'instances' in info:
        return [int(one['bbox_label']) for one in info['instances'] if not one.get('ignore_flag')], True
    label = info.get('gt_label')
    return [] if label is None else [int(value) for value in np.ravel(label)], False


def _sides(sizes: Sequence[tuple[int, int]]) -> list[str]:
    """Least, median and largest width, and height; one number where all are equal."""
    if not sizes:
        return ['-', '-']
    ranges = [(min(side), int(np.median(side)), max(side)) for side in zip(*sizes, strict=True)]
    return [str(low) if low == high else f'{low}, {median}, {high}' for low, median, high in ranges]


def table_lines(splits: Sequence[Seen]) -> Iterator[str]:
    """The splits that have samples as a table, then the classes of which there is nothing."""
    splits = [seen for seen in splits if seen.images]
    if not splits:
        return
    yield from format_table([HEADINGS, *(seen.row() for seen in splits)], numeric=(1, 2)).splitlines()
    for seen in splits:
        if seen.without_sample:
            yield f'nothing in {seen.split} of the classes {seen.without_sample}'
    yield ''
