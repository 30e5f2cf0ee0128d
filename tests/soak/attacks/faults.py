"""Faults of the machine and the user while a training runs: kills, signals, full disks, permissions, links, company."""

import os
import shutil
import signal
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import torch

from .processes import ERRORS, at_write, fail_with, files_up_to, kill_self, small_disk, without_privileges
from .sandbox import TRAINED, first_checkpoint
from .trials import REGISTRY, Accept, Command, Scene, Trial, one

SAME, TOLD, REFUSED, ANY = Accept.SAME, Accept.TOLD, Accept.REFUSED, Accept.ANY

TRAIN = 'train.py {config}.py --work-dir work'
RESUME = f'{TRAIN} --resume'
WORK_DIR = 'sandbox/work'
IN_WORK_DIR = (f'{WORK_DIR}/*',)
# What a training that is resumed writes anew even if it is refused in the end; its checkpoints stay.
REWRITTEN = (f'{WORK_DIR}/last_checkpoint', f'{WORK_DIR}/*.py')
KILLED = frozenset({-signal.SIGKILL})


def fault(function):
    return REGISTRY.add('fault', function)


def _line(scene: Scene, template: str = TRAIN) -> tuple[str, str]:
    config = scene.draw.choice(TRAINED)
    return config, template.format(config=config)


def _then_resumed(first: Command, config: str, damage: str, **settings) -> Trial:
    """A disturbed training, then one that resumes it: it has to end as one that was never disturbed."""
    steps = [[first], [Command(RESUME.format(config=config))]]
    clean = (TRAIN.format(config=config),)
    # A training that was killed between a first checkpoint and the file that names it is refused by name.
    return Trial(steps, damage, ('work', '.pth'), SAME, clean=clean, **settings)


def _moment(scene: Scene, line: str) -> int:
    """A moment of writing of a sound training."""
    return scene.draw.randint(1, scene.sandboxes.sound('plain', line).run.writes)


@fault
def killed_at_a_write(scene: Scene) -> Trial:
    config, line = _line(scene)
    moment = _moment(scene, line)
    scene.make()
    command = Command(line, at_write(moment, kill_self(signal.SIGKILL)), ends=KILLED)
    return _then_resumed(command, config, f'{config}: killed at write {moment}')


