"""What is compared computes the same, and the arithmetic of the tables."""

import json
import logging
import os
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest
import torch
from torch.testing import assert_close

from vitplug.analysis.costs import LinspaceOnCpu
from vitplug.backbones import SwinTransformer, SwinTransformerV2, VisionTransformer
from vitplug.benchmark import attention, benchmark_command, compilation, growth, hosts, measure, models, tasks
from vitplug.benchmark.attention import PAIRS, Literal, Sizes, Stack
from vitplug.benchmark.compilation import Compiled
from vitplug.benchmark.growth import Growth
from vitplug.benchmark.measure import Case, Timer
from vitplug.benchmark.processes import in_own_process
from vitplug.benchmark.profile import by_kind, shares
from vitplug.benchmark.report import as_text, growth_as_text
from vitplug.datasets.digit_scenes import make_digit_scenes

QUICK = ['--rounds', '1', '--seconds', '0', '--batch', '1', '--parts', 'attention']
SIZES = Sizes(layers=3, heads=2, dims=4, height=3, width=4, prefix=1)


def parameters_of(name, stack):
    """The plug's parameters in the order the literal chain takes them."""
    if name == 'GAB':
        return [torch.cat(stack.parameters[0::2]), torch.cat(stack.parameters[1::2])]
    if name == 'Refiner':
        module = stack.layers[0]['refiner']['map']
        for layer in stack.layers[1:]:
            layer.load_state_dict(stack.layers[0].state_dict())
        return [module.expand, module.local, module.reduce]
    if name == 'DLA alone':
        for layer in stack.layers[1:]:
            layer.load_state_dict(stack.layers[0].state_dict())
        return [stack.layers[0]['refiner']['map'].local]
    return stack.parameters


@pytest.mark.parametrize('name', PAIRS)
def test_literal_chains_are_what_the_plugs_compute(name):
    plug, settings, chain, _ = PAIRS[name]
    stack = Stack(SIZES, [plug(**settings)], 'cpu', torch.float32)
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in stack.parameters:
            parameter.add_(0.1 * torch.rand(parameter.shape, generator=generator))
    literal = Literal(SIZES, chain, [p.detach() for p in parameters_of(name, stack)], 'cpu', torch.float32)
    got, expected = stack.forward(), literal.forward()
    assert_close(got, expected, rtol=1e-4, atol=1e-4)
    assert_close(
        torch.autograd.grad(got.square().sum(), stack.qkv),
        torch.autograd.grad(expected.square().sum(), literal.qkv),
        rtol=1e-3,
        atol=1e-3,
    )


def test_ratios_are_medians_of_rounds_beside_the_fastest_reference(monkeypatch):
    # The first round warms up; the machine is three times slower in the last one, and own a little more.
    times = {'own': [9, 2, 2, 9], 'slow': [9, 5, 5, 15], 'fast': [9, 4, 4, 12]}
    monkeypatch.setitem(measure.CLOCKS, 'cpu', lambda step: step())
    cases = [Case(name, iter(values).__next__, 0.6 if name == 'own' else None) for name, values in times.items()]
    table = Timer('cpu', rounds=3).compare('title', cases, ['slow', 'fast'])
    assert table.title == 'title, 3 rounds'
    assert table.reference == 'fast'
    assert [(row.name, row.seconds, row.ratio) for row in table.rows] == [
        ('own', 2, 0.5),
        ('slow', 5, 1.25),
        ('fast', 4, 1.0),
    ]
    assert '| own | 2000.0 | 0.500 | 0.50 to 0.62 | <= 0.60 |' in as_text(table)


def test_quick_steps_get_more_rounds_and_each_order(monkeypatch):
    ran = []
    monkeypatch.setitem(measure.CLOCKS, 'cpu', lambda step: step())
    cases = [Case(name, lambda name=name: ran.append(name) or 2.0) for name in 'ab']
    assert Timer('cpu', rounds=2, seconds=9.0).compare('title', cases, ['a']).title == 'title, 3 rounds'
    assert ''.join(ran) == 'ab' + 'ba' + 'ab' + 'ba'


