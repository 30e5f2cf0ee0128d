"""What plugs have learned: of a model, among the scalars of a training, and from its checkpoint."""

import json

import bad_inputs
import pytest
import torch
from cases import HOSTS, ONE_GRID_HOSTS, randomize, vit
from PIL import Image
from torch.testing import assert_close

from vitplug.analysis.plug_values import plot_values, read_plug_values
from vitplug.checkpoints import write_new
from vitplug.runs.hooks import PlugValuesHook
from vitplug.runs.hooks.plug_values import as_scalars

PLUGS = [
    dict(type='GaussianAttentionBias', per_head=True, layers=[1, 3]),
    dict(type='ResidualAttention', per_layer=True, constraint='sigmoid', stage_transition='reset'),
    dict(type='ContextBroadcast', scaled=True, position=['mlp_end', 'mlp_mid'], layers='upper'),
]
SHARED = [
    dict(type='GaussianAttentionBias', share_layers=True),
    dict(type='ResidualAttention', alpha=0.25),
    dict(type='BroadAttention'),
]
VALUES = {
    'gab.A': ('bias.gab_amplitude', [1, 3], lambda raw: raw),
    'gab.sigma': ('bias.gab_sigma', [1, 3], lambda raw: raw),
    'residual_attention.alpha': ('scores.alpha.residual_alpha', [1, 3], lambda raw: 1 / (1 + (-raw).exp())),
    'cb.Lambda.mlp_end': ('mlp_end.cb_scale', [2, 3], lambda raw: raw),
    'cb.Lambda.mlp_mid': ('mlp_mid.cb_scale', [2, 3], lambda raw: raw),
}


def checkpoint_of(model, plugs, path):
    cfg = f"model = dict(type='ImageClassifier', backbone=dict(type='vitplug.Host', plugs={plugs!r}))"
    state = {f'backbone.{key}': value for key, value in model.state_dict().items()}
    return str(write_new(state, path, meta=dict(cfg=cfg)))


@pytest.mark.parametrize('host', ONE_GRID_HOSTS)
def test_values_of_every_block(host, tmp_path):
    model = randomize(HOSTS[host](plugs=PLUGS))
    found = model.learned_values()
    assert set(found) == set(VALUES)
    for name, (key, blocks, act) in VALUES.items():
        plug = name.partition('.')[0]
        expected = {i: act(model.plugged_blocks()[i].plugs[plug].state_dict()[key]) for i in blocks}
        got = {i: value for i, value in found[name].items() if i != 2 or plug == 'cb'}  # ViT's third block has an alpha
        assert_close(got, expected)
    assert_close(read_plug_values(checkpoint_of(model, PLUGS, tmp_path / 'a.pth')), found)


def test_values_of_the_network(tmp_path):
    model = vit(plugs=SHARED)
    alpha = model.plugs['residual_attention']['start'].alpha.residual_alpha
    alpha.data.fill_(1.5)  # as an optimizer may leave it
    found = model.learned_values()
    expected = {'gab.A': 2.0, 'gab.sigma': 5.0, 'residual_attention.alpha': 1.0}
    assert all(set(by_block) == {None} for by_block in found.values())
    assert {name: by_block[None].item() for name, by_block in found.items()} == expected
    assert not any(value.requires_grad for values in found.values() for value in values.values())
    assert_close(read_plug_values(checkpoint_of(model, SHARED, tmp_path / 'a.pth')), found)
    assert dict(as_scalars(found)).keys() == {f'{name}/all_blocks' for name in expected}


def test_values_of_a_plug_that_occurs_twice(tmp_path):
    """The second one has a number, by the order of their blocks and not that of the list."""
    plugs = [dict(type='GaussianAttentionBias', layers='upper'), dict(type='GaussianAttentionBias', layers=[0])]
    model = randomize(vit(plugs=plugs))
    found = model.learned_values()
    assert {name: list(by_block) for name, by_block in found.items()} == {
        **{name: [0] for name in ('gab.A', 'gab.sigma')},
        **{name: [2, 3] for name in ('gab_2.A', 'gab_2.sigma')},
    }
    assert_close(read_plug_values(checkpoint_of(model, plugs, tmp_path / 'a.pth')), found)


def test_several_numbers_become_three_scalars():
    values = {'cb.Lambda': {7: torch.tensor([1.0, -2.0, 4.0])}, 'gab.A': {0: torch.tensor([3.0])}}
    assert dict(as_scalars(values)) == {
        'cb.Lambda.mean/block_07': 1.0,
        'cb.Lambda.min/block_07': -2.0,
        'cb.Lambda.max/block_07': 4.0,
        'gab.A/block_00': 3.0,
    }


def test_plot(tmp_path):
    values = {'gab.A': {0: torch.tensor([1.0, 2.0]), 1: torch.tensor([3.0, 5.0])}, 'alpha': {None: torch.tensor([0.5])}}
    plot_values(values, tmp_path / 'a.png', 'title')
    with Image.open(tmp_path / 'a.png') as image:
        assert len(image.convert('RGB').getcolors(maxcolors=10_000)) > 10


@pytest.mark.integration
@pytest.mark.slow
def test_training_records_them_and_its_checkpoint_shows_them(tmp_path):
    folder = bad_inputs.prepare(tmp_path / 'run')
    plugs = [dict(type='GaussianAttentionBias'), dict(type='ResidualAttention')]
    bad_inputs.child(f'model = dict(backbone=dict(plugs={plugs}))')(folder)
    options = 'optim_wrapper.optimizer.lr=1.0 default_hooks.plug_values.interval=1'
    done = bad_inputs.run(f'train.py child.py --cfg-options {options}', folder)
    assert done.status == 0, done.text
    lines = [json.loads(line) for path in folder.glob('work/*/vis_data/scalars.json') for line in path.open()]
    records = [line for line in lines if 'gab.sigma/block_01' in line]
    assert [record['step'] for record in records] == [1, 2]
    state = torch.load(folder / 'work/epoch_1.pth', weights_only=False)['state_dict']
    last = {
        **{f'gab.A/block_0{i}': f'layers.{i}.plugs.gab.bias.gab_amplitude' for i in (0, 1)},
        **{f'gab.sigma/block_0{i}': f'layers.{i}.plugs.gab.bias.gab_sigma' for i in (0, 1)},
        'residual_attention.alpha/all_blocks': 'plugs.residual_attention.start.alpha.residual_alpha',
    }
    for name, key in last.items():
        assert records[-1].pop(name) == pytest.approx(state[f'backbone.{key}'].item()), name
    assert records[-1].keys() == {'step'}
    assert records[0]['gab.A/block_00'] != state[f'backbone.{last["gab.A/block_00"]}']
    shown = bad_inputs.run('plug_values.py work/epoch_1.pth', folder)
    assert shown.status == 0, shown.text
    rows = [line.split() for line in shown.out.splitlines()]
    sigma = state['backbone.layers.1.plugs.gab.bias.gab_sigma'].item()
    assert ['gab.sigma', '1', *[f'{sigma:.4g}'] * 3, '1'] in rows and (folder / 'epoch_1_plugs.png').is_file()
    again = bad_inputs.run('plug_values.py work/epoch_1.pth', folder)
    assert again.status == 2 and 'exists and is not overwritten' in again.err


def test_interval():
    with pytest.raises(ValueError, match='interval = 0: must be at least 1'):
        PlugValuesHook(interval=0)
