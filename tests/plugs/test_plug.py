"""Choosing layers, proving combinations, refusing what cannot work, saying what was built."""

import pytest
import torch
from cases import HOSTS, CarryProbe, swin, vit

from vitplug.attention import GlobalLayout, Site
from vitplug.plugs import BlockShape, ContextBroadcast, LayerPlan, LayerPlugs, PlugSet, register  # noqa: F401
from vitplug.plugs.plug_set import CHANGES
from vitplug.registry import PLUGS

BAD_PLUGS = {
    'not a list': (dict(type='ContextBroadcast'), r'plugs=.*expected a text such as .*, or a list such as'),
    'none': (None, r'plugs=None: expected a text such as .*, or a list such as'),
    'no dict': ([5], r'plugs: 5 is no plug; expected a dict'),
    'no type': ([dict(scaled=True)], r"'scaled': True.* is no plug"),
    'unknown plug': ([dict(type='ContextBroadcst')], r"type='ContextBroadcst'.*choose from.*ContextBroadcast"),
    'unknown argument': ([dict(type='ContextBroadcast', positon='msa')], r"\['positon'\]; it takes .*position"),
    'unknown position': ([dict(type='ContextBroadcast', position='mlp')], r"position='mlp': expected one of .*mlp_end"),
    'no position': ([dict(type='ContextBroadcast', position=[])], r'position=\[\]: expected one of'),
    'position twice': ([dict(type='ContextBroadcast', position=['msa', 'msa'])], r"position=\['msa', 'msa'\]"),
    'layer too high': ([dict(type='ContextBroadcast', layers=[0, 4])], r'layers=\[0, 4\].*0 to 3'),
    'layer below zero': ([dict(type='ContextBroadcast', layers=[-1])], r'layers=\[-1\].*0 to 3'),
    'layer twice': ([dict(type='ContextBroadcast', layers=[1, 1])], r'layers=\[1, 1\].*different'),
    'unknown layers': ([dict(type='ContextBroadcast', layers='lower')], r"layers='lower': expected 'all', 'upper'"),
    'layers not integers': ([dict(type='ContextBroadcast', layers=[0.5])], r'layers=\[0.5\]: expected'),
    'scaled no bool': ([dict(type='ContextBroadcast', scaled='yes')], r"scaled='yes': expected True or False"),
    'a start without a scale': (
        [dict(type='ContextBroadcast', scale_init_value=1)],
        r'scale_init_value=1 goes with scaled=True only',
    ),
    'no number': ([dict(type='ContextBroadcast', scale_init_value='0')], r"scale_init_value='0': expected a number"),
    'plug twice': (
        [dict(type='ContextBroadcast')] * 2,
        r'ContextBroadcast occurs more than once for blocks 0-3; .*give each of them layers=\[\.\.\.\]',
    ),
}


@pytest.mark.parametrize('host', HOSTS)
@pytest.mark.parametrize('case', BAD_PLUGS)
def test_bad_plugs_are_named(host, case):
    plugs, message = BAD_PLUGS[case]
    with pytest.raises(ValueError, match=message):
        HOSTS[host](plugs=plugs)


@pytest.mark.parametrize(
    ('layers', 'expected'), [('all', [0, 1, 2, 3, 4]), ('upper', [2, 3, 4]), ([3, 1], [1, 3]), ((0,), [0]), ([], [])]
)
def test_layers(layers, expected):
    assert ContextBroadcast(layers=layers).layer_indices(5) == expected


@pytest.mark.parametrize('host', HOSTS)
def test_only_chosen_blocks_get_the_plug(host):
    model = HOSTS[host](plugs=[dict(type='ContextBroadcast', scaled=True, layers=[1, 3])])
    assert [bool(list(block.plugs.parameters())) for block in model.plugged_blocks()] == [False, True, False, True]


def test_exclusive_sockets():
    class Rival(CarryProbe):
        name = 'rival'

    with pytest.raises(ValueError, match=r"\['probe', 'rival'\] both take the 'scores' socket of block 0"):
        vit(plugs=[dict(type=CarryProbe), dict(type=Rival)])


