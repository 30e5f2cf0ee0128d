"""Claims of papers on the cells of a grid: numbers by hand, verdicts of made numbers, and tiny models."""

import json
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import bad_inputs
import numpy as np
import pytest
import torch
from made_grid import cell_folder, make_grid
from scipy import stats
from small_models import save_untrained

from vitplug.ablation import mechanism_claims
from vitplug.ablation.mechanism_claims import CLAIMS, Against, Claim
from vitplug.ablation.mechanism_rows import as_json, joined, picture, read_rows, row_of, table
from vitplug.ablation.mechanisms import Model, _plain
from vitplug.analysis.measures.attention import attention_entropy
from vitplug.analysis.study.images import find_images
from vitplug.analysis.study.measures_by_name import MEASURES
from vitplug.analysis.study.subject import Subject
from vitplug.config.reading import read_config
from vitplug.hosting import find_plug

CLAIM = Claim('ContextBroadcast', 'it falls', 'a paper', 'entropy', lambda numbers: numbers['x'], np.mean, -1)


def numbers_of(values):
    return {seed: {'x': np.array([value, value + 1])} for seed, value in enumerate(values)}


@pytest.mark.parametrize(
    ('differences', 'sign', 'verdict'),
    [
        ([-1.0, -1.1, -0.9, -1.05], -1, 'seen'),
        ([-1.0, -1.1, -0.9, -1.05], 1, 'opposite'),
        ([-1.0, 1.1, -0.9, 1.05], -1, 'undecided'),
        ([-1.0, -1.1], -1, 'undecided'),
        ([-1.0, -1.1, -0.9, -1.05], 0, 'shown'),
    ],
)
def test_verdicts(differences, sign, verdict):
    """Paired by seed, beside SciPy's interval; a seed without a baseline is left out."""
    base = np.arange(len(differences)) * 10.0
    found = numbers_of([*(base + differences), 77.0])
    row = row_of(replace(CLAIM, sign=sign), 'cb', found, numbers_of(base))
    assert row.verdict.value == verdict and row.seeds == tuple(range(len(differences)))
    assert row.differences == pytest.approx(differences)
    if len(differences) > 2:
        low, high = stats.t.interval(0.95, len(differences) - 1, np.mean(differences), stats.sem(differences))
        assert (row.interval.low, row.interval.high) == pytest.approx((low, high))
    [_, line] = table([row])
    assert line[0] == 'cb' and line[-1] == verdict and line[6] == f'{np.mean(differences):+.3g}'
    assert line[4] == f'{np.mean(row.numbers):.3g}' and line[5] == f'the baseline ({np.mean(base) + 0.5:.3g})'


def test_numbers_against_zero_and_without_spread():
    row = row_of(replace(CLAIM, sign=1, against=Against.ZERO), 'cb', numbers_of([1.0, 2.0, 3.0]), None)
    assert row.differences == (1.5, 2.5, 3.5) and row.verdict.value == 'seen' and row.reference is None
    row = row_of(CLAIM, 'cb', numbers_of([1.0, 1.0, 1.0]), numbers_of([0.0, 0.0, 0.0]))
    assert row.interval is None and row.verdict.value == 'undecided'


@pytest.mark.parametrize(('seeds', 'bands'), [(2, 0), (3, 2)])
def test_picture_has_bands_and_intervals_from_three_seeds(seeds, bands):
    row = row_of(CLAIM, 'cb', numbers_of([0.0, 1.0, 3.0][:seeds]), numbers_of([1.0, 1.0, 1.0]))
    values, differences = picture([row], '').axes[:2]
    assert len(values.collections) == bands and len(differences.containers) == bool(bands)


def test_rows_as_json_and_joined(tmp_path):
    """A row is the same after JSON; seeds that were measured earlier stay, and one measured again counts as new."""
    claim = next(claim for claim in CLAIMS if claim.plug == 'ContextBroadcast' and claim.against is Against.BASELINE)
    lambdas = next(claim for claim in CLAIMS if claim.plug == 'ContextBroadcast' and claim.against is Against.ZERO)

    def made(seeds, by):
        found = {seed: {'patch queries, mean of heads': np.array([seed + by, np.nan, 1 / 3])} for seed in seeds}
        base = {seed: {'patch queries, mean of heads': np.array([1.0, np.nan, seed**2])} for seed in seeds}
        growth = {seed: {'cb.Lambda.msa, mean': np.array([0.1, seed + by])} for seed in seeds}
        return [row_of(claim, 'cb', found, base), row_of(lambdas, 'cb', growth, None)]

    rows, path = made((3, 0, 1), 0.5), tmp_path / 'mechanisms.json'
    path.write_text(json.dumps(as_json(rows, 9), allow_nan=False))
    images, read = read_rows(path)
    assert images == 9 and table(read) == table(rows) and np.isnan(read[0].values[0][1])
    both = joined(made((4, 1), 7.0), read)
    assert [row.seeds for row in both] == [(0, 1, 3, 4)] * 2
    assert both[0].numbers == pytest.approx(
        [(seed + by + 1 / 3) / 2 for seed, by in ((0, 0.5), (1, 7), (3, 0.5), (4, 7))]
    )
    assert [*both[0].reference] == [0, 1, 3, 4] and both[1].reference is None
    assert table(joined(rows[:1], [])) == table(joined([], rows[:1]))
    path.write_text(path.read_text().replace('the attention entropy', 'an attention entropy'))
    with pytest.raises(ValueError, match=r'mechanisms\.json: is no table of mechanisms of this .* measure again'):
        read_rows(path)


