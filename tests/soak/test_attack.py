"""The campaign of attacks sees every kind of outcome, each planted once, and its cases can be had again."""

import os
import pickle
import random
import signal
import sys
from pathlib import Path

import pytest
import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from soak import attack
from soak.attacks import (
    annotations,
    checkpoints,
    command_lines,
    configs,
    faults,
    grids,
    images,
    sandbox,
)
from soak.attacks.judging import ERROR_LINE, Kind
from soak.attacks.processes import Limits, at_write, fail_with, files_up_to, kill_self
from soak.attacks.sandbox import Sandboxes, write_inputs
from soak.attacks.trials import REGISTRY, Accept, Command, Registry, Scene, Trial, one

FAMILIES = (annotations, checkpoints, command_lines, configs, faults, grids, images)
# A tool that does what its argument says; whatever it does, it has written its result before.
TOOL = """
import os, pickle, signal, sys, time
import torch
what = sys.argv[1]
result = 2.0 if what.startswith('another result') else 1.0
with open('pred.pkl', 'wb') as file:
    pickle.dump([result], file)

def checkpoint(number):
    os.makedirs('work', exist_ok=True)
    with open('work/epoch_1.pth', 'wb') as file:
        torch.save(dict(state_dict=dict(w=torch.tensor([number]))), file)
    with open('work/last_checkpoint', 'w') as file:
        file.write('work/epoch_1.pth')

def fail(*lines, status=2):
    for line in lines:
        print(line, file=sys.stderr)
    sys.exit(status)

{
    'runs code': lambda: os.mkdir('../harm'),
    'removes': lambda: os.remove('../precious/notes.txt'),
    'changes': lambda: open('good.txt', 'w').write('x'),
    'leaves half a checkpoint': lambda: open('half.pth', 'w').write('x'),
    'dies': lambda: os.kill(os.getpid(), signal.SIGSEGV),
    'grows': lambda: (bytearray(b'x' * 400_000_000), time.sleep(600)),
    'hangs': lambda: time.sleep(600),
    'leaves a child': lambda: os.fork() or time.sleep(600),
    'not finite': lambda: checkpoint(float('nan')),
    'finite': lambda: checkpoint(1.0),
    'another result, told': lambda: print('bad.txt is left out'),
    'another result, told always': lambda: print('reading bad.txt'),
    'nothing': lambda: print('reading bad.txt'),
    'raises': lambda: 1 / 0,
    'unknown status': lambda: fail('error: bad.txt', status=3),
    'no error line': lambda: fail('bad.txt'),
    'names nothing': lambda: fail('error: something'),
    'many lines': lambda: fail(*['bad.txt'] * 50, 'error: bad.txt'),
    'colours': lambda: fail('error: bad.txt\\x1b[31m'),
    'refuses': lambda: fail('error: bad.txt is bad'),
}.get(what, lambda: None)()
"""


@pytest.fixture
def sandboxes(tmp_path):
    """Sound sandboxes of one file, with the tool above."""
    (tmp_path / 'tool.py').write_text(TOOL)
    template = tmp_path / 'sound/template/sandbox'
    template.mkdir(parents=True)
    (template / 'good.txt').write_text('good')
    return Sandboxes(tmp_path / 'sound', {'test.py': tmp_path / 'tool.py'}, Limits(seconds=300, memory=2**28))


def verdict(sandboxes, what, accept=Accept.SAME, harmless=False, **settings):
    """The record of a trial in which the tool does something."""

    def planted(scene):
        scene.make()
        line = f"test.py '{what}'"
        return Trial(
            one(line, **settings), 'planted', ('bad.txt',), accept, clean=('test.py nothing',), harmless=harmless
        )

    registry = Registry({'planted: it': planted})
    return attack.Campaign(0, registry, sandboxes.folder.parent, sandboxes).run(0)


