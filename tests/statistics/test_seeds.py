"""Intervals and corrections against SciPy's own functions and numbers by hand."""

import numpy as np
import pytest
from scipy import stats

from vitplug.statistics.seeds import MIN_SEEDS, Verdict, compare, holm, mean_and_sd, seeds_needed

# Top-1 of two trainings for seeds 0 to 4.
PLAIN = {0: 88.1, 1: 87.6, 2: 88.4, 3: 87.9, 4: 88.2}
PLUG = {0: 88.6, 1: 87.8, 2: 88.9, 3: 88.7, 4: 88.5}


def one(ours, theirs, **settings):
    return compare({'none': theirs, 'cb': ours}, 'none', **settings)['cb']


# --- one interval ---


def test_interval_by_hand():
    """Differences 1, 2, 3: mean 2, standard error 1 / sqrt(3), quantile 4.302653 of 2 degrees of freedom."""
    found = one({0: 1.0, 1: 2.0, 2: 3.0}, {0: 0.0, 1: 0.0, 2: 0.0})
    assert found.difference == 2
    assert (found.low, found.high) == pytest.approx((2 - 4.3026527 / 3**0.5, 2 + 4.3026527 / 3**0.5), abs=1e-6)
    # Two degrees of freedom have a closed form: P(|T| > t) = 1 - t / sqrt(2 + t^2).
    t = 2 * 3**0.5
    assert found.p_holm == pytest.approx(1 - t / (2 + t * t) ** 0.5, rel=1e-9)
    assert found.verdict is Verdict.OPEN


def test_seeds_are_paired():
    """Seeds differ by far more than the plug from the baseline: without pairs nothing would be seen."""
    base = {seed: 80.0 + 3 * seed for seed in range(5)}
    ours = {seed: value + 0.5 + 0.02 * (-1) ** seed for seed, value in base.items()}
    found = one(ours, base)
    assert found.verdict is Verdict.BETTER and 0.4 < found.low < found.high < 0.6
    assert stats.ttest_ind([*ours.values()], [*base.values()]).pvalue > 0.5


@pytest.mark.parametrize('count', [0, 2])
def test_too_few_seeds(count):
    few = {seed: PLUG[seed] for seed in range(count)}
    found = one(few, PLAIN)
    assert found.verdict is Verdict.TOO_FEW and found.low is found.high is found.p_holm is None
    assert found.difference == (pytest.approx(np.mean([PLUG[s] - PLAIN[s] for s in few])) if count else None)


@pytest.mark.parametrize('step', [0.0, 0.1])
def test_equal_differences_are_no_certainty(step):
    """A difference of the same size in every seed would have p = 0; 0.1 is not exact, so neither are differences."""
    found = one({seed: value + step for seed, value in PLAIN.items()}, PLAIN)
    assert found.verdict is Verdict.NO_SPREAD and found.difference == pytest.approx(step)
    assert found.low is found.high is found.p_holm is None


def test_verdicts_follow_the_direction_of_the_metric():
    assert one(PLUG, PLAIN, greater_is_better=False).verdict is Verdict.WORSE
    assert one(PLAIN, PLUG).verdict is Verdict.WORSE
    assert one(PLAIN, PLUG, greater_is_better=False).verdict is Verdict.BETTER


def test_wrong_input_is_refused():
    with pytest.raises(ValueError, match=r"baseline = 'plain': must be one of \['cb', 'none'\]"):
        compare({'none': PLAIN, 'cb': PLUG}, 'plain')
    with pytest.raises(ValueError, match='cb, seed 3: the value is nan, must be finite'):
        compare({'none': PLAIN, 'cb': {**PLUG, 3: float('nan')}}, 'none')
    with pytest.raises(ValueError, match='must be a difference above 0'):
        one(PLUG, PLAIN, margin=0.0)


def test_mean_and_sd():
    assert mean_and_sd([2.0]) == (2.0, None) and mean_and_sd([1.0, 3.0]) == (2.0, pytest.approx(2**0.5))


# --- Holm's correction ---


def test_holm_by_hand():
    """3 x 0.01; 2 x 0.02; the last one is 0.03, and at least the one before it."""
    assert holm([0.02, 0.03, 0.01]) == pytest.approx([0.04, 0.04, 0.03])
    assert holm([0.5, 0.9, 0.001, 0.04]) == pytest.approx([1.0, 1.0, 0.004, 0.12])
    assert holm([0.3]) == pytest.approx([0.3]) and holm([]).shape == (0,)


def test_family_is_all_variants():
    """Variants that are late count as well: a result does not lose its verdict when they come in with p = 1."""
    late = {f'late{i}': {0: 88.0} for i in range(6)}
    alone = compare({'none': PLAIN, 'cb': PLUG}, 'none')['cb']
    found = compare({'none': PLAIN, 'cb': PLUG, **late}, 'none')
    assert [*found] == ['cb', *late] and alone.verdict is Verdict.BETTER
    assert found['cb'].p_holm == pytest.approx(7 * alone.p_holm)
    assert found['cb'].verdict is Verdict.OPEN and (found['cb'].low, found['cb'].high) == (alone.low, alone.high)


# --- equal within a margin ---


def test_equality_is_a_90_percent_interval_within_the_margin():
    rng = np.random.default_rng(2)
    for _ in range(200):
        ours, margin = dict(enumerate(rng.normal(0.2, 0.5, 5))), rng.uniform(0.1, 2)
        found = one(ours, dict.fromkeys(ours, 0.0), margin=margin)
        ends = stats.ttest_1samp([*ours.values()], 0).confidence_interval(0.9)
        assert found.within == (-margin < ends.low and ends.high < margin)


def test_verdict_of_equality():
    same = {seed: value + 0.02 * (-1) ** seed for seed, value in PLAIN.items()}
    assert one(same, PLAIN).verdict is Verdict.OPEN
    assert one(same, PLAIN, margin=0.3).verdict is Verdict.EQUAL
    assert one(same, PLAIN, margin=0.01).verdict is Verdict.OPEN
    small = {seed: value + 0.1 for seed, value in same.items()}
    both = one(small, PLAIN, margin=0.3)
    assert both.verdict is Verdict.BETTER and both.within
    late = {f'late{i}': {0: 88.0} for i in range(6)}  # equality is corrected for all variants, too
    found = [compare({'none': PLAIN, 'same': same, **more}, 'none', margin=0.03)['same'] for more in ({}, late)]
    assert [verdict.within for verdict in found] == [True, False]


# --- planning ---


def test_seeds_needed_are_those_of_statsmodels():
    power = pytest.importorskip('statsmodels.stats.power').TTestPower()
    for difference, sd in ((0.5, 0.5), (0.3, 0.3), (1.0, 0.7), (-0.2, 0.9)):
        exact = power.solve_power(abs(difference) / sd, power=0.8, alpha=0.05)
        assert seeds_needed(difference, sd) == np.ceil(exact)
    assert seeds_needed(5.0, 0.1) == MIN_SEEDS and seeds_needed(1.0, 0.0) == MIN_SEEDS
    assert seeds_needed(1e-4, 1.0) is None
