"""From arrays to numbers: values with intervals, drops from the clean images, differences from the first model.

``±`` is always half of a 95 % interval; :attr:`Row.over` says over what. Differences are paired: by image where two
models saw the same images, by group of images for numbers of all images together, by seed where a model is several
trainings.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from vitplug.statistics.images import Estimate, exact, jackknife, paired, student

from .conditions import CLEAN, Condition
from .engine import Study
from .figures import Shown
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


class Numbers(NamedTuple):
    """Estimates of a model, by value, and by seed where there are several trainings."""

    by_seed: Mapping[int, Mapping[str, Estimate]]

    @property
    def values(self) -> dict[str, Estimate]:
        """Estimates of the model: over seeds where there are several, else over images."""
        if len(self.by_seed) == 1:
            return dict(next(iter(self.by_seed.values())))
        return {name: _over([one[name] for one in self.by_seed.values() if name in one]) for name in self.names}

    @property
    def names(self) -> list[str]:
        return list(dict.fromkeys(name for one in self.by_seed.values() for name in one))

    @property
    def over(self) -> str:
        if len(self.by_seed) > 1:
            return SEEDS
        [estimates] = self.by_seed.values()
        first = next(iter(estimates.values()), None)
        if first is None or (first.images is None and first.left_out is None):
            return ALONE
        return IMAGES if first.images is not None else GROUPS


def _over(estimates: Sequence[Estimate]) -> Estimate:
    """Student's t over the means of seeds, or of repeats."""
    return student(np.stack([one.mean for one in estimates]))


def minus(one: Numbers, other: Numbers) -> Numbers | None:
    """Paired differences: seed by seed, or image by image; None where nothing is paired."""
    if len(one.by_seed) == len(other.by_seed) == 1:
        pairs = [(0, *one.by_seed.values(), *other.by_seed.values())]
    else:
        pairs = [(s, one.by_seed[s], other.by_seed[s]) for s in sorted(one.by_seed.keys() & other.by_seed.keys())]
    found = {}
    for seed, a, b in pairs:
        both = {name: _difference(a[name], b[name]) for name in a if name in b}
        found[seed] = {name: estimate for name, estimate in both.items() if estimate is not None}
    return Numbers(found) if found else None


def _difference(a: Estimate, b: Estimate) -> Estimate | None:
    if a.images is not None and b.images is not None and len(a.images) != len(b.images):
        return None
    if a.left_out is not None and b.left_out is not None and len(a.left_out) != len(b.left_out):
        return None
    return paired(a, b)


def numbers_of(
    study: Study, runs: Sequence[Run], conditions: Sequence[Condition], measure: Measure
) -> tuple[dict[tuple[str, str], Numbers], dict[tuple[str, str], Numbers]]:
    """The numbers of a measure by model and condition, and those over repeats of what is drawn."""
    of_images, of_repeats = {}, {}
    for label in dict.fromkeys(run.label for run in runs):
        for name in dict.fromkeys(condition.name for condition in conditions):
            by_seed, repeated = {}, {}
            for run in (run for run in runs if run.label == label):
                draws = []
                for condition in (condition for condition in conditions if condition.name == name):
                    changed = study.changed(run, condition)
                    units = list(study.units(changed, condition, measure).values()) if changed else []
                    if units:
                        draws.append(measure.estimate(changed, units))
                if draws:
                    by_seed[run.seed] = {value: mean_of([draw[value] for draw in draws]) for value in draws[0]}
                    if len(draws) > 1:
                        repeated[run.seed] = {value: _over([draw[value] for draw in draws]) for value in draws[0]}
            if by_seed:
                of_images[label, name] = Numbers(by_seed)
            if repeated:
                of_repeats[label, name] = Numbers(repeated)
    return of_images, of_repeats


def mean_of(estimates: Sequence[Estimate]) -> Estimate:
    """The mean of numbers on the same images, such as repeats of noise, with its interval over images."""
    if len(estimates) == 1:
        return estimates[0]
    if estimates[0].images is not None:
        return student(np.mean([one.images for one in estimates], axis=0))
    whole = {'': np.mean([one.mean for one in estimates], axis=0)}
    if estimates[0].left_out is None:
        return exact(whole)['']
    left_out = np.mean([one.left_out for one in estimates], axis=0)
    return jackknife(whole, [{'': one} for one in left_out], int(estimates[0].n.max()))['']


def rows_of(
    study: Study, runs: Sequence[Run], conditions: Sequence[Condition], measures: Sequence[Measure]
) -> Iterator[Row]:
    """Every number of a study."""
    labels = list(dict.fromkeys(run.label for run in runs))
    own = {condition.name for condition in conditions if condition.own_images}
    for measure in measures:
        numbers, repeats = numbers_of(study, runs, conditions, measure)
        for (label, name), found in numbers.items():
            yield from _rows(measure, label, name, VALUE, found)
            if (label, name) in repeats:
                yield from _rows(measure, label, name, REPEATS, repeats[label, name], DRAWS)
            clean, first, first_clean = (
                numbers.get(key) for key in ((label, CLEAN.name), (labels[0], name), (labels[0], CLEAN.name))
            )
            drop = minus(clean, found) if clean and name not in own and name != CLEAN.name else None
            yield from _rows(measure, label, name, DROP, drop)
            if label != labels[0] and first:
                yield from _rows(measure, label, name, DIFFERENCE, minus(found, first))
                if drop and first_clean and (other := minus(first_clean, first)):
                    yield from _rows(measure, label, name, OF_DROPS, minus(drop, other))


def _rows(
    measure: Measure, label: str, condition: str, quantity: str, numbers: Numbers | None, over: str = ''
) -> Iterator[Row]:
    if numbers is None:
        return
    for value, estimate in numbers.values.items():
        for index in np.ndindex(estimate.mean.shape):
            if np.isfinite(estimate.mean[index]):
                place = (*index, '', '')[:2]
                ends = (float(array[index]) for array in (estimate.mean, estimate.low, estimate.high))
                n = int(estimate.n[index])
                yield Row(measure.name, value, label, condition, quantity, *place, *ends, n, over or numbers.over)


def shown_of(study: Study, runs: Sequence[Run], conditions: Sequence[Condition], measure: Measure) -> list[Shown]:
    """What a measure's picture shows: each model under each condition; of several seeds the first one's images."""
    numbers, _ = numbers_of(study, runs, conditions, measure)
    several = len(dict.fromkeys(condition.name for condition in conditions)) > 1
    shown = []
    for (label, name), found in numbers.items():
        run = next(run for run in runs if run.label == label)
        condition = next(condition for condition in conditions if condition.name == name)
        changed = study.changed(run, condition)
        units = list(study.units(changed, condition, measure).values()) if changed else []
        shown.append(Shown(f'{label}, {name}' if several else label, found.values, units))
    return shown
