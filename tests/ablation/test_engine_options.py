"""The options that choose an engine."""

import argparse

import pytest

from vitplug.ablation.engines import add_engine_options, make_engine
from vitplug.ablation.engines import options as engine_options
from vitplug.ablation.engines.launch import Share
from vitplug.ablation.engines.local import LocalEngine
from vitplug.ablation.engines.options import ENGINES, minutes_of


def arguments(line):
    parser = argparse.ArgumentParser()
    add_engine_options(parser)
    return parser.parse_args(line.split())


def test_default_is_this_machine():
    engine = make_engine(arguments('--jobs 3'), ['--unsafe-unpickle'])
    assert type(engine) is LocalEngine and engine.slots == 3 and engine.options == ['--unsafe-unpickle']


@pytest.mark.parametrize(
    ('line', 'wanted'),
    [
        ('--engine slurm', (Share(), None, None, 60, ['w'])),
        (
            '--engine slurm --nodes 2 --gpus 8 --cpus 32 --jobs 5 --partition big --time 1:30:00',
            (Share(2, 8, 32), 5, 'big', 90, ['w']),
        ),
        ('--engine ray', (Share(), None, None, ['w'])),
        ('--engine ray --gpus 1 --cpus 4 --jobs 5 --ray-address host:1', (Share(1, 1, 4), 5, 'host:1', ['w'])),
    ],
)
def test_options_reach_the_engine(line, wanted, monkeypatch):
    for name in ('SlurmEngine', 'RayEngine'):
        monkeypatch.setattr(engine_options, name, lambda *args: args)
    assert make_engine(arguments(line), ['w']) == wanted


@pytest.mark.parametrize('engine', ENGINES)
def test_options_of_other_engines_are_refused(engine):
    values = dict(partition='x', time='60', nodes=1, gpus=0, cpus=1, ray_address='x')
    for name in set(values) - ENGINES[engine].options:
        option = f'--{name.replace("_", "-")} {values[name]}'
        with pytest.raises(ValueError, match=f'{option}: not an option of --engine {engine}; leave it away, or choose'):
            make_engine(arguments(f'--engine {engine} {option}'))


@pytest.mark.parametrize(
    ('text', 'minutes'), [('1', 1), ('90', 90), ('1:30:00', 90), ('0:00:01', 1), ('0:01:01', 2), ('2-01:00:00', 2940)]
)
def test_time(text, minutes):
    assert minutes_of(text) == minutes


@pytest.mark.parametrize('text', ['0', '0:00:00', '-5', '1:30', '1:60:00', '90m', 'soon', ''])
def test_time_that_is_none(text):
    with pytest.raises(ValueError, match=f'--time {text}: expected minutes, H:MM:SS or D-H:MM:SS'):
        minutes_of(text)
