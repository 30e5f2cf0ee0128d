"""Several grids together: signs of pairs, p values together, ranks, and what is refused."""

import json

import numpy as np
import pytest
from made_grid import LABELS, cell_folder, make_grid, value_of
from scipy import stats

from vitplug.ablation.ablate_command import main
from vitplug.ablation.across import compare_grids, write_comparison
from vitplug.ablation.summary import summarise


@pytest.fixture(scope='module')
def folders(tmp_path_factory):
    """Grids with other seeds: a metric in points, one in shares, and one without the last two variants."""
    at = tmp_path_factory.mktemp('grids')
    make_grid(at / 'one', seeds=range(5))
    make_grid(at / 'two', seeds=range(5, 10), metric='coco/segm_mAP', scale=0.01)
    make_grid(at / 'three', seeds=range(10, 15))
    make_grid(at / 'few', seeds=range(15, 18), labels=LABELS[:3])
    return [at / name for name in ('one', 'two', 'three', 'few')]


def difference(label, seed):
    return value_of(label, seed) - value_of('none', seed)


def test_pairs_of_all_grids_are_counted(folders):
    found = compare_grids({folder.name: summarise(folder) for folder in folders})
    by_label = {one.label: one for one in found.variants}
    for label, seeds in (('cb', range(18)), ('residual(alpha=0.25)', range(15))):
        worse = sum(difference(label, seed) < 0 for seed in seeds)
        assert (by_label[label].signs.below, by_label[label].signs.above) == (worse, len(seeds) - worse)
    assert by_label['cb'].verdict == 'better' and by_label['gab'].verdict == 'worse'
    assert by_label['cb'].p_signs == pytest.approx(4 * 2 * 0.5**18), 'of four variants, after Holm'
    for label, side in (('gab', 'less'), ('cb', 'greater')):
        p = [
            stats.ttest_1samp([difference(label, seed) for seed in seeds], 0, alternative=side).pvalue
            for seeds in _seeds()
        ]
        assert by_label[label].p_together == pytest.approx(2 * stats.combine_pvalues(p, 'stouffer').pvalue, rel=1e-6)


def _seeds():
    return range(5), range(5, 10), range(10, 15), range(15, 18)


def test_ranks_are_of_the_grids_that_have_all_variants(folders):
    """Three grids have five variants, four have three: the larger table is ranked."""
    found = compare_grids({folder.name: summarise(folder) for folder in folders})
    means = np.array(
        [[np.mean([value_of(label, seed) for seed in seeds]) for seeds in _seeds()[:3]] for label in LABELS]
    )
    expected = stats.rankdata(-means, axis=0).mean(1)
    assert found.ranks.experiments == 3 and found.ranks.mean == pytest.approx(dict(zip(LABELS, expected, strict=True)))


def test_ranks_are_of_what_grids_have_in_common(tmp_path):
    """Each of three grids has a variant of its own, and pairs of them share one more."""
    grids = {}
    for name, more in (('a', 'xy'), ('b', 'yz'), ('c', 'zx'), ('d', '')):
        labels = (*LABELS[:3], *more) if more else LABELS[:2]
        grids[name] = summarise(make_grid(tmp_path / name, labels=labels, seeds=range(3)))
    ranks = compare_grids(grids).ranks
    assert ranks.experiments == 3 and list(ranks.mean) == list(LABELS[:3])
    assert compare_grids({name: grids[name] for name in 'abd'}).ranks is None


def test_grids_together_have_a_direction(tmp_path):
    """Where less is better, a fall counts as a rise elsewhere."""
    seeds = range(5)
    up = summarise(make_grid(tmp_path / 'up', labels=LABELS[:2], seeds=seeds))
    for name, better in (('agree', True), ('contradict', False)):
        other = summarise(make_grid(tmp_path / name, labels=LABELS[:2], seeds=seeds, greater_is_better=better))
        [cb] = compare_grids({'up': up, name: other}).variants
        assert cb.p_together == pytest.approx(0 if better else 1, abs=1e-3)


def test_a_loss_is_better_below(tmp_path):
    make_grid(tmp_path / 'loss', metric='loss', greater_is_better=False, labels=LABELS[:3])
    found = compare_grids({'loss': summarise(tmp_path / 'loss')})
    assert {one.label: one.signs.below for one in found.variants} == {'cb': 5, 'gab': 0}


