"""Signs, p values together and ranks, against numbers by hand, SciPy and autorank."""

import numpy as np
import pytest
from scipy import stats

from vitplug.statistics.grids import friedman, signs, stouffer


def test_signs_of_pairs():
    """18 of 18 pairs on one side: twice 0.5^18."""
    found = signs([-0.1 * k for k in range(1, 19)])
    assert (found.below, found.above) == (18, 0) and found.p == pytest.approx(2 * 0.5**18)
    mixed = signs([-1.0, 0.0, 2.0, 3.0])
    assert (mixed.below, mixed.above) == (1, 2) and mixed.p == pytest.approx(1.0)
    assert signs([0.0, 0.0]).p is None


def test_p_values_together():
    """The sum of their z is normal; experiments that contradict each other show nothing."""
    p = np.array([0.04, 0.2, 0.01])
    expected = 2 * stats.norm.sf(stats.norm.isf(p).sum() / 3**0.5)
    assert stouffer(p) == pytest.approx(expected) and stouffer(1 - p) == pytest.approx(expected)
    assert stouffer([1e-5, 1 - 1e-5]) == pytest.approx(1.0)


# Accuracies of the first four data sets in Demsar's Table 6, whose ranks can be told by eye.
TABLE = {
    'a': [0.763, 0.599, 0.954, 0.628],
    'b': [0.768, 0.591, 0.971, 0.661],
    'c': [0.771, 0.590, 0.968, 0.654],
    'd': [0.798, 0.569, 0.967, 0.657],
}


def test_ranks_by_hand():
    found = friedman(TABLE, [True] * 4)
    assert found.mean == {'a': 3.25, 'b': 1.75, 'c': 2.5, 'd': 2.5} and found.experiments == 4
    # Demsar's Table 5: q of 4 variants at 0.05 is 2.569.
    assert found.critical_difference == pytest.approx(2.569 * (4 * 5 / 24) ** 0.5, rel=1e-3)
    assert found.p == pytest.approx(stats.friedmanchisquare(*TABLE.values()).pvalue)


def test_a_metric_that_falls_is_ranked_from_below():
    turned = {label: [-value if i == 1 else value for i, value in enumerate(row)] for label, row in TABLE.items()}
    assert friedman(turned, [True, False, True, True]) == friedman(TABLE, [True] * 4)


def test_ties_and_few_experiments():
    assert friedman({'a': [1, 1, 1], 'b': [1, 1, 1], 'c': [1, 1, 1]}, [True] * 3).p == 1.0
    assert friedman({'a': [1, 2], 'b': [1, 2], 'c': [1, 2]}, [True] * 2) is None
    assert friedman({'a': [1, 2, 3], 'b': [1, 2, 3]}, [True] * 3) is None


def test_ranks_are_those_of_autorank():
    autorank, pandas = pytest.importorskip('autorank'), pytest.importorskip('pandas')
    rng = np.random.default_rng(0)
    values = {f'v{i}': list(rng.normal(i / 2, 1, 12) ** 3) for i in range(4)}
    theirs = autorank.autorank(
        pandas.DataFrame(values), force_mode='nonparametric', order='descending', approach='frequentist'
    )
    ours = friedman(values, [True] * 12)
    assert ours.mean == pytest.approx(dict(theirs.rankdf['meanrank']))
    assert ours.p == pytest.approx(theirs.pvalue) and ours.critical_difference == pytest.approx(theirs.cd, rel=2e-3)
