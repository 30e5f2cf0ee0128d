"""Means and intervals of an analysis, against SciPy on stored numbers."""

import numpy as np
import pytest
from scipy import stats

from vitplug.statistics.images import exact, jackknife, paired, student, without_groups

# Five images, two blocks of two heads; the second block has one head.
STORED = np.array(
    [
        [[1.20, 0.71], [3.1, np.nan]],
        [[1.55, 0.69], [2.7, np.nan]],
        [[0.98, 0.75], [3.3, np.nan]],
        [[1.31, 0.66], [2.9, np.nan]],
        [[1.46, 0.80], [3.6, np.nan]],
    ]
)


def test_intervals_are_those_of_scipy():
    found = student(STORED)
    for place in [(0, 0), (0, 1), (1, 0)]:
        numbers = STORED[(slice(None), *place)]
        expected = stats.ttest_1samp(numbers, 0).confidence_interval(0.95)
        assert found.mean[place] == pytest.approx(numbers.mean(), rel=1e-12)
        assert (found.low[place], found.high[place]) == pytest.approx(tuple(expected), rel=1e-12)
        assert found.n[place] == 5
    assert np.isnan([found.mean[1, 1], found.low[1, 1], found.high[1, 1]]).all() and found.n[1, 1] == 0
    some = student(np.array([[1.0], [np.nan], [3.0]]))
    assert some.mean[0] == 2 and some.n[0] == 2
    assert some.high[0] == pytest.approx(stats.t.interval(0.95, 1, loc=2, scale=stats.sem([1.0, 3.0]))[1])
    alone = student(STORED[:1, 0])
    assert alone.mean.tolist() == [1.2, 0.71] and np.isnan(alone.low).all() and np.isnan(alone.high).all()


def test_jackknife_of_a_ratio_and_of_means():
    """Of sums 12 and 14.5 without one of four pairs; that of means is the interval of Student."""
    pairs = [(1, 2), (2, 2.5), (4, 3), (5, 7)]
    both = jackknife(lambda some: {'ratio': np.divide(*np.sum(some, 0)), 'mean': np.mean(some, 0)}, pairs)
    found, expected = both['ratio'], student(np.array(pairs))
    left = np.array([11 / 12.5, 10 / 12, 8 / 11.5, 7 / 7.5])
    half = stats.t.ppf(0.975, 3) * np.sqrt(3 / 4 * ((left - left.mean()) ** 2).sum())
    assert found.mean == pytest.approx(12 / 14.5) and found.n == 4
    assert (found.high - found.mean, found.mean - found.low) == pytest.approx((half, half))
    for name in ('mean', 'low', 'high', 'n'):
        assert np.allclose(getattr(both['mean'], name), getattr(expected, name), rtol=1e-12)


def test_many_units_are_left_out_in_groups():
    """32 units are 16 pairs."""
    numbers = np.random.default_rng(0).normal(size=32)
    left = without_groups(list(numbers))
    assert [len(units) for units in left] == [30] * 16
    found = jackknife(lambda some: {'mean': np.mean(some)}, numbers)['mean']
    pairs = numbers.reshape(16, 2).mean(1)
    assert found.high - found.mean == pytest.approx(stats.t.ppf(0.975, 15) * stats.sem(pairs))
    assert without_groups([1]) == [] and without_groups([1, 2, 3]) == [[2, 3], [1, 3], [1, 2]]


def test_what_images_add_to_both_models_cancels():
    """Images differ by hundreds, the models by about one: five differences of 1.2, 0.9, 1.1, 1.0 and 0.8."""
    baseline = np.array([100.0, 900.0, 300.0, 500.0, 700.0])
    differences = np.array([1.2, 0.9, 1.1, 1.0, 0.8])
    found = paired(student(baseline + differences), student(baseline))
    expected = stats.ttest_1samp(differences, 0).confidence_interval(0.95)
    assert (found.mean, found.low, found.high) == pytest.approx((1.0, *expected), rel=1e-9) and found.n == 5
    both = [jackknife(lambda some: {'': np.mean(some)}, values)[''] for values in (baseline + differences, baseline)]
    assert (paired(*both).low, paired(*both).high) == pytest.approx(tuple(expected), rel=1e-9)


def test_differences_of_models_that_do_not_correspond():
    assert paired(student(STORED), student(STORED[:, :1])) is None
    groups = [jackknife(lambda some: {'': np.mean(some)}, range(count))[''] for count in (40, 90)]  # 16 of each
    assert paired(*groups) is None
    assert np.isnan(paired(groups[0], jackknife(lambda some: {'': np.array(np.nan)}, range(40))['']).mean)
    alone = paired(*(exact(np.array([number])) for number in (3.0, 1.0)))
    assert alone.mean.tolist() == [2] and np.isnan(alone.low).all() and alone.n.tolist() == [0]
    # An image without a number of one of the models has no difference.
    some = paired(student(np.array([1.0, np.nan, 3.0])), student(np.array([0.5, 1.0, 2.0])))
    assert some.mean == 0.75 and some.n == 2