def test_numbers_of_blocks_by_hand():
    depth = np.array([1.0, 3.0, np.nan, 7.0])
    assert mechanism_claims._shallow(depth) == 2 and mechanism_claims._deep(depth) == 7
    assert mechanism_claims._all(depth) == pytest.approx(11 / 3)
    blocks, values = np.array([0, 1, 3]), np.array([1.0, 3.0, 7.0])
    assert mechanism_claims._slope(depth) == pytest.approx(stats.linregress(blocks, values).slope)
    matrix = np.arange(16.0).reshape(4, 4)
    assert mechanism_claims._across(matrix) == np.mean([2, 3, 6, 7])
    after = {'a': np.zeros(1), 'a after the plug': np.ones(1)}
    assert mechanism_claims._value('a', after) == 1 and mechanism_claims._value('a', {'a': np.zeros(1)}) == 0
    learned = {
        'cb.Lambda.mlp_mid, mean': np.array([1.0]),
        'cb.Lambda.msa, mean': np.array([3.0]),
        'x, mean': np.ones(1),
    }
    assert mechanism_claims._learned('cb.Lambda', learned) == 2
    with pytest.raises(KeyError):
        mechanism_claims._learned('gab.A', learned)


def test_claims_name_plugs_and_measures_that_are_there():
    for claim in CLAIMS:
        assert find_plug(claim.plug) is not None and claim.measure in MEASURES


def test_plain_model_has_the_same_other_settings():
    models = {
        f'{plugs or "none"}, lr={lr}': {0: SimpleNamespace(plugs=plugs, axes={'lr': lr})}
        for plugs, lr in [((), 1), (('GaussianAttentionBias',), 1), (('GaussianAttentionBias',), 2), ((), 3)]
    }
    assert [_plain(label, models) for label in models] == ['none, lr=1', 'none, lr=1', None, 'none, lr=3']


@pytest.fixture
def grid(tmp_path, monkeypatch):
    """Cells with checkpoints of random weights: a plain ViT, one with Lambda, one with GAB, three seeds each."""
    folder = bad_inputs.prepare(tmp_path / 'run')
    monkeypatch.chdir(folder)
    plugs = {'none': '', 'cb(scaled=True)': "dict(type='ContextBroadcast', scaled=True)"}
    plugs['gab'] = "dict(type='GaussianAttentionBias')"
    make_grid(folder / 'grid', range(3), tuple(plugs))
    for label, plug in plugs.items():
        for seed in range(3):
            here, generator = cell_folder(folder / 'grid', label, seed), torch.Generator().manual_seed(seed)
            (here / 'config.py').write_text(
                f"_base_ = '{folder}/tiny.py'\nmodel = dict(backbone=dict(plugs=[{plug}]))\n"
            )

            def change(module, generator=generator):
                for parameter in module.parameters(recurse=False):
                    parameter.add_(0.3 * torch.randn(parameter.shape, generator=generator))

            save_untrained(here / 'config.py', here / 'epoch_1.pth', change)
            (here / 'last_checkpoint').write_text(str(here / 'epoch_1.pth'))
    return folder