def test_change_of_a_difference_between_two_grids(tmp_path, capsys):
    """A metric in shares of one; the second grid has one seed less, one variant less, and is better by 20 points."""
    one, two = tmp_path / 'short', tmp_path / 'long'
    make_grid(one, seeds=range(5), metric='coco/segm_mAP', scale=0.01)
    make_grid(two, seeds=range(1, 5), metric='coco/segm_mAP', scale=0.01, labels=LABELS[:4])
    bias = {'cb': (0.002, 0.003, 0.001, 0.002), 'gab': (0.004, -0.004, 0.003, -0.003)}
    for label in LABELS[:4]:
        for seed, more in zip(range(1, 5), bias.get(label, (0,) * 4), strict=True):
            done = cell_folder(two, label, seed) / 'done.json'
            value = 0.01 * value_of(label, seed) + 0.2 + more
            done.write_text(json.dumps(json.loads(done.read_text()) | dict(value=value)))
    changes = compare_grids({'short': summarise(one), 'long': summarise(two)}).changes
    assert list(changes) == ['cb', 'gab', 'gab+residual'] and changes['cb'].seeds == (1, 2, 3, 4)
    expected = stats.ttest_1samp(np.multiply(bias['cb'], 100), 0)
    low, high = expected.confidence_interval(0.95)
    assert (changes['cb'].difference, changes['cb'].low, changes['cb'].high) == pytest.approx((0.2, low, high))
    assert changes['cb'].p_holm == pytest.approx(3 * expected.pvalue), 'of three variants, after Holm'
    assert changes['gab+residual'].difference == 0 and changes['gab+residual'].p is None, 'equal up to rounding'
    assert changes['cb'].verdict.value == 'better'
    main([str(one), '--across', str(two)])
    assert f'+0.20 ({low:+.2f} to {high:+.2f})' in capsys.readouterr().out


def test_changes_need_two_grids_with_one_metric_and_common_seeds(folders, tmp_path):
    one, two, three, few = (summarise(folder) for folder in folders)
    same = summarise(make_grid(tmp_path / 'same', seeds=range(5)))
    assert compare_grids({'one': one, 'same': same}).changes
    for others in ((two,), (three,), (same, few)):  # another metric, other seeds, a third grid
        assert not compare_grids({'one': one} | {str(n): other for n, other in enumerate(others)}).changes
    turned = summarise(make_grid(tmp_path / 'turned', seeds=range(5), greater_is_better=False))
    assert not compare_grids({'one': one, 'turned': turned}).changes


def test_correction_over_all_grids_is_holms_over_every_cell_of_the_table(folders):
    grids = {folder.name: summarise(folder) for folder in folders}
    found, p = compare_grids(grids), []
    for summary in grids.values():
        p += [row.comparison.p for row in summary.compared]
    assert len(found.p_over_all) == len(p) and min(found.p_over_all.values()) == pytest.approx(min(p) * len(p))


def test_command_writes_table_json_and_picture(folders, tmp_path, capsys):
    write_comparison(folders[2:], tmp_path)  # report.json is written from folders below
    assert json.loads((tmp_path / 'across.json').read_text())['ranks'] is None
    main([str(folders[0]), '--across', *map(str, folders[1:]), '--out', str(tmp_path)])
    assert json.loads((tmp_path / 'across.json').read_text())['ranks']['experiments'] == 3
    assert (tmp_path / 'across.png').stat().st_size > 5000 and '| cb | 4 |' in (tmp_path / 'across.md').read_text()
    assert 'pairs worse' in capsys.readouterr().out


def test_grids_of_one_name_or_other_baselines_are_refused(folders, tmp_path):
    make_grid(tmp_path / 'one')
    with pytest.raises(ValueError, match='two grids are named one'):
        write_comparison([folders[0], tmp_path / 'one'], None)
    make_grid(tmp_path / 'other', labels=('cb', 'gab'))
    with pytest.raises(ValueError, match='different baselines: cb, none'):
        write_comparison([folders[0], tmp_path / 'other'], None)
