"""One syntax for plugs everywhere: texts, lists of short names, dicts and objects, in Python, configs and commands."""

from pathlib import Path

import pytest
from cases import vit
from hypothesis import given, settings
from hypothesis import strategies as st

from vitplug.config.reading import read_config
from vitplug.hosting import build_plugs, plugs_text
from vitplug.plugs import ContextBroadcast, GaussianAttentionBias, QKNorm, ResidualAttention
from vitplug.plugs.text import SHORT_NAMES, label_of, parse_plugs, text_of
from vitplug.registry import PLUGS
from vitplug.runs.options import test_config as config_of_test
from vitplug.runs.options import test_parser as parser_of_test
from vitplug.runs.options import train_config, train_parser

VIT = str(Path(__file__).parents[1] / 'configs' / 'digits' / 'vit-mini-p4_1xb32-14e_digits-32x32.py')
GAB, RESIDUAL = dict(type='GaussianAttentionBias'), dict(type='ResidualAttention', alpha=0.25)
TEXT = 'gab+residual(alpha=0.25)'


@pytest.mark.parametrize(
    'text, plugs',
    [
        ('none', []),
        ('gab,cb', [GAB, dict(type='ContextBroadcast')]),
        (TEXT, [GAB, RESIDUAL]),
        (" gab + residual( alpha = 0.25, layers='upper' ) ", [GAB, {**RESIDUAL, 'layers': 'upper'}]),
        ('rel-pos-bias+cb(layers=[0, 1])', [dict(type='RelPosBias'), dict(type='ContextBroadcast', layers=[0, 1])]),
        ('SqueezeExcite(reduction=8)', [dict(type='SqueezeExcite', reduction=8)]),
    ],
)
def test_plugs_of_a_text(text, plugs):
    assert parse_plugs(text) == plugs
    assert parse_plugs(label_of(text)) == plugs


@pytest.mark.parametrize(
    'text, message',
    [
        ('cb(0.5)', 'no plug'),
        ('cb-gab', "'cb-gab' in 'cb-gab' is unknown"),
        ('', 'cannot be read'),
        ('cb(layers=open("x"))', 'plain value'),
        ('gabb', "did you mean 'gab'"),
        ('none+cb', 'none alone'),
        ('residual(alpha=0.5, alpha=1)', 'cannot be read: .*repeated'),
        ('(' * 5000, 'cannot be read'),
    ],
)
def test_text_that_is_no_plug(text, message):
    with pytest.raises(ValueError, match=f'--plugs: .*{message}'):
        parse_plugs(text, '--plugs')


VALUES = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text()
ARGUMENTS = st.dictionaries(st.sampled_from(['alpha', 'layers', 'mode']), VALUES | st.lists(VALUES))


@settings(max_examples=30)
@given(st.sampled_from(list(SHORT_NAMES.values())), ARGUMENTS)
def test_a_dict_comes_back_from_its_text(kind, arguments):
    plug = dict(type=kind, **arguments)
    assert parse_plugs(text_of(plug)) == [plug]


FORMS = {
    'text': TEXT,
    'short names': ['gab', 'residual(alpha=0.25)'],
    'short types': [dict(type='gab'), dict(type='residual', alpha=0.25)],
    'objects': [GaussianAttentionBias(), ResidualAttention(alpha=0.25)],
    'mixed': ['gab', ResidualAttention(alpha=0.25)],
}


@pytest.mark.parametrize('plugs', FORMS.values(), ids=FORMS)
def test_python_takes_all_forms(plugs):
    expected = vit(plugs=[GAB, RESIDUAL])
    model = vit(plugs=plugs)
    assert model.plug_summary == expected.plug_summary and model.state_dict().keys() == expected.state_dict().keys()


def test_a_registered_plug_is_found_by_its_name():
    """As `vitplug.plug_in` looks for plugs, without OpenMMLab."""

    class Named(ContextBroadcast):
        name = 'named'

    with pytest.raises(ValueError, match=r"type='Named' is no plug"):
        build_plugs(['Named'])
    PLUGS.register_module(module=Named)
    try:
        assert [type(plug) for plug in build_plugs('Named+cb')] == [Named, ContextBroadcast]
    finally:
        PLUGS.module_dict.pop('Named')


def test_a_plug_of_ones_own_is_found_by_its_path_and_written_so(tmp_path, monkeypatch):
    head = 'from vitplug.plugs import ContextBroadcast\n'
    (tmp_path / 'own_plugs.py').write_text(f'{head}class Gab(ContextBroadcast): pass\n')
    (tmp_path / 'own_broken.py').write_text('import there_is_no_such_module\n')
    monkeypatch.syspath_prepend(tmp_path)
    [plug] = build_plugs('own_plugs.Gab(scaled=True)')
    assert plugs_text([plug, dict(type='gab', _scope_='vitplug')]) == 'own_plugs.Gab(scaled=True)+gab'
    with pytest.raises(ModuleNotFoundError, match='there_is_no_such_module'):
        build_plugs('own_broken.Gab')
    type(plug).__module__ = 'elsewhere'
    with pytest.raises(ValueError, match='Gab cannot be written as text: give it a path'):
        plugs_text([plug])


def test_a_plug_of_two_models_is_not_shared():
    plugs = [ContextBroadcast(scaled=True)]
    first, second = vit(plugs=plugs), vit(plugs=plugs)
    assert not {id(p) for p in first.parameters()} & {id(p) for p in second.parameters()}


@pytest.mark.parametrize('form', ['text', 'short names', 'short types'])
def test_configs_take_all_forms(form, tmp_path):
    path = tmp_path / 'child.py'
    path.write_text(f'_base_ = {VIT!r}\nmodel = dict(backbone=dict(plugs={FORMS[form]!r}))')
    assert read_config(str(path)).model.backbone.plugs == [GAB, RESIDUAL]


@pytest.mark.parametrize(
    'options',
    [
        ['--cfg-options', 'model.backbone.plugs=residual(alpha=0.5,layers=[0,1])', '--plugs', TEXT],
        ['--plugs', 'cb', '--cfg-options', 'model.backbone.plugs=gab,residual(alpha=0.25)'],
    ],
    ids=' '.join,
)
def test_commands_take_texts(options):
    for parser, config, files in (
        (train_parser(), train_config, [VIT]),
        (parser_of_test(), config_of_test, [VIT, 'x']),
    ):
        assert config(parser.parse_args([*files, *options])).model.backbone.plugs == [GAB, RESIDUAL]


@pytest.mark.parametrize('nothing', ['none', '[]'])
def test_options_for_no_plugs(nothing):
    assert read_config(VIT, {'model.backbone.plugs': nothing}).model.backbone.plugs == []


def test_a_wrong_text_of_a_config_names_its_place(tmp_path):
    path = tmp_path / 'child.py'
    path.write_text(f"_base_ = {VIT!r}\nmodel = dict(backbone=dict(plugs='gabb'))")
    with pytest.raises(ValueError, match=r"^model\.backbone\.plugs: 'gabb' in 'gabb' is unknown"):
        read_config(str(path))


def test_a_plug_registered_under_the_name_of_another_wins(monkeypatch):
    assert PLUGS.get('HeadScale')  # registers those of vitplug
    monkeypatch.setitem(PLUGS.module_dict, 'HeadScale', QKNorm)
    [plug] = build_plugs('head-scale')
    assert type(plug) is QKNorm
