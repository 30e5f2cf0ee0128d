"""From arrays to numbers: values with 95 % intervals, drops from the clean images, differences from the first model.

Differences are paired: by image where two models saw the same images, by group of images for numbers of all images
together, by seed where a model is several trainings.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from vitplug.statistics.images import Estimate, combined, paired, student

from .conditions import CLEAN
from .engine import Study
from .measure import Measure

VALUE, DROP, DIFFERENCE, OF_DROPS, REPEATS = 'value', 'drop', 'difference', 'difference of drops', 'value over repeats'

#: Estimates of a model by seed (None for one without), and by value.
Numbers = Mapping[int | None, Mapping[str, Estimate]]


class Row(NamedTuple):
    """One number: what every table, CSV file and curve is made of.

    Attributes:
        measure, value, model, condition: What, of which model, under which condition.
        quantity: ``'value'``; ``'drop'``, clean - value; ``'difference'``, the model's value - the first model's;
            ``'difference of drops'``; or ``'value over repeats'``.
        layer, head: Block and head, or block and other block; '' for the whole network.
        mean, low, high: The number and its interval.
        n, over: Of how many images (or seeds, or repeats) it is, and what the interval is over.
    """

    measure: str
    value: str
    model: str
    condition: str
    quantity: str
    layer: int | str
    head: int | str
    mean: float
    low: float
    high: float
    n: int
    over: str


def over(axis: str, some: Sequence[Mapping[str, Estimate]]) -> Mapping[str, Estimate]:
    """Student's t over the means of seeds, or of repeats."""
    names = dict.fromkeys(name for one in some for name in one)
    return {name: student(np.stack([one[name].mean for one in some if name in one]), axis) for name in names}


def of_seeds(numbers: Numbers) -> Mapping[str, Estimate]:
    """Estimates of a model: over seeds where there are several, else over images."""
    return next(iter(numbers.values())) if len(numbers) == 1 else over('seeds', list(numbers.values()))


def minus(one: Numbers, other: Numbers) -> Numbers:
    """Paired differences: seed by seed, or image by image; empty where nothing is paired."""
    if len(one) == len(other) == 1:
        other = dict(zip(one, other.values(), strict=True))
    found = {}
    for seed in sorted(one.keys() & other.keys()):
        a, b = one[seed], other[seed]
        both = {name: paired(a[name], b[name]) for name in a if name in b}
        found[seed] = {name: estimate for name, estimate in both.items() if estimate is not None}
    return found


def rows_of(study: Study, measure: Measure) -> Iterator[Row]:
    """Every number of a measure, with drops from the clean images and differences from the first model."""
    drawn: dict[tuple[str, str, int], list[Mapping[str, Estimate]]] = defaultdict(list)
    for run, condition, units in study.found[measure]:
        drawn[run.label, condition.name, run.seed].append(measure.estimate(run, units))
    numbers: dict[tuple[str, str], dict[int, Mapping[str, Estimate]]] = defaultdict(dict)
    repeats: dict[tuple[str, str], dict[int, Mapping[str, Estimate]]] = defaultdict(dict)
    for (label, name, seed), draws in drawn.items():
        numbers[label, name][seed] = {value: combined([one[value] for one in draws]) for value in draws[0]}
        repeats[label, name][seed] = over('repeats', draws) if len(draws) > 1 else {}
    first, own = study.runs[0].label, {condition.name for condition in study.conditions if condition.own_images}
    for (label, name), values in numbers.items():
        keys = (first, name), (label, CLEAN.name), (first, CLEAN.name)
        of_first, clean, first_clean = (numbers.get(key, {}) for key in keys)
        drop = {} if name in own or name == CLEAN.name else minus(clean, values)
        other = {} if label == first else minus(drop, minus(first_clean, of_first))
        quantities = {
            VALUE: values,
            REPEATS: repeats[label, name],
            DROP: drop,
            DIFFERENCE: {} if label == first else minus(values, of_first),
            OF_DROPS: other,
        }
        for quantity, found in quantities.items():
            for value, estimate in of_seeds(found).items() if found else ():
                yield from _rows(estimate, measure.name, value, label, name, quantity)


def _rows(estimate: Estimate, *names: str) -> Iterator[Row]:
    for index in np.ndindex(estimate.mean.shape):
        if np.isfinite(estimate.mean[index]):
            ends = (float(array[index]) for array in (estimate.mean, estimate.low, estimate.high))
            yield Row(*names, *(*index, '', '')[:2], *ends, int(estimate.n[index]), estimate.over)