@pytest.mark.integration
@pytest.mark.parametrize(
    'what, accept, kind',
    [
        ('runs code', Accept.ANY, Kind.CODE),
        ('removes', Accept.ANY, Kind.LOSS),
        ('changes', Accept.ANY, Kind.LOSS),
        ('leaves half a checkpoint', Accept.ANY, Kind.LOSS),
        ('dies', Accept.ANY, Kind.CRASH),
        ('grows', Accept.ANY, Kind.CRASH),
        ('another result', Accept.SAME, Kind.SILENT),
        ('another result', Accept.TOLD, Kind.SILENT),
        ('another result', Accept.ANY, Kind.HANDLED),
        ('another result, told', Accept.TOLD, Kind.HANDLED),
        ('another result, told always', Accept.TOLD, Kind.SILENT),
        ('another result, told', Accept.SAME, Kind.SILENT),
        ('nothing', Accept.REFUSED, Kind.SILENT),
        ('not finite', Accept.ANY, Kind.SILENT),
        ('finite', Accept.ANY, Kind.HANDLED),
        ('raises', Accept.ANY, Kind.POOR),
        ('unknown status', Accept.ANY, Kind.POOR),
        ('no error line', Accept.ANY, Kind.POOR),
        ('names nothing', Accept.ANY, Kind.POOR),
        ('many lines', Accept.ANY, Kind.POOR),
        ('colours', Accept.ANY, Kind.POOR),
        ('refuses', Accept.REFUSED, Kind.REFUSED),
        ('refuses', Accept.SAME, Kind.REFUSED),
        ('nothing', Accept.SAME, Kind.HANDLED),
    ],
)
def test_kind_of_outcome(what, accept, kind, sandboxes):
    record = verdict(sandboxes, what, accept)
    assert record['outcome'] == kind.value, record
    kept = (sandboxes.folder.parent / 'case_0_0').exists()
    assert kept is (kind not in (Kind.REFUSED, Kind.HANDLED))


def test_a_refusal_without_need_is_poor(sandboxes):
    record = verdict(sandboxes, 'refuses', harmless=True)
    assert record['outcome'] == Kind.POOR.value and record['why'] == 'refused without need: error: bad.txt is bad'


@pytest.mark.integration
def test_hang(sandboxes):
    sandboxes.limits = Limits(seconds=1)
    assert verdict(sandboxes, 'hangs')['outcome'] == Kind.HANG.value


def test_children_of_a_tool_end_with_it(sandboxes):
    sandboxes.limits = Limits(seconds=60)
    record = verdict(sandboxes, 'leaves a child', Accept.ANY)
    assert record['outcome'] == Kind.HANDLED.value


def test_case_that_fails_itself_is_no_outcome(sandboxes):
    def failing(scene):
        raise LookupError('no such damage')

    campaign = attack.Campaign(0, Registry({'planted: it': failing}), sandboxes.folder.parent, sandboxes)
    record = campaign.run(0)
    assert record['outcome'] == attack.BROKEN and 'no such damage' in record['why'] and attack.is_failure(record)


# --- faults ---


def faulty(sandboxes, fault, **settings):
    return verdict(sandboxes, 'finite', fault=fault, **settings)


@pytest.mark.integration
def test_kill_at_a_write(sandboxes):
    for moment in (1, 2, 3, 4):  # pred.pkl, the work dir, the checkpoint, last_checkpoint
        record = faulty(sandboxes, at_write(moment, kill_self(signal.SIGKILL)), ends=frozenset({-signal.SIGKILL}))
        assert record['statuses'] == [-signal.SIGKILL] and record['outcome'] == Kind.REFUSED.value
    assert faulty(sandboxes, at_write(5, kill_self(signal.SIGKILL)), accept=Accept.ANY)['statuses'] == [0]


@pytest.mark.integration
def test_signal_that_was_not_sent_is_a_crash(sandboxes):
    kill = at_write(1, kill_self(signal.SIGTERM))
    assert faulty(sandboxes, kill)['outcome'] == Kind.CRASH.value
    # There is nothing to save before the first checkpoint.
    assert faulty(sandboxes, kill, asked=signal.SIGTERM)['outcome'] == Kind.REFUSED.value
    late = at_write(4, kill_self(signal.SIGTERM))
    assert faulty(sandboxes, late, asked=signal.SIGTERM)['outcome'] == Kind.POOR.value


