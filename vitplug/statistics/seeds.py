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
    """A variant against the baseline. Fields are None where there is no interval: too few seeds, or no spread.

    Attributes:
        seeds: The seeds for which both have a value.
        difference: Mean of variant - baseline over these seeds; None without such seeds.
        verdict: What follows from ``p_holm``, and for a difference that is not decided from ``within``.
        low, high: Ends of the interval of the difference.
        p_holm: Two-sided p value of the paired t test after Holm's correction.
        sd: Sample standard deviation of the differences.
        within: True if the difference is shown to be smaller than the margin.
    """

    seeds: tuple[int, ...]
    difference: float | None
    verdict: Verdict
    low: float | None = None
    high: float | None = None
    p_holm: float | None = None
    sd: float | None = None
    within: bool = False


def holm(p: Sequence[float]) -> np.ndarray:
    """Adjusted p values of Holm's step-down procedure, at most 1.

    The k-th smallest of m p values is multiplied by m - k + 1, and is at least the adjusted value before it. Rejecting
    where the result is at most 0.05 keeps the family-wise error rate at 5 %.

    Source: S. Holm, A Simple Sequentially Rejective Multiple Test Procedure, Scand. J. Statist. 6, 1979.
    """
    values = np.asarray(p, float)
    order, adjusted = np.argsort(values), np.empty_like(values)
    adjusted[order] = np.maximum.accumulate(np.minimum(1.0, values[order] * np.arange(len(values), 0, -1)))
    return adjusted


def mean_and_sd(values: Sequence[float]) -> tuple[float | None, float | None]:
    """Mean and sample standard deviation (n - 1); None where there are too few values."""
    mean = float(np.mean(values)) if len(values) else None
    return mean, float(np.std(values, ddof=1)) if len(values) > 1 else None


def seeds_needed(difference: float, sd: float) -> int | None:
    """Seeds with which a paired t test finds a difference, which is not 0, with a probability of :data:`POWER`.

    Without a correction for several variants, which needs more. At least :data:`MIN_SEEDS`; None above
    :data:`MOST_SEEDS`. ``sd`` is the standard deviation of the paired differences.
    """
    if not sd:
        return MIN_SEEDS
    seeds = np.arange(MIN_SEEDS, MOST_SEEDS + 1)
    # Power of the two-sided test, by its noncentral distribution.
    limit, centre = stats.t.ppf((1 + LEVEL) / 2, seeds - 1), abs(difference) / sd * np.sqrt(seeds)
    power = stats.nct.sf(limit, seeds - 1, centre) + stats.nct.cdf(-limit, seeds - 1, centre)
    enough = np.flatnonzero(power >= POWER)
    return int(seeds[enough[0]]) if len(enough) else None


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
    pairs = {label: _paired(by_seed, values[baseline]) for label, by_seed in values.items() if label != baseline}
    tests = {label: stats.ttest_1samp(pair[1], 0.0) for label, pair in pairs.items() if pair[2] is None}
    # What cannot be tested yet counts as 1 in the family.
    p_holm = holm([tests[label].pvalue if label in tests else 1.0 for label in pairs])
    p_equal = holm([_p_equal(pairs[label][1], margin) if label in tests and margin else 1.0 for label in pairs])
    found = {}
    for (label, (seeds, differences, untested)), p, equal in zip(pairs.items(), p_holm, p_equal, strict=True):
        mean, sd = mean_and_sd(differences.tolist())
        if mean is None or untested:
            found[label] = Comparison(seeds, mean, untested or Verdict.TOO_FEW)
            continue
        within = bool(equal <= 1 - LEVEL)
        verdict = Verdict.EQUAL if within else Verdict.OPEN
        if p <= 1 - LEVEL:
            verdict = Verdict.BETTER if (mean > 0) == greater_is_better else Verdict.WORSE
        ends = tests[label].confidence_interval(LEVEL)
        found[label] = Comparison(seeds, mean, verdict, float(ends.low), float(ends.high), float(p), sd, within)
    return found


def _paired(
    by_seed: Mapping[int, float], reference: Mapping[int, float]
) -> tuple[tuple[int, ...], np.ndarray, Verdict | None]:
    """Common seeds, the differences, and the verdict where these allow no test."""
    seeds = tuple(sorted(by_seed.keys() & reference.keys()))
    ours, theirs = (np.array([some[seed] for seed in seeds], float) for some in (by_seed, reference))
    if len(seeds) < MIN_SEEDS:
        return seeds, ours - theirs, Verdict.TOO_FEW
    has_spread = np.ptp(ours - theirs) > ROUNDING * np.abs([ours, theirs]).max()
    return seeds, ours - theirs, None if has_spread else Verdict.NO_SPREAD


def _p_equal(differences: np.ndarray, margin: float) -> float:
    """The larger one of the p values of ``mean > -margin`` and ``mean < margin``.

    At 5 % this is the question whether the 90 % interval lies within the margin.
    """
    low = stats.ttest_1samp(differences, -margin, alternative='greater').pvalue
    return max(low, stats.ttest_1samp(differences, margin, alternative='less').pvalue)
