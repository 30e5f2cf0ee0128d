"""The protocol of a measure: it observes one image at a time and gives arrays; adding one is one entry of the table."""

from abc import ABC
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from torch import Tensor

from vitplug.analysis.measures.places import Place
from vitplug.statistics.images import Arrays, Estimate, evenly_spaced, student

from .loaded import Loaded
from .subject import Subject

#: Height and width of an image as each model of a measure gets it.
Sizes = tuple[tuple[int, int], ...]
#: What `Measure.reduce` kept of one image: by name of the intermediate and block.
Recorded = Mapping[str, Mapping[int, Any]]


@dataclass(frozen=True)
class Shown:
    """The results of a measure for one model, or for the model against its baseline.

    Attributes:
        label: ``'model'``, ``'baseline'`` or ``'model and baseline'``.
        estimates: By value.
        units: What each image, or group of images, gave.
    """

    label: str
    estimates: Mapping[str, Estimate]
    units: Sequence[Arrays]


class Measure(ABC):
    """One measure.

    The command runs each image once through each model and calls, for every measure, :meth:`reduce` with each
    intermediate of :meth:`names`, so that memory grows with one block's maps of one image, then :meth:`observe` once.
    :meth:`join` makes named arrays of the images of a unit; they are kept in the folder of results, so that an
    interrupted run goes on. :meth:`estimate` turns all of them into numbers with intervals, :meth:`draw` into a
    picture.

    Attributes:
        name: Name on the command line.
        title: Title of its picture.
        definition: One sentence.
        unit: Unit of the values.
        source: Where the definition comes from.
        needs: What a model must have for it.
        axes: Names of the axes of a value: a number has none, a vector the first, a matrix both.
        compares: True if it observes the model and its baseline together.
        by_default: Whether it is taken where no measures are named; False for slow ones.
    """

    name: str
    title: str
    definition: str
    unit: str
    source: str
    needs: str
    axes: tuple[str, ...] = ('layer', 'head')
    compares: bool = False
    by_default: bool = True

    def why_not(self, *subjects: Subject) -> str:
        """Why it does not apply to a model (or to the model and its baseline, if it compares them); '' if it does."""
        return ''

    def left_out(self, *subjects: Subject) -> str:
        """Which part of it does not apply to a model and why; '' if all does."""
        return ''

    def units(self, *subjects: Subject) -> list[Sequence[int]]:
        """The images that are joined, group by group; each on its own by default."""
        return [[index] for index in range(len(subjects[0].sizes))]

    def names(self, subject: Subject) -> tuple[str, ...]:
        """The intermediates that it reduces."""
        return ()

    def reduce(self, subject: Subject, name: str, tensor: Tensor, place: Place) -> Any:
        """What is kept of one intermediate of one block."""
        raise NotImplementedError

    def observe(self, subject: Subject, image: Loaded, recorded: Recorded) -> Any:
        """What is kept of one image; arrays by name, unless :meth:`join` is another."""
        raise NotImplementedError

    def join(self, *observed: Sequence[Any]) -> Arrays:
        """Arrays of a unit; takes what :meth:`observe` gave for its images, by model."""
        [[arrays]] = observed
        return arrays

    def estimate(self, units: Sequence[Arrays], images: int) -> dict[str, Estimate]:
        """Values with intervals, of the arrays of all units."""
        return {name: student(np.stack([unit[name] for unit in units])) for name in units[0]}

    def draw(self, shown: Sequence[Shown]) -> Figure | None:
        """The picture; None for none."""
        return None


class Picture(Measure):
    """A figure without numbers of its own: some images, no estimates."""

    axes = ()
    unit = ''
    #: Images that it shows.
    count = 1

    def units(self, *subjects: Subject) -> list[Sequence[int]]:
        return [[index] for index in evenly_spaced(len(subjects[0].sizes), self.count)]

    def estimate(self, units: Sequence[Arrays], images: int) -> dict[str, Estimate]:
        return {}


def values_of(shown: Sequence[Shown], ndim: int) -> Iterable[str]:
    """Names of the values with so many axes, each once."""
    return dict.fromkeys(name for one in shown for name, value in one.estimates.items() if value.mean.ndim == ndim)


def of_one_size(sizes: Sequence[Sizes]) -> list[int]:
    """The images of the most frequent size, for measures that compare or add up the places of several images."""
    [(most, _)] = Counter(sizes).most_common(1)
    return [index for index, size in enumerate(sizes) if size == most]


def of_other_sizes(sizes: Sequence[Sizes]) -> str:
    """Says how many images :func:`of_one_size` leaves out; '' if none."""
    kept = of_one_size(sizes)
    height, width = sizes[kept[0]][0]
    left_out = len(sizes) - len(kept)
    return f'{left_out} of {len(sizes)} images, which are not {height} x {width}' if left_out else ''


def sizes_of(subjects: Sequence[Subject]) -> list[Sizes]:
    """The size of each image, as each model gets it."""
    return list(zip(*(subject.sizes for subject in subjects), strict=True))


def by_block(values: Mapping[int, np.ndarray], num_layers: int) -> np.ndarray:
    """Numbers, or vectors of any lengths, of some blocks as one array ``(blocks,)`` or ``(blocks, most)``; else NaN."""
    shape = max((np.shape(value) for value in values.values()), default=())
    array = np.full((num_layers, *shape), np.nan, np.float32)
    for layer, value in values.items():
        array[(layer, *(slice(size) for size in np.shape(value)))] = value
    return array