@pytest.mark.integration
def test_error_at_a_write(sandboxes):
    record = faulty(sandboxes, at_write(1, fail_with(28)))
    assert record['statuses'] == [1] and 'No space left on device' in record['message']


@pytest.mark.integration
@pytest.mark.parametrize('deadly, status', [(True, -signal.SIGXFSZ), (False, 1)])
def test_largest_file(sandboxes, deadly, status):
    # Larger than the result, smaller than the checkpoint.
    record = faulty(sandboxes, files_up_to(500, deadly), ends=frozenset({-signal.SIGXFSZ}))
    assert record['statuses'] == [status]


def test_signal_from_outside(sandboxes):
    record = verdict(sandboxes, 'hangs', signals=((0.1, signal.SIGKILL),), ends=frozenset({-signal.SIGKILL}))
    assert record['statuses'] == [-signal.SIGKILL] and record['outcome'] == Kind.REFUSED.value


def test_moments_of_writing_are_counted(sandboxes):
    assert sandboxes.sound('plain', 'test.py finite').run.writes == 4


@pytest.mark.integration
def test_two_at_a_time(sandboxes):
    def planted(scene):
        scene.make()
        return Trial([[Command('test.py nothing'), Command('test.py refuses')]], 'two', ('bad.txt',), Accept.SAME)

    campaign = attack.Campaign(0, Registry({'planted: two': planted}), sandboxes.folder.parent, sandboxes)
    assert campaign.run(0)['outcome'] == attack.BROKEN  # the sound run of the second is refused too


# --- the campaign ---


@pytest.mark.integration
def test_cases_run_side_by_side_and_are_not_run_again(sandboxes, tmp_path):
    def planted(scene):
        if scene.draw.random() < 0.5:
            os._exit(1)
        scene.make()
        return Trial(one('test.py nothing'), str(scene.draw.random()), (), Accept.SAME)

    campaign = attack.Campaign(3, Registry({'planted: it': planted}), tmp_path, sandboxes)
    records = {record['case']: record for record in attack.run_cases(campaign, range(6), jobs=2)}
    assert sorted(records) == list(range(6))
    assert {record['outcome'] for record in records.values()} == {attack.BROKEN, Kind.HANDLED.value}
    again = {record['case']: record for record in attack.run_cases(campaign, range(6), jobs=1)}
    assert [records[n].get('damage') for n in range(6)] == [again[n].get('damage') for n in range(6)]
    lines = [*records.values(), {**records[0], 'seed': 4}, {**records[0], 'case': 7, 'attack': 'planted: another'}]
    (tmp_path / 'out').write_text(''.join(attack.json.dumps(line) + '\n' for line in lines))
    assert sorted(attack.finished(tmp_path / 'out', campaign)) == list(range(6))


def test_report_counts_and_repeats():
    def record(case, outcome):
        return dict(case=case, attack='image: x', outcome=outcome, why='why', repeat=f'--only {case}')

    records = [record(1, Kind.LOSS.value), record(2, Kind.POOR.value), record(3, Kind.HANDLED.value)]
    text = attack.report(records)
    assert '--only 1' in text and '--only 2' in text and '--only 3' not in text
    assert text.splitlines()[1].split() == ['image', '3', '0', '1', '0', '0', '0', '1', '0', '1', '0']
    assert [attack.is_failure(one) for one in records] == [True, False, False]


def test_error_line():
    assert ERROR_LINE.search('train.py: error: no such') and ERROR_LINE.search('x\nerror: no such')
    assert not ERROR_LINE.search('an error: no such')


# --- the attacks ---


