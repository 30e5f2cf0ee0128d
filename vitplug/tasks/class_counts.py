"""Settings that count classes: how each counts, and where the libraries have them."""

import operator
from collections.abc import Callable
from dataclasses import dataclass
from numbers import Real

from vitplug.config.parts import Part, as_list

from .classes import Classes

# --- how a setting counts ---


@dataclass(frozen=True)
class Measure:
    """How a setting counts classes.

    Attributes:
        count: The count in a value; None where the value is of another kind and counts nothing.
        fits: Compares it with the one that is expected.
        advice: The remedy, with the expected count for `{}`.
    """

    count: Callable[[object], int | None]
    fits: Callable[[int, int], bool]
    advice: str


def _number(value) -> int | None:
    # Backbones have num_classes=-1 for no classifier.
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else None


def _length(value) -> int | None:
    return len(value) if isinstance(value, list | tuple) else None


def _colours(value) -> int | None:
    """A palette of no colours is drawn at random, and a tuple of numbers is the one colour of all classes."""
    return len(value) if isinstance(value, list | tuple) and value and not isinstance(value[0], Real) else None


def _largest(value) -> int | None:
    return max(as_list(value), default=None)


NUMBER = Measure(_number, operator.eq, 'set it to {}')
ENTRIES = Measure(_length, operator.eq, 'give it {}')
UP_TO = Measure(_largest, operator.le, 'set it to at most {}')
COLOURS = Measure(_colours, operator.eq, 'give it {}')
ENOUGH_COLOURS = Measure(_colours, operator.ge, 'give it at least {}')

# --- where the libraries have them ---

Expected = Callable[[Part, Classes], int | None]


def every_class(part: Part, classes: Classes) -> int:
    return len(classes)


def things(part: Part, classes: Classes) -> int:
    return classes.things


def stuff(part: Part, classes: Classes) -> int:
    return len(classes) - classes.things


@dataclass(frozen=True)
class Place:
    """A setting that counts classes.

    Attributes:
        key: Its name.
        measure: How it counts.
        expected: The count that it must have; None where that is not known.
        applies: Whether a part of a config has this setting and uses it.
    """

    key: str
    measure: Measure = NUMBER
    expected: Expected = every_class
    applies: Callable[[Part], bool] = lambda part: True


@dataclass(frozen=True)
class ClassCounts:
    """The settings of a library that count classes.

    Attributes:
        model: Settings of the model and its data preprocessor.
        metrics: Settings of metrics.
        dataset: Settings of data sets.
        apart: Names of settings and of classes that count something else than the classes of the data set.
    """

    model: tuple[Place, ...]
    metrics: tuple[Place, ...]
    dataset: tuple[Place, ...] = ()
    apart: frozenset[str] = frozenset()


# Metrics of mmpretrain, which the other libraries use as well.
METRICS_OF_IMAGES = (
    Place('topk', UP_TO, applies=lambda part: part.is_a('Accuracy')),
    Place('num_classes', applies=lambda part: part.is_a('SingleLabelMetric', 'ConfusionMatrix')),
)