def test_slopes():
    found = Growth('CB', [1024, 4096], seconds=[1.0, 8.0], gigabytes=[1.0, 4.0], target=1.2)
    assert found.slope(found.gigabytes) == pytest.approx(1.0) and found.slope(found.seconds) == pytest.approx(1.5)
    assert '| 1.50 | 1.00 | <= 1.2 |' in growth_as_text([found])


@pytest.mark.slow
def test_memory_of_a_step_is_its_own(monkeypatch):
    """And not that of the process that measures, which is larger."""
    held = torch.ones(400_000_000)  # 1.6 GB
    monkeypatch.setattr(growth, 'SIDES', (8, 16))
    monkeypatch.setattr(growth, 'SLOPES', {'plain': None})
    (found,) = growth.run('cpu', lambda text: None)
    assert 0.02 < found.gigabytes[-1] < 1 and held[0] == 1


@pytest.mark.slow
def test_tables_have_processes_of_their_own_with_the_threads_and_silence_of_this_one(monkeypatch):
    monkeypatch.setattr(torch, 'get_num_threads', lambda: 3)
    with benchmark_command.quiet():
        assert in_own_process(partial(measure.machine, 'cpu'))['device'].endswith(', 3 threads')
        assert not in_own_process(partial(logging.getLogger().isEnabledFor, logging.WARNING))
    assert in_own_process(os.getpid) != os.getpid()
    with pytest.raises(FileNotFoundError):
        in_own_process(Path('nowhere').read_text)