def test_exclusive_sockets_may_be_shared_out_by_block():
    class Rival(CarryProbe):
        name = 'rival'

    model = vit(plugs=[dict(type=CarryProbe, layers=[0, 1]), dict(type=Rival, layers=[2, 3])])
    assert not any(block.plugs.fuses(Site(GlobalLayout(2, 2))) for block in model.plugged_blocks())


def test_plugs_need_not_be_registered_under_a_scope():
    assert vit(plugs=[dict(type='vitplug.ContextBroadcast')]).plugged_blocks()[0].plugs.at('mlp_end')


PLANS = [LayerPlan(i, 4, 8, BlockShape.stock(8, 2, 32), Site(GlobalLayout(3, 4), index=i)) for i in range(4)]


def summary(*plugs):
    plug_set = PlugSet(plugs, len(PLANS))
    return plug_set.summarize(plug_set.build(PLANS)[1])


def test_summary_says_which_where_and_whether_fused():
    assert summary(ContextBroadcast(position='msa', layers=[0, 1, 3]), CarryProbe(layers='upper')) == (
        "plugs: ContextBroadcast(position='msa') on blocks 0-1, 3 (changes pretrained outputs from the start); "
        'CarryProbe() on blocks 2-3 (changes pretrained outputs from the start); '
        'attention: fused but on blocks 2-3 (probe changes scores or maps)'
    )
    assert summary() == 'plugs: none; attention: fused'


@pytest.mark.parametrize('plug', PLUGS.module_dict.values(), ids=lambda plug: plug.__name__)
def test_summary_has_no_defaults(plug):
    assert plug().describe() == f'{plug.__name__}()'


STARTS = [
    *(f"{name}(start='{start}')" for name in ('gate', 'peg') for start in ('identity', 'paper')),
    *("value-residual(start='identity', learnable=True)", 'cb(scaled=True)', 'cb(scaled=True, scale_init_value=1.0)'),
    *("refiner(init='default')", 'refiner(reduction=False)', 'refiner(expansion=0)', "refiner(constraint='rowcol')"),
    *('residual(alpha=1)', 'residual(alpha=0)', 'broad(gamma=0)'),
]


@pytest.mark.parametrize('plugs', [*PLUGS.module_dict, *STARTS])
def test_summary_says_which_plugs_change_outputs_at_their_start(plugs):
    torch.manual_seed(0)
    settings = dict(arch=dict(embed_dims=32, num_layers=4, num_heads=4, feedforward_channels=64), img_size=32)
    plain, plugged = vit(**settings).eval(), vit(**settings, plugs=plugs).eval()
    for parameter in plain.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    plugged.load_state_dict(plain.state_dict(), strict=False)
    images = torch.randn(2, 3, 32, 32)
    is_same = torch.allclose(plugged(images)[0], plain(images)[0], atol=1e-4)
    assert is_same is (CHANGES not in plugged.plug_summary)


@pytest.mark.parametrize('host', [vit, swin])
def test_build_logs_one_line(host, mm_log):
    host(plugs=[dict(type='ContextBroadcast')])
    lines = [record.message for record in mm_log.records if 'plugs:' in record.message]
    assert len(lines) == 1 and 'ContextBroadcast' in lines[0] and 'attention: fused' in lines[0]


def test_one_dimensional_plug_parameters():
    """mmengine's optimizer constructors exempt 1-d parameters from weight decay, not 0-d ones."""
    model = vit(plugs=[dict(type='ContextBroadcast', scaled=True)])
    shapes = {p.ndim for name, p in model.named_parameters() if '.plugs.' in name}
    assert shapes == {1}


@pytest.mark.integration
def test_plugs_and_core_need_no_openmmlab(tmp_path):
    """So that they, and their benchmark, run where only torch is installed."""
    import subprocess
    import sys

    code = (
        'import sys\n'
        'for name in ("mmengine", "mmcv", "mmdet", "mmseg", "mmpretrain"): sys.modules[name] = None\n'
        'import vitplug.plugs, vitplug.attention.grids\n'
    )
    subprocess.run([sys.executable, '-c', code], check=True, cwd=tmp_path)


def test_tokens_pass_an_empty_layer_untouched():
    x = torch.randn(1, 2, 3)
    assert LayerPlugs().tokens('mlp_end', x, Site(GlobalLayout(1, 2))) is x