@fault
def killed_in_a_write(scene: Scene) -> Trial:
    """When a file reaches a size: in the middle of a checkpoint, a log or a config."""
    config, line = _line(scene)
    folder = scene.make()
    most = (folder / f'good_{config}.pth').stat().st_size
    size = scene.draw.randrange(most // 20, most + 1)
    command = Command(line, files_up_to(size, deadly=True), ends=frozenset({-signal.SIGXFSZ}))
    return _then_resumed(command, config, f'{config}: killed at byte {size} of a file')


@fault
def killed_at_any_time(scene: Scene) -> Trial:
    config, line = _line(scene)
    seconds = scene.draw.uniform(0, 1.2) * scene.sandboxes.sound('plain', line).run.seconds
    scene.make()
    command = Command(line, signals=((seconds, signal.SIGKILL),), ends=KILLED)
    return _then_resumed(command, config, f'{config}: killed after {seconds:.2f} s')


@fault
def killed_again_and_again(scene: Scene) -> Trial:
    config, line = _line(scene)
    scene.make()
    kills = [at_write(_moment(scene, line), kill_self(signal.SIGKILL)) for _ in range(2)]
    steps = [
        [Command(line, kills[0], ends=KILLED)],
        [Command(RESUME.format(config=config), kills[1], ends=KILLED)],
        [Command(RESUME.format(config=config))],
    ]
    return Trial(steps, f'{config}: killed twice', ('work', '.pth'), SAME, clean=(line,))


SIGNALS = (signal.SIGTERM, signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1)


@fault
def signalled_at_a_write(scene: Scene) -> Trial:
    config, line = _line(scene)
    moment, number = _moment(scene, line), scene.draw.choice(SIGNALS)
    times = scene.draw.choice([1, 1, 2])
    scene.make()
    command = Command(line, at_write(moment, kill_self(number, times)), asked=number)
    return _then_resumed(command, config, f'{config}: {times} x {number.name} at write {moment}')


@fault
def signalled_at_any_time(scene: Scene) -> Trial:
    config, line = _line(scene)
    seconds = scene.sandboxes.sound('plain', line).run.seconds
    number, after = scene.draw.choice(SIGNALS), scene.draw.uniform(0.3, 1) * seconds
    signals = tuple((after + 0.05 * count, number) for count in range(scene.draw.choice([1, 1, 2])))
    scene.make()
    command = Command(line, signals=signals, asked=number)
    return _then_resumed(command, config, f'{config}: {len(signals)} x {number.name} after {after:.2f} s')


@fault
def interrupted_early_stopping(scene: Scene) -> Trial:
    """A training that early stopping ends, killed or signalled at a write, ends as one that was not."""
    line = TRAIN.format(config='early')
    moment, number = _moment(scene, line), scene.draw.choice([signal.SIGKILL, signal.SIGTERM])
    scene.make()
    ends = KILLED if number == signal.SIGKILL else frozenset()
    first = Command(line, at_write(moment, kill_self(number)), ends=ends, asked=None if ends else number)
    return _then_resumed(first, 'early', f'early: {number.name} at write {moment}')


# --- disks ---


@fault
def disk_full(scene: Scene) -> Trial:
    """Files that may not grow beyond a size."""
    config, line = _line(scene)
    folder = scene.make()
    most = (folder / f'good_{config}.pth').stat().st_size
    size = scene.draw.choice([scene.draw.randrange(600, most // 2), scene.draw.randrange(most // 2, most * 2)])
    return _then_resumed(Command(line, files_up_to(size)), config, f'{config}: no file beyond {size} bytes')


@fault
def small_file_system(scene: Scene) -> Trial:
    """A disk of its own for the work dir; where it cannot be mounted, files are limited instead."""
    config, line = _line(scene)
    folder = scene.make()
    size = scene.draw.choice([4096, 16_384, 65_536, 262_144, 524_288, 1_048_576])
    if not small_disk(folder / 'work', size):
        return _then_resumed(Command(line, files_up_to(size)), config, f'{config}: no file beyond {size} bytes')
    # The disk stays full, so resuming may end for the same reason.
    return Trial(one(line), f'{config}: a disk of {size} bytes', ('work',), SAME)


@fault
def failing_write(scene: Scene) -> Trial:
    """One write fails, or all from then on."""
    config, line = _line(scene)
    moment, number = _moment(scene, line), scene.draw.choice(ERRORS)
    always = scene.draw.random() < 0.5
    scene.make()
    command = Command(line, at_write(moment, fail_with(number), always))
    damage = f'{config}: errno {number} ({os.strerror(number)}) at write {moment}{" and after" if always else ""}'
    return _then_resumed(command, config, damage)


@fault
def failing_write_of_a_tool(scene: Scene) -> Trial:
    scene.make()
    line = scene.draw.choice([
        'convert.py good_classify.pth new.pth', 'publish_model.py good_classify.pth new.pth',
        'convert.py good_classify.pth new.safetensors', 'check_dataset.py classify.py --report a.jsonl',
        'test.py classify.py good_classify.pth --work-dir tested --out pred.pkl',
    ])  # fmt: skip
    number = scene.draw.choice(ERRORS)
    limit = scene.draw.random() < 0.4
    size = scene.draw.choice([0, 1000, 5000])
    what = files_up_to(size) if limit else at_write(scene.draw.choice([1, 1, 2, 3]), fail_with(number), True)
    damage = f'no file beyond {size} bytes' if limit else os.strerror(number)
    names = ('new', 'a.jsonl', 'pred.pkl', 'tested', 'TMPDIR', 'ulimit')
    return Trial(one(line, fault=what), damage, names, SAME, clean=(line,))


# --- permissions ---


@fault
def unwritable(scene: Scene) -> Trial:
    """Folders and files that may be read only."""
    config, line = _line(scene)
    folder = scene.make('plain')
    (folder / 'work').mkdir()
    place = scene.draw.choice(['work', '.', 'work/x', 'temporary', 'notes'])
    target = folder / 'work'
    if place == '.':
        target.rmdir()
        target = folder
    elif place == 'work/x':
        line = f'{line}/x/y'
    elif place == 'temporary':
        target = folder.parent / 'temporary'
        target.mkdir(exist_ok=True)
    elif place == 'notes':
        target = folder / 'work/bad_samples.jsonl'
        target.write_text('')
        (folder / 'data/train/cat/0.png').write_bytes(b'')
        config, line = 'classify', TRAIN.format(config='classify')
    target.chmod(0o555 if target.is_dir() else 0o444)
    # A temporary folder is not needed, what cannot be noted is told of.
    accept = {'temporary': SAME, 'notes': TOLD}.get(place, REFUSED)
    names = ('work', 'sandbox', 'cat/0.png')
    return Trial(one(line, fault=without_privileges), f'{config}: {place} is read only', names, accept)


@fault
def unreadable(scene: Scene) -> Trial:
    """Checkpoints, data and configs without permission to read them."""
    scene.make('checkpoint classify')
    folder = scene.folder
    name, line = scene.draw.choice([
        ('bad.pth', 'test.py classify.py bad.pth --work-dir tested'),
        ('bad.pth', 'convert.py bad.pth new.pth'),
        ('bad.pth', 'train.py classify.py --work-dir work --resume bad.pth'),
        ('classify.py', 'train.py classify.py --work-dir work'),
        ('tiny.py', 'get_flops.py classify.py'),
        ('data/train/cat', 'train.py classify.py --work-dir work'),
        ('data/train/cat/0.png', 'check_dataset.py classify.py'),
        ('coco/train.json', 'train.py detect.py --work-dir work'),
        ('coco/train.json', 'check_dataset.py detect.py'),
        ('data', 'check_dataset.py classify.py'),
    ])  # fmt: skip
    (folder / name).chmod(0)
    accept = ANY if name == 'data/train/cat' else REFUSED
    return Trial(one(line, fault=without_privileges), f'{name} cannot be read', (name, Path(name).name), accept)


# --- what is in the work dir already ---


def _with_work_dir(scene: Scene) -> tuple[str, str, Path, str]:
    """A config and its training, a folder with an empty work dir, and the name of the first checkpoint."""
    config, line = _line(scene)
    folder = scene.make()
    (folder / 'work').mkdir()
    return config, line, folder, first_checkpoint(folder / f'trained_{config}').name


@fault
def planted_links(scene: Scene) -> Trial:
    """Links under the names that a training writes, to files elsewhere."""
    config, line, folder, first = _with_work_dir(scene)
    names = [f'.{first}.partial', '.last_checkpoint.partial', 'last_checkpoint', first, 'bad_samples.jsonl',
             'non_finite.jsonl', f'{config}.py', 'interrupted.pth', '.interrupted.pth.partial', '.training.lock',
             '.lock']  # fmt: skip
    name = scene.draw.choice(names)
    target = scene.draw.choice(['../../precious/notes.txt', '../../precious/new', '../../precious', name, '/dev/full'])
    kind = scene.draw.choice(['symbolic', 'symbolic', 'hard'])
    if kind == 'hard':
        target = '../../precious/notes.txt'
        (folder / 'work' / name).hardlink_to(scene.precious / 'notes.txt')
    else:
        (folder / 'work' / name).symlink_to(target)
    if name == 'bad_samples.jsonl':
        (folder / 'data/train/cat/0.png').write_bytes(b'')
        (folder / 'ade/images/0.png').write_bytes(b'')
        (folder / 'coco/train/0.png').write_bytes(b'')
    # The link itself may be replaced, what it points to may not.
    accept = ANY if name == 'bad_samples.jsonl' else SAME
    return Trial(one(line), f'{config}: {kind} link {name} to {target}', (name, 'work'), accept, may_change=IN_WORK_DIR)


@fault
def folders_and_devices_in_the_way(scene: Scene) -> Trial:
    """Folders and FIFOs under the names of files, files under the names of folders."""
    config, line, folder, first = _with_work_dir(scene)
    names = [f'.{first}.partial', '.last_checkpoint.partial', 'last_checkpoint', first, f'{config}.py', 'vis_data',
             'bad_samples.jsonl']  # fmt: skip
    name, kind = scene.draw.choice(names), scene.draw.choice(['folder', 'FIFO', 'file'])
    path = folder / 'work' / name
    if kind == 'folder':
        path.mkdir()
        (path / 'thesis.tex').write_text('precious')
    elif kind == 'FIFO':
        os.mkfifo(path)
    else:
        path.write_text('precious')
    # What killed trainings leave under these names is theirs to remove.
    own = (f'{WORK_DIR}/.*.partial',) if kind == 'file' else ()
    return Trial(one(line), f'{config}: {kind} {name} in the work dir', (name, 'work'), SAME, may_change=own)


@fault
def last_checkpoint(scene: Scene) -> Trial:
    """The note of the last checkpoint, or what it names, is damaged."""
    config, line = _line(scene, RESUME)
    folder = scene.make(f'half {config}')
    note = folder / 'work/last_checkpoint'
    checkpoint = first_checkpoint(folder / 'work')
    kinds: dict[str, Callable[[], object]] = {
        'missing': note.unlink,
        'empty': lambda: note.write_text(''),
        'a missing file': lambda: note.write_text('work/epoch_7.pth'),
        'a folder': lambda: note.write_text('work'),
        'a file elsewhere': lambda: note.write_text('../precious/epoch_1.pth'),
        'binary': lambda: note.write_bytes(scene.draw.randbytes(100)),
        'no UTF-8': lambda: note.write_bytes(b'\xff\xfe.pth'),
        'long': lambda: note.write_text('x' * 10**6),
        'two lines': lambda: note.write_text(f'{note.read_text()}\n{note.read_text()}'),
        'a line break': lambda: note.write_text(f'{note.read_text()}\n'),
        'a link': lambda: (note.unlink(), note.symlink_to('../../precious/notes.txt')),
        'an address': lambda: note.write_text('http://localhost:1/a.pth'),
        'a device': lambda: note.write_text('/dev/zero'),
        'a FIFO': lambda: (note.unlink(), os.mkfifo(note)),
        'a directory itself': lambda: (note.unlink(), note.mkdir()),
        'a truncated checkpoint': lambda: os.truncate(checkpoint, checkpoint.stat().st_size // 2),
        'an empty checkpoint': lambda: os.truncate(checkpoint, 0),
        'a checkpoint that is gone': checkpoint.unlink,
    }
    kind = scene.draw.choice(list(kinds))
    kinds[kind]()
    base = f'half {config}'
    # The checkpoints stay: none may be overwritten where the training cannot go on from them.
    return Trial(one(line), f'{config}: {kind}', ('last_checkpoint', '.pth', 'work'), SAME, base, may_change=REWRITTEN)


@fault
def not_my_work_dir(scene: Scene) -> Trial:
    """A fresh training in a folder that holds another one's files, and a resumed one of another config."""
    config = scene.draw.choice(['classify', 'plugs', 'windows'])
    other = scene.draw.choice([name for name in TRAINED if name != config])
    scene.make(f'half {other}')
    fresh = scene.draw.random() < 0.4
    line = (TRAIN if fresh else RESUME).format(config=config)
    return Trial(one(line), f'{line} in the work dir of {other}', ('work', '.pth'), REFUSED)


@fault
def shared_out_dir(scene: Scene) -> Trial:
    """Two work dirs that put their checkpoints into one folder, one training after the other."""
    config, line = _line(scene)
    scene.make()
    option = ' --cfg-options default_hooks.checkpoint.out_dir=shared'
    second = line.replace('--work-dir work', '--work-dir second/work') + option
    if scene.draw.random() < 0.5:  # another rate, so that the files differ
        second += ' optim_wrapper.optimizer.lr=0.5'
    trial_of_both = [[Command(line + option)], [Command(second)]]
    folder = scene.folder
    # What the first has written must not change: it is made here, so that it is there before.
    (run,) = scene.sandboxes.run(trial_of_both[0], folder, folder.parent / 'streams' / 'first')
    if run.status != 0:
        raise RuntimeError(run.text)
    return Trial(trial_of_both[1:], f'{config}: checkpoint.out_dir of another training', ('shared', 'out_dir'), ANY)


@fault
def resumed_with_more(scene: Scene) -> Trial:
    """A finished or half finished training is resumed with settings that change it."""
    config = scene.draw.choice(TRAINED)
    base = f'half {config}'
    scene.make(base)
    option, accept = scene.draw.choice([
        ('optim_wrapper.optimizer.lr=0.5', TOLD), ('train_dataloader.batch_size=1', TOLD),
        ('optim_wrapper.optimizer.type=SGD', TOLD), ('randomness.seed=7', TOLD),
        ('default_hooks.checkpoint.max_keep_ckpts=1', ANY), ('train_dataloader.num_workers=2', SAME),
        ('default_hooks.logger.interval=3', SAME),
    ])  # fmt: skip
    line = RESUME.format(config=config)
    names = (option.partition('=')[0].rpartition('.')[2], option.partition('=')[0])
    clean = (line,)
    return Trial(one(f'{line} --cfg-options {option}'), f'{config}: {option}', names, accept, base, clean, IN_WORK_DIR)


# --- company ---


@fault
def two_trainings(scene: Scene) -> Trial:
    """Two trainings in one work dir, the second a moment after the first."""
    config, line = _line(scene)
    scene.make()
    seconds = scene.sandboxes.sound('plain', line).run.seconds
    other = f'{line} --cfg-options optim_wrapper.optimizer.lr=0.02'
    pause = scene.draw.choice([0.0, 0.0, 0.3, 0.7]) * seconds
    steps = [[Command(line), Command(other, partial(time.sleep, pause))]]
    damage = f'{config}: a second training after {pause:.2f} s'
    return Trial(steps, damage, ('work',), SAME, clean=(line, other), alone=True)


@fault
def resumed_beside(scene: Scene) -> Trial:
    """A training is resumed while it still runs."""
    config, line = _line(scene)
    scene.make()
    seconds = scene.sandboxes.sound('plain', line).run.seconds
    pause = scene.draw.uniform(0.2, 0.9) * seconds
    steps = [[Command(line), Command(RESUME.format(config=config), partial(time.sleep, pause))]]
    return Trial(steps, f'{config}: resumed after {pause:.2f} s while it runs', ('work',), SAME, clean=(line,))


@fault
def removed_while_it_runs(scene: Scene) -> Trial:
    """Files and folders vanish or are replaced at a moment of writing."""
    config, line = _line(scene)
    moment = _moment(scene, line)
    scene.make()
    data = {'classify': 'data', 'plugs': 'data', 'windows': 'data', 'segment': 'ade', 'detect': 'coco'}[config]

    def remove(pattern: str) -> None:
        for path in Path().glob(pattern):
            shutil.rmtree(path) if path.is_dir() else path.unlink()

    kinds: dict[str, Callable[[], object]] = {
        'the work dir is removed': lambda: remove('work'),
        'the work dir is renamed': lambda: os.path.exists('work') and os.rename('work', 'moved'),
        'the work dir becomes a file': lambda: (remove('work'), Path('work').write_text('')),
        'the work dir becomes a link': lambda: (remove('work'), os.symlink('../precious', 'work')),
        'the data is removed': lambda: remove(data),
        'the config is removed': lambda: remove(f'{config}.py'),
        'the checkpoints are removed': lambda: remove('work/*.pth'),
        'the note is removed': lambda: remove('work/last_checkpoint'),
        'the logs are removed': lambda: remove('work/2*'),
    }
    kind = scene.draw.choice(list(kinds))
    own = (f'sandbox/{data}*',) if 'data' in kind else (f'sandbox/{config}.py',) if 'config' in kind else ()
    # What is left after that is no training to be compared: nothing else may be lost, and a message says what is gone.
    names = ('work', data, f'{config}.py', 'no such', 'No such')
    steps = one(line, fault=at_write(moment, lambda path: kinds[kind]()))
    return Trial(steps, f'{config}: {kind} at write {moment}', names, ANY, may_change=own)


# --- numbers ---


@fault
def diverging(scene: Scene) -> Trial:
    """Losses that are not finite, from the start or after a good checkpoint."""
    config = scene.draw.choice(TRAINED)
    resumed = scene.draw.random() < 0.5
    base = f'half {config}' if resumed else 'plain'
    folder = scene.make(base)
    rate = scene.draw.choice(['1e30', '1e38', 'inf', 'nan', '1e20'])
    if resumed:  # the rate of a resumed training is the checkpoint's
        path = first_checkpoint(folder / 'work')
        content = torch.load(path, weights_only=False)
        key = next(k for k, v in content['state_dict'].items() if v.is_floating_point() and v.dim() > 1)
        content['state_dict'][key].mul_(1e30)
        torch.save(content, path)
        line = RESUME.format(config=config)
    else:
        line = f'{TRAIN.format(config=config)} --cfg-options optim_wrapper.optimizer.lr={rate}'
    names = ('not finite', 'lr', 'learning rate', '.pth')
    # Weights that are large but finite may be what is wished.
    return Trial(
        one(line), f'{config}: {"huge weights" if resumed else f"lr {rate}"}', names, ANY, base, may_change=REWRITTEN
    )