@pytest.mark.integration
def test_command_writes_tables_and_a_picture(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(attention, 'SHAPES', {17: (2, 4, 4, 4)})
    benchmark_command.main([*QUICK, '--device', 'cpu', '--out', str(tmp_path)])
    printed = capsys.readouterr().out
    assert 'Refiner, literal' in printed and 'ratio to plain' in printed
    content = json.loads((tmp_path / 'bench.json').read_text())
    assert content['machine']['torch'] == torch.__version__
    assert [row['name'] for row in content['tables'][0]['rows']][:3] == ['plain', 'Refiner', 'Refiner, literal']
    assert (tmp_path / 'bench.png').stat().st_size > 1000


def test_profile_counts_every_operation_once():
    linear = torch.nn.Linear(64, 64)
    table = shares('title', lambda: linear(torch.ones(100, 64)).exp().add(1).sum().backward(), 'cpu')
    found = {row.name: row.ratio for row in table.rows}
    assert sum(found.values()) == pytest.approx(1)
    assert found['matrix products'] > 0 and found['sums by element'] > 0 and found['GELU'] == 0
    assert by_kind({'aten::mm': 2.0, 'aten::addmm': 3.0, 'aten::exp': 1.0})['matrix products'] == 5


@pytest.mark.integration
def test_parts_that_are_measured_survive_one_that_fails(tmp_path, monkeypatch):
    monkeypatch.setattr(attention, 'SHAPES', {5: (1, 2, 2, 2)})
    monkeypatch.setitem(benchmark_command.RUNNERS, 'tasks', lambda args: pytest.fail('no data'))
    with pytest.raises(pytest.fail.Exception):
        benchmark_command.main([*QUICK, 'tasks', '--out', str(tmp_path)])
    assert len(json.loads((tmp_path / 'bench.json').read_text())['tables']) == 1


def tiny_host(**settings):
    arch = dict(embed_dims=8, depths=[1], num_heads=[1])
    return SwinTransformerV2(arch, img_size=16, window_size=2, out_indices=0, **settings)


@pytest.mark.parametrize('mode', ['training', 'inference'])
def test_hosts_are_timed_beside_others_and_with_the_plugs_that_fit(mode, monkeypatch):
    """Residual attention has nothing to blend in one block, and is refused."""
    monkeypatch.setitem(hosts.HOSTS, 'tiny', hosts.Host(tiny_host, dict(another=tiny_host), size=16))
    suite = models.Suite(Timer('cpu', rounds=1), torch.float32, 1)
    table = hosts.plain(suite, 'tiny', mode)
    assert (table.title, table.reference) == (f'tiny, plain, 16 x 16, batch 1, {mode}, 1 rounds', 'another')
    assert [(row.name, row.target) for row in table.rows] == [('vitplug', 1.02), ('another', None)]
    table = hosts.plugged(suite, 'tiny', mode)
    assert table.reference == 'plain'
    assert {row.name for row in table.rows} == {'plain', *models.PLUGS} - {'Residual'}


@pytest.mark.parametrize('name', hosts.HOSTS)
def test_hosts_are_compared_with_the_same_models(name):
    host = hosts.HOSTS[name]
    with torch.device('meta'), LinspaceOnCpu():
        own, *others = (sum(p.numel() for p in make().parameters()) for make in (host.build, *host.others.values()))
    assert all(abs(other / own - 1) < 0.01 for other in others)


def test_growth_alone_has_no_picture(tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(
        benchmark_command.RUNNERS, 'growth', lambda args: [Growth('CB', [1, 4], [1.0, 8.0], [1.0, 4.0])]
    )
    benchmark_command.main([*QUICK[:-1], 'growth', '--out', str(tmp_path)])
    assert '| CB | 1.0 s' in capsys.readouterr().out
    assert [path.name for path in tmp_path.iterdir()] == ['bench.json']


def test_plugs_of_a_command_are_measured(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(models, 'run_table', lambda job, _: job())
    monkeypatch.setattr(models, 'deit', lambda size, plugs=(): tiny_vit(plugs))
    texts = ['gate', 'rope(mode="mixed")']
    benchmark_command.main([*QUICK[:-1], 'plugs', '--plugs', *texts, '--out', str(tmp_path)])
    tables = json.loads((tmp_path / 'bench.json').read_text())['tables']
    assert [[row['name'] for row in table['rows']] for table in tables] == [['plain', *texts]] * 2
    monkeypatch.setattr(growth, 'in_own_process', lambda job: (job.args[1], job.args[1] ** 2))
    found = list(growth.run('cpu', lambda text: None, texts))
    assert [(one.name, one.target, one.slope(one.gigabytes)) for one in found] == [
        (name, None, 1.0) for name in ('plain', *texts)
    ]
    with pytest.raises(SystemExit):
        benchmark_command.main(['--plugs', 'gat', '--out', str(tmp_path)])
    assert "did you mean 'gate'?" in capsys.readouterr().err


def tiny_vit(plugs):
    arch = dict(embed_dims=16, num_layers=1, num_heads=2, feedforward_channels=8)
    return VisionTransformer(arch=arch, img_size=224, plugs=plugs)


def tiny_swin(plugs):
    arch = dict(embed_dims=8, depths=[1, 1], num_heads=[1, 2])
    return SwinTransformer(arch=arch, img_size=28, out_indices=(1,), pad_small_map=True, plugs=plugs)


@pytest.mark.slow
@pytest.mark.parametrize('mode', ['training', 'inference'])
def test_compiled_model_is_measured_beside_eager(mode, monkeypatch):
    monkeypatch.setattr(compilation, 'HOSTS', {'Swin': tiny_swin})
    monkeypatch.setattr(compilation, 'SIZE', (28, 28))
    timer = Timer('cpu', rounds=3)
    found = compilation.measure('Swin', 'Broad', mode, timer, torch.float32, 'eager')
    assert found.breaks == 0 and found.error == '' and found.seconds > found.eager > 0
    low, high = found.quartiles
    assert 0 < low <= found.ratio <= high

    def broken(plugs):
        model = tiny_swin(plugs)
        model.norm1.register_forward_hook(lambda *_: torch._dynamo.graph_break())
        return model

    torch._dynamo.reset()
    monkeypatch.setitem(compilation.HOSTS, 'Swin', broken)
    assert compilation.measure('Swin', 'plain', mode, timer, torch.float32, 'eager').breaks > 0
    torch._dynamo.reset()
    assert 'no backend' in compilation.measure('Swin', 'plain', mode, timer, torch.float32, refuse).error


def refuse(graph, inputs):
    raise RuntimeError('no backend')


@pytest.mark.integration
@pytest.mark.slow
def test_whole_model_is_compiled_as_far_as_its_operators_allow(tmp_path):
    make_digit_scenes(tmp_path, num_classification=(10, 10), num_scenes=(8, 1), log=lambda line: None)
    configs = Path(__file__).parents[2] / 'configs' / 'digits'
    task = 'Digits segmentation, UPerNet on ViT'
    found = compilation.measure_task(task, 'inference', configs, tmp_path, Timer('cpu', rounds=3), 'eager')
    assert found.host == task and not found.error and found.ratio > 0


def test_table_of_compiled_models(tmp_path, monkeypatch, capsys):
    results = [
        Compiled('ViT', 'CB', 'training', 12.3, 0, 0.1, 0.75, (0.7, 0.8)),
        Compiled('ViT', 'CB', 'inference', error='it fails'),
    ]
    monkeypatch.setitem(benchmark_command.RUNNERS, 'compile', lambda args: results)
    benchmark_command.main([*QUICK[:-1], 'compile', '--out', str(tmp_path)])
    assert '| ViT, CB | 0.75 | 0.70 to 0.80 | 0 | 12 | does not compile |' in capsys.readouterr().out
    first, second = json.loads((tmp_path / 'bench.json').read_text())['compile']
    assert first['ratio'] == 0.75 and second['error'] == 'it fails'


@pytest.mark.slow
def test_tasks_bring_their_data(tmp_path, monkeypatch):
    monkeypatch.setenv('VITPLUG_DIGITS', 'nowhere')
    found = tasks.run(Timer('cpu', rounds=1), Path(__file__).parents[2] / 'configs', tmp_path / 'digits')
    assert [[row.name for row in table.rows] for table in found] == [['vitplug', 'mmpretrain']] * 2


@pytest.mark.parametrize(
    'argv', [['--rounds', '0'], ['--batch', '-1'], ['--seconds', 'nan'], ['--parts', 'speed'], ['--device', 'tpu']]
)
def test_bad_options(argv, capsys):
    with pytest.raises(SystemExit) as stop:
        benchmark_command.main(argv)
    assert stop.value.code == 2 and argv[1] in capsys.readouterr().err


@pytest.mark.integration
@pytest.mark.slow
def test_attention_part_needs_torch_alone(tmp_path):
    code = """
import sys
from vitplug.benchmark import attention, benchmark_command
benchmark_command.find_spec = lambda name: None
attention.SHAPES = {5: (1, 2, 2, 2)}
benchmark_command.main(['--rounds', '1', '--seconds', '0', '--out', sys.argv[1]])
"""
    # Not the module finder of one process: tables have processes of their own.
    for name in ('mmengine', 'mmcv', 'mmdet', 'mmseg', 'mmpretrain', 'matplotlib'):
        (tmp_path / f'{name}.py').write_text(f'raise ModuleNotFoundError({name!r}, name={name!r})')
    paths = os.pathsep.join([str(tmp_path), os.environ.get('PYTHONPATH', '')])
    command = [sys.executable, '-c', code, str(tmp_path)]
    result = subprocess.run(command, capture_output=True, text=True, env={**os.environ, 'PYTHONPATH': paths})
    assert result.returncode == 0, result.stderr
    assert (tmp_path / 'bench.json').is_file() and not (tmp_path / 'bench.png').exists()
