"""The config in a checkpoint: read as mmengine reads it but never run, and compared by meaning."""

import pytest
from mmengine.config import Config
from torch import nn

from vitplug.checkpoints.settings import ABSENT, compare, list_changes, read_settings

CONFIG = dict(
    model=dict(type='A', sizes=(1, 2), plugs=[dict(type='B', alpha=0.5), dict(type='C')], flag=True, nothing=None),
    lr=1e-3,
    negative=-3,
    words="it's",
    empty={},
    lists=[[1, 2], (3, dict(a=1))],
    mapped={'a.b': dict(x=1), 1: 2},
    infinite=float('inf'),
)


def as_lists(value):
    if isinstance(value, dict):
        return {key: as_lists(entry) for key, entry in value.items()}
    return [as_lists(entry) for entry in value] if isinstance(value, list | tuple) else value


def test_reads_what_mmengine_writes():
    assert read_settings(dict(cfg=Config(CONFIG).pretty_text)) == as_lists(CONFIG) | dict(infinite='inf')


def test_runs_nothing(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    call = '__import__("os").mkdir("harm")'
    assert [read_settings(dict(cfg=text)) for text in (call, 'a = (', None)] == [{}] * 3 and read_settings({}) == {}
    assert read_settings(dict(cfg=f'a = {call}')) == dict(a="__import__('os').mkdir('harm')")
    assert not (tmp_path / 'harm').exists()


class Layer(nn.Module):
    def __init__(self, width, size=3, plugs=(), **rest):
        super().__init__()


class Child(Layer):
    def __init__(self, *args, depth=2, **kwargs):
        super().__init__(*args, **kwargs)


# Two configs, and in what they differ.
PAIRS = {
    'list and tuple': (dict(a=[1, 2]), dict(a=(1, 2)), []),
    'default left out': (dict(type='Child', width=1), dict(type='Child', width=1, depth=2), []),
    'default of the parent': (dict(type='Child', size=3, plugs=[]), dict(type='Child'), []),
    'order of plugs': (
        dict(plugs=[dict(type='B'), dict(type='C', x=1)]),
        dict(plugs=[dict(type='C', x=1), dict(type='B')]),
        [],
    ),
    'value': (dict(a=dict(b=1)), dict(a=dict(b=2)), [('a.b', 1, 2)]),
    'entry': (dict(a=[1, 2]), dict(a=[1, 3]), [('a.1', 2, 3)]),
    'length': (dict(a=[1, 2]), dict(a=[1]), [('a.1', 2, ABSENT)]),
    'other than the default': (dict(type='Child'), dict(type='Child', depth=4), [('depth', 2, 4)]),
    'left out without a default': (dict(type='Child', width=1), dict(type='Child'), [('width', 1, ABSENT)]),
    'plug': (dict(plugs=[dict(type='B')]), dict(plugs=()), [('plugs.B.type', 'B', ABSENT)]),
    'argument of a plug': (
        dict(plugs=[dict(type='A'), dict(type='B', x=1)]),
        dict(plugs=[dict(type='B', x=2), dict(type='A')]),
        [('plugs.B.x', 1, 2)],
    ),
}


@pytest.mark.parametrize('case', PAIRS)
def test_differences(case):
    before, after, changes = PAIRS[case]
    assert compare(before, after, dict(Child=Child).get) == changes
    assert compare(after, before, dict(Child=Child).get) == [(name, new, old) for name, old, new in changes]


def test_list_of_changes():
    text = list_changes([(f'name{i}', 'a', ABSENT) for i in range(7)])
    assert text.startswith("name0 was 'a', is not set; ") and text.endswith('; and 2 more')
