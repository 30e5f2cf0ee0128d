"""The config in a checkpoint: read as mmengine reads it but never run, and compared with another."""

from mmengine.config import Config

from vitplug.checkpoints.settings import ABSENT, differences, read_settings

CONFIG = dict(
    model=dict(type='A', sizes=(1, 2), plugs=[dict(type='B', alpha=0.5), dict(type='C')], flag=True, nothing=None),
    lr=1e-3,
    negative=-3,
    words="it's",
    empty={},
    lists=[[1, 2], (3, dict(a=1))],
    mapped={1: 2, 'a.b': dict(x=1)},
    infinite=float('inf'),
)


def as_lists(value):
    if isinstance(value, dict):
        return {key: as_lists(entry) for key, entry in value.items()}
    return [as_lists(entry) for entry in value] if isinstance(value, list | tuple) else value


def test_reads_what_mmengine_writes():
    read = read_settings(dict(meta=dict(cfg=Config(CONFIG).pretty_text)))
    assert read == as_lists(CONFIG) | dict(infinite='inf')


def test_runs_nothing(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    call = '__import__("os").mkdir("harm")'
    contents = [dict(meta=dict(cfg=text)) for text in (call, 'a = (', None)]
    assert [read_settings(content) for content in (*contents, dict(meta=None), {})] == [{}] * 5
    assert read_settings(dict(meta=dict(cfg=f'a = {call}'))) == dict(a="__import__('os').mkdir('harm')")
    assert not (tmp_path / 'harm').exists()


def test_differences():
    before = dict(plugs=[dict(type='A', x=1), dict(type='B')], sizes=(1, 2), same=dict(a=None), gone=3)
    after = dict(plugs=[dict(type='A', x=2)], sizes=[1, 2], same=dict(a=None), flag=True)
    assert differences(before, after) == {
        'plugs.0.x': (1, 2),
        'plugs.1.type': ('B', ABSENT),
        'gone': (3, ABSENT),
        'flag': (ABSENT, True),
    }
