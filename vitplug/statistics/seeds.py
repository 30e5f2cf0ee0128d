"""Paired comparisons over seeds: Student's t intervals and Holm's correction. Pure functions on numbers.

For one seed, all variants start from the same host weights and see the same data in the same order. Their values are
compared seed by seed, so what a seed adds to all of them cancels.

- **Interval**: Student's t for the mean of the paired differences, two-sided, 95 %. It is not adjusted for the number
  of variants: each interval alone covers the true difference in 95 % of all experiments.
- **Decision**: Holm's step-down correction of the paired t tests' p values. The probability of any false "better" or
  "worse" in a table is at most 5 %, whatever the dependence between variants. So an interval without zero in it is no
  decision yet: of 20 variants that change nothing, one has such an interval on average.
- **Equality**: two one-sided t tests against a margin that was chosen before (Schuirmann, J. Pharmacokinet. Biopharm.
  15, 1987), with Holm's correction as well: "equal" means that the difference is smaller than the margin. Without a
  margin there is no such verdict.
- **No bootstrap**: a percentile bootstrap of 5 values covers far less than it states.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

import numpy as np
from scipy import stats

from .images import LEVEL

MIN_SEEDS, MOST_SEEDS = 3, 10_000
# Differences are equal up to rounding if their range is below this share of the values.
ROUNDING = 1e-9
# Probability with which as many seeds as are needed find a difference.
POWER = 0.8


class Verdict(Enum):
    """Result of a comparison with the baseline."""

    BETTER = 'better'
    WORSE = 'worse'
    EQUAL = 'equal'
    OPEN = 'no difference shown'
    TOO_FEW = 'too few seeds'
    NO_SPREAD = 'same difference in every seed'


@dataclass(frozen=True)
class Comparison:
    """A variant against the baseline.

    Attributes:
        seeds: The seeds for which both have a value.
        difference: Mean of variant - baseline over these seeds; None without such seeds.
        low: Lower end of the interval of the difference; None below :data:`MIN_SEEDS` seeds or without spread.
        high: Upper end.
        p: Two-sided p value of the paired t test; None where there is no interval.
        p_holm: The same after Holm's correction; None where there is no interval.
        verdict: What follows from ``p_holm``, and for a difference that is not decided from ``p_equal_holm``.
        sd: Sample standard deviation of the differences; None where there is no interval.
        p_equal: Larger p value of the two one-sided tests; None without an interval or a margin.
        p_equal_holm: The same after Holm's correction.
        within: True if the difference is shown to be smaller than the margin.
    """

    seeds: tuple[int, ...]
    difference: float | None
    low: float | None
    high: float | None
    p: float | None
    p_holm: float | None
    verdict: Verdict
    sd: float | None = None
    p_equal: float | None = None
    p_equal_holm: float | None = None
    within: bool = False

    @property
    def effect(self) -> float | None:
        """Effect size of the pairs: mean of the differences by their standard deviation (Cohen's d_z)."""
        return None if self.sd is None or self.difference is None else self.difference / self.sd

    @property
    def is_decided(self) -> bool:
        """True if the variant is better or worse."""
        return self.verdict in (Verdict.BETTER, Verdict.WORSE)


@dataclass(frozen=True)
class Interval:
    """Student's t interval of a mean, and the test of a mean of zero; arrays of one shape.

    Attributes:
        mean: The means.
        low: Lower ends.
        high: Upper ends.
        p: Two-sided p values.
    """

    mean: np.ndarray
    low: np.ndarray
    high: np.ndarray
    p: np.ndarray


def t_interval(differences: np.ndarray) -> Interval:
    """Student's t interval of the mean over the last axis, at :data:`LEVEL`.

    Args:
        differences: Paired differences, shape (..., n), n >= 2, not all equal.

    Returns:
        Arrays of shape (...).
    """
    differences = np.asarray(differences, float)
    test = stats.ttest_1samp(differences, 0.0, axis=-1)
    ends = test.confidence_interval(LEVEL)
    return Interval(differences.mean(axis=-1), ends.low, ends.high, test.pvalue)


def holm(p: np.ndarray | Sequence[float]) -> np.ndarray:
    """Adjusted p values of Holm's step-down procedure over the last axis.

    The k-th smallest of m p values is multiplied by m - k + 1, and is at least the adjusted value before it. Rejecting
    where the result is at most 0.05 keeps the family-wise error rate at 5 %.

    Source: S. Holm, A Simple Sequentially Rejective Multiple Test Procedure, Scand. J. Statist. 6, 1979.

    Args:
        p: Shape (..., m).

    Returns:
        The same shape and order, at most 1.
    """
    p = np.asarray(p, float)
    order = np.argsort(p, axis=-1)
    factors = np.arange(p.shape[-1], 0, -1)
    steps = np.minimum(1.0, np.take_along_axis(p, order, -1) * factors)
    adjusted = np.empty_like(p)
    np.put_along_axis(adjusted, order, np.maximum.accumulate(steps, axis=-1), -1)
    return adjusted


def mean_and_sd(values: Sequence[float]) -> tuple[float | None, float | None]:
    """Mean and sample standard deviation (n - 1); None where there are too few values."""
    mean = float(np.mean(values)) if len(values) else None
    return mean, float(np.std(values, ddof=1)) if len(values) > 1 else None


def p_equal(differences: np.ndarray, margin: float) -> np.ndarray:
    """p value of equality: the larger one of the t tests of ``mean > -margin`` and ``mean < margin``.

    At 5 % this is the question whether the 90 % interval lies within the margin.

    Args:
        differences: Paired differences, shape (..., n), n >= 2, not all equal.
        margin: The largest difference that counts as none; above 0.

    Returns:
        Shape (...).
    """
    low = stats.ttest_1samp(differences, -margin, axis=-1, alternative='greater').pvalue
    high = stats.ttest_1samp(differences, margin, axis=-1, alternative='less').pvalue
    return np.maximum(low, high)


def seeds_needed(difference: float, sd: float) -> int | None:
    """Seeds with which a paired t test finds a difference with a probability of :data:`POWER`.

    Without a correction for several variants, which needs more.

    Args:
        difference: The true difference; not 0.
        sd: Standard deviation of the paired differences.

    Returns:
        The smallest number, at least :data:`MIN_SEEDS`; None above :data:`MOST_SEEDS`.
    """
    seeds = np.arange(MIN_SEEDS, MOST_SEEDS + 1)
    enough = np.flatnonzero(_power(abs(difference) / sd, seeds) >= POWER) if sd else [0]
    return int(seeds[enough[0]]) if len(enough) else None


def _power(effect: float, seeds: np.ndarray) -> np.ndarray:
    """Power of the two-sided paired t test, by its noncentral distribution."""
    limit, centre = stats.t.ppf((1 + LEVEL) / 2, seeds - 1), effect * np.sqrt(seeds)
    return stats.nct.sf(limit, seeds - 1, centre) + stats.nct.cdf(-limit, seeds - 1, centre)


def compare(
    values: Mapping[str, Mapping[int, float]],
    baseline: str,
    greater_is_better: bool = True,
    margin: float | None = None,
) -> dict[str, Comparison]:
    """Compares every variant with the baseline.

    Decisions are made at ``1 - LEVEL``. All variants are in Holm's family, also those with too few seeds so far: then
    an adjusted p value does not fall because other variants are late.

    Args:
        values: Metric by variant and seed, the baseline included.
        baseline: Name of the baseline.
        greater_is_better: False for metrics such as a loss.
        margin: The largest difference that counts as none; None to leave equality out.

    Returns:
        The comparisons in the order of ``values``, without the baseline.

    Raises:
        ValueError: If the baseline is not in ``values``, a value is not finite, or the margin is not above 0.
    """
    if baseline not in values:
        raise ValueError(f'baseline = {baseline!r}: must be one of {sorted(values)}')
    if margin is not None and not 0 < margin < np.inf:
        raise ValueError(f'margin = {margin}: must be a difference above 0, or None')
    for label, by_seed in values.items():
        for seed, value in by_seed.items():
            if not np.isfinite(value):
                raise ValueError(f'{label}, seed {seed}: the value is {value}, must be finite')
    reference = values[baseline]
    pairs = {label: _paired(by_seed, reference) for label, by_seed in values.items() if label != baseline}
    tests = {label: _test(*paired, margin) for label, paired in pairs.items()}
    p_holm, p_equal_holm = _adjusted(tests, 'p'), _adjusted(tests, 'p_equal')
    return {
        label: _comparison(seeds, differences, tests[label], p_holm[label], p_equal_holm[label], greater_is_better)
        for label, (seeds, differences, _) in pairs.items()
    }


@dataclass(frozen=True)
class _Test:
    """The tests of a variant; without an interval, of what cannot be tested."""

    interval: Interval | None = None
    p: float | None = None
    p_equal: float | None = None


def _adjusted(tests: Mapping[str, _Test], name: str) -> dict[str, float]:
    p = [getattr(test, name) for test in tests.values()]
    return dict(zip(tests, map(float, holm([1.0 if value is None else value for value in p])), strict=True))


def _paired(by_seed: Mapping[int, float], reference: Mapping[int, float]) -> tuple[tuple[int, ...], np.ndarray, float]:
    """Seeds that both have, their differences, and the largest value as a scale of rounding."""
    seeds = tuple(sorted(by_seed.keys() & reference.keys()))
    ours, theirs = (np.array([values[seed] for seed in seeds], float) for values in (by_seed, reference))
    return seeds, ours - theirs, float(np.abs([ours, theirs]).max(initial=0.0))


def _test(seeds: tuple[int, ...], differences: np.ndarray, scale: float, margin: float | None) -> _Test:
    if len(seeds) < MIN_SEEDS or np.ptp(differences) <= ROUNDING * scale:
        return _Test()
    interval = t_interval(differences)
    return _Test(interval, float(interval.p), None if margin is None else float(p_equal(differences, margin)))


def _comparison(
    seeds: tuple[int, ...],
    differences: np.ndarray,
    test: _Test,
    p_holm: float,
    p_equal_holm: float,
    greater_is_better: bool,
) -> Comparison:
    if test.interval is None:
        verdict = Verdict.TOO_FEW if len(seeds) < MIN_SEEDS else Verdict.NO_SPREAD
        mean = float(differences.mean()) if seeds else None
        return Comparison(seeds, mean, None, None, None, None, verdict)
    difference = float(differences.mean())
    within = test.p_equal is not None and p_equal_holm <= 1 - LEVEL
    verdict = Verdict.EQUAL if within else Verdict.OPEN
    if p_holm <= 1 - LEVEL:
        verdict = Verdict.BETTER if (difference > 0) == greater_is_better else Verdict.WORSE
    return Comparison(
        seeds,
        difference,
        low=float(test.interval.low),
        high=float(test.interval.high),
        p=test.p,
        p_holm=p_holm,
        verdict=verdict,
        sd=float(np.std(differences, ddof=1)),
        p_equal=test.p_equal,
        p_equal_holm=None if test.p_equal is None else p_equal_holm,
        within=within,
    )
