"""Comparisons over several experiments: signs of pairs, joint p values, mean ranks. Pure functions on numbers."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy import stats

from .images import LEVEL

MIN_EXPERIMENTS, MIN_VARIANTS = 3, 3


@dataclass(frozen=True)
class Signs:
    """How many pairs are below and above the baseline.

    Attributes:
        below: Pairs whose variant has the smaller value.
        above: Pairs whose variant has the larger value.
        p: Two-sided p value of the sign test, without pairs of equal values; None without a pair.
    """

    below: int
    above: int
    p: float | None


def signs(differences: Sequence[float]) -> Signs:
    """The sign test over paired differences, of whatever sizes and metrics."""
    values = np.asarray(differences, float)
    below, above = int((values < 0).sum()), int((values > 0).sum())
    return Signs(below, above, float(stats.binomtest(below, below + above).pvalue) if below + above else None)


def stouffer(p_below: Sequence[float]) -> float:
    """Two-sided p value of several independent tests together (Stouffer's method).

    It is small where experiments agree in their direction. Fisher's method is so as well where they contradict it.

    Args:
        p_below: One-sided p values, small where the variant is below the baseline.
    """
    below = float(stats.combine_pvalues(np.asarray(p_below, float), method='stouffer').pvalue)
    return 2 * min(below, 1 - below)


@dataclass(frozen=True)
class Ranks:
    """Variants ranked in every experiment.

    Attributes:
        mean: Mean rank by variant, 1 is the best.
        p: p value of Friedman's test that all variants are alike.
        critical_difference: Nemenyi's: two mean ranks that are further apart differ, at 1 - LEVEL over all pairs.
        experiments: Number of experiments.
    """

    mean: dict[str, float]
    p: float
    critical_difference: float
    experiments: int


def friedman(values: Mapping[str, Sequence[float]], greater_is_better: Sequence[bool]) -> Ranks | None:
    """Friedman's test over experiments, with Nemenyi's critical difference.

    Source: J. Demsar, Statistical Comparisons of Classifiers over Multiple Data Sets, JMLR 7, 2006, section 3.2.2.

    Args:
        values: A value by variant and experiment, the same experiments in the same order for all.
        greater_is_better: For every experiment, whether larger values are better.

    Returns:
        The ranks; None below :data:`MIN_EXPERIMENTS` experiments or :data:`MIN_VARIANTS` variants.
    """
    table = np.array([*values.values()], float)
    if len(values) < MIN_VARIANTS or table.shape[1] < MIN_EXPERIMENTS:
        return None
    variants, experiments = table.shape
    signed = np.where(np.asarray(greater_is_better), -table, table)
    ranks = stats.rankdata(signed, axis=0).mean(axis=1)
    quantile = stats.studentized_range.ppf(LEVEL, variants, np.inf) / np.sqrt(2)
    p = float(stats.friedmanchisquare(*signed).pvalue)
    return Ranks(
        dict(zip(values, map(float, ranks), strict=True)),
        1.0 if np.isnan(p) else p,  # all variants tie in every experiment
        float(quantile * np.sqrt(variants * (variants + 1) / (6 * experiments))),
        experiments,
    )
