"""From arrays to numbers: values with intervals, drops from the clean images, differences from the first model.

``±`` is always half of a 95 % interval; :attr:`Row.over` says over what. Differences are paired: by image where two
models saw the same images, by group of images for numbers of all images together, by seed where a model is several
trainings.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from vitplug.statistics.images import Arrays, Estimate, exact, jackknife, paired, student

from .conditions import CLEAN, Condition
from .engine import Study
from .measure import Measure
from .runs import Run

VALUE, DROP, DIFFERENCE, OF_DROPS, REPEATS = 'value', 'drop', 'difference', 'difference of drops', 'value over repeats'
IMAGES, GROUPS, SEEDS, DRAWS, ALONE = 'images', 'images, in groups', 'seeds', 'repeats', 'the model alone'


class Row(NamedTuple):
    """One number: what every table, CSV file and picture is made of.

    Attributes:
        measure, value: What.
        model, condition: Of which model, under which condition.
        quantity: ``'value'``; ``'drop'``, clean - value; ``'difference'``, the model's value - the first model's;
            ``'difference of drops'``; or ``'value over repeats'``.
        layer, head: Where, as the measure's axes say; '' for the whole network.
        mean, low, high: The number and its interval.
        n: Of how many images (or seeds, or repeats) it is.
        over: What the interval is over.
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


class Shown(NamedTuple):
    """What a measure gave for a model under a condition.

    Attributes:
        label: Of the model, and of the condition where there are several.
        estimates: By value.
        units: What each image, or group of images, gave; of several seeds the first one's.
    """

    label: str
    estimates: Mapping[str, Estimate]
    units: Sequence[Arrays]


class Numbers(NamedTuple):
    """Estimates of a model, by value, and by seed where there are several trainings."""

    by_seed: Mapping[int, Mapping[str, Estimate]]

    @property
    def values(self) -> dict[str, Estimate]:
        """Estimates of the model: over seeds where there are several, else over images."""
        if len(self.by_seed) == 1:
            return dict(next(iter(self.by_seed.values())))
        names = dict.fromkeys(name for one in self.by_seed.values() for name in one)
        return {name: _over([one[name] for one in self.by_seed.values() if name in one]) for name in names}

    @property
    def over(self) -> str:
        """What the intervals are over."""
        if len(self.by_seed) > 1:
            return SEEDS
        first = next((e for estimates in self.by_seed.values() for e in estimates.values()), None)
        if first is None or (first.images is None and first.left_out is None):
            return ALONE
        return IMAGES if first.images is not None else GROUPS


def _over(estimates: Sequence[Estimate]) -> Estimate:
    """Student's t over the means of seeds, or of repeats."""
    return student(np.stack([one.mean for one in estimates]))


def minus(one: Numbers, other: Numbers) -> Numbers | None:
    """Paired differences: seed by seed, or image by image; None where nothing is paired."""
    if len(one.by_seed) == len(other.by_seed) == 1:
        pairs = {0: (*one.by_seed.values(), *other.by_seed.values())}
    else:
        pairs = {s: (one.by_seed[s], other.by_seed[s]) for s in sorted(one.by_seed.keys() & other.by_seed.keys())}
    found = {}
    for seed, (a, b) in pairs.items():
        both = {name: paired(a[name], b[name]) for name in a if name in b}
        found[seed] = {name: estimate for name, estimate in both.items() if estimate is not None}
    return Numbers(found) if found else None


def mean_of(estimates: Sequence[Estimate]) -> Estimate:
    """The mean of numbers on the same images, such as repeats of noise, with its interval over images."""
    first = estimates[0]
    if len(estimates) == 1:
        return first
    if first.images is not None:
        return student(np.mean([one.images for one in estimates], axis=0))
    whole = {'': np.mean([one.mean for one in estimates], axis=0)}
    if first.left_out is None:
        return exact(whole)['']
    left_out = np.mean([one.left_out for one in estimates], axis=0)
    return jackknife(whole, [{'': one} for one in left_out], int(first.n.max()))['']


class Found(NamedTuple):
    """What a study gave of a measure, by model and condition.

    Attributes:
        numbers: The numbers; of what is drawn, the means of all draws.
        repeats: Numbers over draws, of what is drawn several times.
        units: What each image gave in the first draw of the first seed.
    """

    numbers: dict[tuple[str, str], Numbers]
    repeats: dict[tuple[str, str], Numbers]
    units: dict[tuple[str, str], list[Arrays]]

    @classmethod
    def of(cls, study: Study, runs: Sequence[Run], conditions: Sequence[Condition], measure: Measure) -> 'Found':
        """The numbers of a measure."""
        draws: dict[tuple[str, str], dict[int, list[Mapping[str, Estimate]]]] = {}
        found = cls({}, {}, {})
        for run in runs:
            for condition in conditions:
                changed = study.changed(run, condition)
                units = list(study.units(changed, condition, measure).values()) if changed else []
                if units:
                    key = run.label, condition.name
                    found.units.setdefault(key, units)
                    draws.setdefault(key, {}).setdefault(run.seed, []).append(measure.estimate(changed, units))
        for key, by_seed in draws.items():
            for kept, reduce, least in ((found.numbers, mean_of, 1), (found.repeats, _over, 2)):
                values = {
                    seed: {value: reduce([one[value] for one in some]) for value in some[0]}
                    for seed, some in by_seed.items()
                    if len(some) >= least
                }
                if values:
                    kept[key] = Numbers(values)
        return found

    def shown(self) -> list[Shown]:
        """What a picture shows: each model under each condition."""
        several = len({name for _, name in self.numbers}) > 1
        return [
            Shown(f'{label}, {name}' if several else label, numbers.values, self.units[label, name])
            for (label, name), numbers in self.numbers.items()
        ]


def rows_of(found: Found, conditions: Sequence[Condition], measure: Measure, first: str) -> Iterator[Row]:
    """Every number of a measure, with differences from the ``first`` model."""
    own = {condition.name for condition in conditions if condition.own_images}
    numbers = found.numbers
    for (label, name), values in numbers.items():
        yield from _rows(measure, label, name, VALUE, values)
        yield from _rows(measure, label, name, REPEATS, found.repeats.get((label, name)), DRAWS)
        keys = (label, CLEAN.name), (first, name), (first, CLEAN.name)
        clean, of_first, first_clean = map(numbers.get, keys)
        drop = minus(clean, values) if clean and name not in own and name != CLEAN.name else None
        yield from _rows(measure, label, name, DROP, drop)
        if label != first and of_first:
            yield from _rows(measure, label, name, DIFFERENCE, minus(values, of_first))
            if drop and first_clean and (other := minus(first_clean, of_first)):
                yield from _rows(measure, label, name, OF_DROPS, minus(drop, other))


def _rows(
    measure: Measure, label: str, condition: str, quantity: str, numbers: Numbers | None, over: str = ''
) -> Iterator[Row]:
    for value, estimate in numbers.values.items() if numbers else ():
        for index in np.ndindex(estimate.mean.shape):
            if np.isfinite(estimate.mean[index]):
                place = (*index, '', '')[:2]
                ends = (float(array[index]) for array in (estimate.mean, estimate.low, estimate.high))
                n = int(estimate.n[index])
                yield Row(measure.name, value, label, condition, quantity, *place, *ends, n, over or numbers.over)