@pytest.mark.integration
@pytest.mark.slow
def test_command(grid):
    said = bad_inputs.run_to(0, 'ablate.py grid --mechanisms 6', grid).out
    found = json.loads((grid / 'grid/mechanisms/mechanisms.json').read_text())
    rows = {(row['plug'], row['claim']): row for row in found['rows']}
    claims = [claim for claim in CLAIMS if claim.plug in ('ContextBroadcast', 'GaussianAttentionBias')]
    labels = dict(ContextBroadcast='cb(scaled=True)', GaussianAttentionBias='gab')
    assert list(rows) == [(labels[claim.plug], claim.text) for claim in claims]
    pictures = sorted((grid / 'grid/mechanisms').glob('*.png'))
    assert len(pictures) == len(rows) and f'{len(rows)} rows' in said
    # The entropy, from the cells' own models.
    row = rows['cb(scaled=True)', 'the attention entropy of the layers falls']
    expected = [entropy(grid, 'cb(scaled=True)', seed) - entropy(grid, 'none', seed) for seed in range(3)]
    assert row['differences'] == pytest.approx(expected, rel=1e-3, abs=1e-6) and row['seeds'] == [0, 1, 2]
    assert row['numbers'] == pytest.approx([entropy(grid, 'cb(scaled=True)', seed) for seed in range(3)], rel=1e-3)
    low, high = stats.t.interval(0.95, 2, np.mean(expected), stats.sem(expected))
    verdict = 'seen' if high < 0 else 'opposite' if low > 0 else 'undecided'
    assert row['verdict'] == verdict
    # A is compared with new weights, whose A is the plug's start.
    cells = [
        torch.load(cell_folder(grid / 'grid', 'gab', seed) / 'epoch_1.pth', weights_only=False) for seed in range(3)
    ]
    amplitudes = [
        np.mean([t.mean() for name, t in cell['state_dict'].items() if name.endswith('gab_amplitude')])
        for cell in cells
    ]
    start = torch.load(next((grid / 'grid/mechanisms').glob('gab_seed0*_start/start.pth')), weights_only=False)
    first = np.mean([t.mean() for name, t in start['state_dict'].items() if name.endswith('gab_amplitude')])
    row = rows['gab', 'learned A']
    assert row['verdict'] == 'shown'
    assert row['differences'] == pytest.approx([value - first for value in amplitudes], abs=1e-5)
    # A second call measures nothing again.
    before = {path: path.stat().st_mtime_ns for path in (grid / 'grid/mechanisms').rglob('*.npz')}
    bad_inputs.run_to(0, 'ablate.py grid --mechanisms 6', grid)
    assert before == {path: path.stat().st_mtime_ns for path in (grid / 'grid/mechanisms').rglob('*.npz')}
    assert json.loads((grid / 'grid/mechanisms/mechanisms.json').read_text()) == found
    # Other images are another measurement.
    said = bad_inputs.run_to(2, 'ablate.py grid --mechanisms 3', grid).err
    assert 'take as many images as before, or remove that folder' in said
    # A cell without its checkpoint, as one that is taken from a report, is left out and named.
    lost = cell_folder(grid / 'grid', 'gab', 1)
    (lost / 'last_checkpoint').unlink()
    said = bad_inputs.run_to(0, 'ablate.py grid --mechanisms 6', grid).out
    assert f'left out, without a checkpoint: {lost.name}\n' in said
    for row in json.loads((grid / 'grid/mechanisms/mechanisms.json').read_text())['rows']:
        assert row['seeds'] == ([0, 2] if row['plug'] == 'gab' else [0, 1, 2])


def entropy(folder, label: str, seed: int) -> float:
    here = cell_folder(folder / 'grid', label, seed)
    cfg = read_config(str(here / 'config.py'))
    subject = Subject.read('model', cfg, str(here / 'epoch_1.pth'), 'cpu', False)
    found = []
    for path in find_images(cfg, 'val', 6):
        image = subject.load(path)
        _, recorded = subject.backbone.forward_intermediates(image.inputs, 'probs')
        for layer, probs in recorded['probs'].items():
            found.append(attention_entropy(probs.detach(), subject.place(layer, image.size)).mean().item())
    return float(np.mean(found))


@pytest.mark.integration
def test_start_of_a_cell_that_starts_from_a_checkpoint(grid):
    """Its weights, not new ones; a classifier of other classes starts anew."""
    here = cell_folder(grid / 'grid', 'gab', 0)
    trained = torch.load(here / 'epoch_1.pth', weights_only=False)['state_dict']
    config = here / 'config.py'
    config.write_text(config.read_text() + f"load_from = '{here}/epoch_1.pth'\n")
    path = Model(here, 0, is_start=True).checkpoint(grid / 'start')
    found = torch.load(path, weights_only=False)['state_dict']
    assert all(torch.equal(found[key], value) for key, value in trained.items())
    assert not [*path.parent.glob('*.partial')]


@pytest.mark.integration
def test_refused(grid):
    said = partial(bad_inputs.run_to, 2, 'ablate.py grid --mechanisms', grid)
    for path in (grid / 'grid').glob('cells/*/last_checkpoint'):
        path.unlink()
    assert (
        'grid: none of its 9 finished cells has a checkpoint: mechanisms are measured on trained models, so train the '
        'grid with --keep last'
    ) in said().err
    for path in (grid / 'grid').glob('cells/*/done.json'):
        path.unlink()
    assert '--mechanisms: no finished cell of grid has one of these plugs alone: ContextBroadcast' in said().err
    assert 'tiny.py has no grid.json' in bad_inputs.run_to(2, 'ablate.py tiny.py --mechanisms', grid).err


def test_every_claim_is_in_the_docs():
    page = (Path(__file__).parents[2] / 'docs/mechanisms.md').read_text()
    for claim in CLAIMS:
        row = f'| {claim.plug} | {claim.text} | {claim.source} | `{claim.measure}` | {claim.against.value} |'
        assert row in page, row
