"""Paired comparisons over seeds: Student's t intervals and Holm's correction. Pure functions on numbers.

For one seed, all variants start from the same host weights and see the same data in the same order. Their values are
compared seed by seed, so what a seed adds to all of them cancels.

- **Interval**: Student's t for the mean of the paired differences, two-sided, 95 %. It is not adjusted for the number
  of variants: each interval alone covers the true difference in 95 % of all experiments.
- **Decision**: Holm's step-down correction of the paired t tests' p values. The probability of any false "better" or
  "worse" in a table is at most 5 %, whatever the dependence between variants. So an interval without zero in it is no
  decision yet: of 20 variants that change nothing, one has such an interval on average.
- **No bootstrap**: a percentile bootstrap of 5 values covers far less than it states.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

import numpy as np
from scipy import stats

from .images import LEVEL

MIN_SEEDS = 3
# Differences are equal up to rounding if their range is below this share of the values.
ROUNDING = 1e-9


class Verdict(Enum):
    """Result of a comparison with the baseline."""

    BETTER = 'better'
    WORSE = 'worse'
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
        verdict: What follows from ``p_holm``.
    """

    seeds: tuple[int, ...]
    difference: float | None
    low: float | None
    high: float | None
    p: float | None
    p_holm: float | None
    verdict: Verdict


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


def t_interval(differences: np.ndarray, level: float = LEVEL) -> Interval:
    """Student's t interval of the mean over the last axis.

    Args:
        differences: Paired differences, shape (..., n), n >= 2, not all equal.
        level: Confidence level.

    Returns:
        Arrays of shape (...).
    """
    differences = np.asarray(differences, float)
    test = stats.ttest_1samp(differences, 0.0, axis=-1)
    ends = test.confidence_interval(level)
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


def compare(
    values: Mapping[str, Mapping[int, float]], baseline: str, greater_is_better: bool = True, level: float = LEVEL
) -> dict[str, Comparison]:
    """Compares every variant with the baseline.

    All variants are in Holm's family, also those with too few seeds so far: then an adjusted p value does not fall
    because other variants are late.

    Args:
        values: Metric by variant and seed, the baseline included.
        baseline: Name of the baseline.
        greater_is_better: False for metrics such as a loss.
        level: Confidence level of the intervals; decisions are made at 1 - level.

    Returns:
        The comparisons in the order of ``values``, without the baseline.

    Raises:
        ValueError: If the baseline is not in ``values``, or a value is not finite.
    """
    if baseline not in values:
        raise ValueError(f'baseline = {baseline!r}: must be one of {sorted(values)}')
    for label, by_seed in values.items():
        for seed, value in by_seed.items():
            if not np.isfinite(value):
                raise ValueError(f'{label}, seed {seed}: the value is {value}, must be finite')
    reference = values[baseline]
    pairs = {label: _paired(by_seed, reference) for label, by_seed in values.items() if label != baseline}
    intervals = {label: _interval(*paired, level) for label, paired in pairs.items()}
    p = [1.0 if interval is None else float(interval.p) for interval in intervals.values()]
    adjusted = dict(zip(intervals, holm(p), strict=True))
    return {
        label: _comparison(*paired, intervals[label], float(adjusted[label]), greater_is_better, 1 - level)
        for label, paired in pairs.items()
    }


def _paired(by_seed: Mapping[int, float], reference: Mapping[int, float]) -> tuple[tuple[int, ...], np.ndarray, float]:
    """Seeds that both have, their differences, and the largest value as a scale of rounding."""
    seeds = tuple(sorted(by_seed.keys() & reference.keys()))
    ours, theirs = (np.array([found[seed] for seed in seeds], float) for found in (by_seed, reference))
    return seeds, ours - theirs, float(np.abs([ours, theirs]).max(initial=0.0))


def _interval(seeds: tuple[int, ...], differences: np.ndarray, scale: float, level: float) -> Interval | None:
    if len(seeds) < MIN_SEEDS or np.ptp(differences) <= ROUNDING * scale:
        return None
    return t_interval(differences, level)


def _comparison(
    seeds: tuple[int, ...],
    differences: np.ndarray,
    scale: float,
    interval: Interval | None,
    p_holm: float,
    greater_is_better: bool,
    alpha: float,
) -> Comparison:
    difference = float(differences.mean()) if seeds else None
    if interval is None:
        verdict = Verdict.TOO_FEW if len(seeds) < MIN_SEEDS else Verdict.NO_SPREAD
        return Comparison(seeds, difference, None, None, None, None, verdict)
    verdict = Verdict.OPEN
    if p_holm <= alpha:
        verdict = Verdict.BETTER if (difference > 0) == greater_is_better else Verdict.WORSE
    return Comparison(seeds, difference, *map(float, (interval.low, interval.high, interval.p)), p_holm, verdict)