@pytest.fixture(scope='module')
def template(tmp_path_factory):
    """The sound inputs with checkpoints that nobody has trained, which damage does not mind."""
    folder = tmp_path_factory.mktemp('attacks') / 'template' / 'sandbox'
    write_inputs(folder)
    generator = torch.Generator().manual_seed(0)
    for number, name in enumerate(sandbox.TRAINED):
        shapes = {
            'backbone.pos_embed': (1, 4, 8),
            'backbone.layers.0.ln1.weight': (8,),
            'head.fc.weight': (2, 8 + number),
        }
        state = {key: torch.rand(shape, generator=generator) for key, shape in shapes.items()}
        content = dict(
            meta=dict(epoch=1, iter=2, seed=0, cfg='x = 1'),
            state_dict=state,
            message_hub=dict(log_scalars={}, runtime_info=dict(best_score=0.5), resumed_keys={}),
            optimizer=dict(
                state={0: dict(step=torch.tensor(2.0), exp_avg=torch.zeros(3))},
                param_groups=[dict(lr=0.1, params=[0])],
            ),
            param_schedulers=[],
        )
        (folder / f'trained_{name}').mkdir()
        torch.save(content, folder / f'trained_{name}/epoch_1.pth')
        torch.save(content, folder / f'trained_{name}/epoch_2.pth')
        torch.save(content, folder / f'good_{name}.pth')
    cell = folder / 'trained_grid' / 'cells' / 'none_seed0_0123456789'
    cell.mkdir(parents=True)
    for path in (cell / name for name in ('done.json', 'cell.json', 'config.py', '../../grid.json')):
        path.write_text('{}')
    (cell / 'last_checkpoint').write_text('epoch_2.pth')
    return folder


class Untrained(Sandboxes):
    """Sandboxes whose commands are not run."""

    def sound(self, base, line):
        return sandbox.Sound({}, attack.Run(line, 0, '', '', 1.0, writes=20))

    def run(self, commands, folder, streams):
        return [attack.Run(command.line, 0, '', '', 0.0) for command in commands]


@pytest.mark.parametrize('name', sorted(REGISTRY.attacks))
def test_attack_is_drawn_from_its_number_alone(name, template, tmp_path, monkeypatch):
    """Twice the same damage and commands; each command is one of a tool that there is, each file one of a sandbox."""
    monkeypatch.setattr(faults, 'small_disk', lambda folder, size: False)  # it would be this process's
    monkeypatch.setattr(images, 'packed_zeros', lambda width, height: b'')  # instead of 900 MB
    trials, folders = [], []
    for attempt in 'ab':
        scene = Scene(tmp_path / attempt / 'sandbox', random.Random(7), Untrained(template.parents[1]))
        trials.append(REGISTRY.attacks[name](scene))
        folders.append(attack.snapshot(tmp_path / attempt))
    ours, theirs = ([repr(t.damage), [c.line for c in t.commands], t.accept, t.names] for t in trials)
    assert str(ours).replace('/a/', '/b/') == str(theirs)
    assert folders[0].keys() == folders[1].keys()
    assert all(command.line.split()[0] in sandbox.TOOLS for command in trials[0].commands)
    assert not (tmp_path / 'a' / 'harm').exists()


def test_bit_flips_are_flips(template, tmp_path):
    """A mutator that changes nothing would make every tool look good."""
    changed = 0
    for number in range(10):
        path = tmp_path / f'{number}.pth'
        path.write_bytes((template / 'good_classify.pth').read_bytes())
        checkpoints.flipped_bits_in_the_weights(path, random.Random(number))
        ours, theirs = (torch.load(p)['state_dict'] for p in (path, template / 'good_classify.pth'))
        changed += sum(not torch.equal(ours[key], theirs[key]) for key in ours)
    assert changed == 10


def test_results_tell_one_bit_from_another():
    one, other = torch.ones(3), torch.ones(3)
    other.view(torch.int32)[1] ^= 1
    assert sandbox.difference(sandbox.flatten(one, 'w'), sandbox.flatten(other, 'w')) == 'w differs'
    nan = pickle.loads(pickle.dumps(float('nan')))
    assert sandbox.difference({'a': nan}, {'a': float('nan')}) == ''
    assert sandbox.difference({}, {'a': 1}) == 'a is missing'
