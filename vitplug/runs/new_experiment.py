"""Writes the config of an experiment on one's own data: behind `tools/misc/new_experiment.py`."""

import argparse
import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path

import torch
from mmengine.config import Config
from mmengine.registry import MODELS, init_default_scope

from vitplug.commands import call, command_parser
from vitplug.config.hosts import host_type
from vitplug.config.parts import as_list, pipeline_of
from vitplug.config.paths import configs_folder
from vitplug.config.reading import read_config
from vitplug.config.text import Code, comment, printable, text
from vitplug.errors.one_line import SETTINGS, one_line_errors
from vitplug.files.named import check_printable, check_weights
from vitplug.plugs.text import NONE, PLUGS_HELP, parse_plugs
from vitplug.registry import PLUGS
from vitplug.tasks import TASKS, Task, check_scope
from vitplug.tasks.experiments.own_data import OwnData, Split

from .checks.data import check_data
from .experiment_schedule import Schedule

EPOCHS = 50
FROM_SCRATCH = 'none'
NUM_CLASSES = Code('num_classes')
# By the name of the task, as the command line takes it.
TASKS_BY_NAME = {task.name: task for task in reversed(TASKS.values())}


# --- the host ---


def plugged_model(cfg: Config, plugs: Sequence[Mapping], weights: str | None) -> dict:
    """Changes to the model that give its backbone plugs and weights to start from.

    Args:
        cfg: The base.
        plugs: Plugs as dicts.
        weights: A checkpoint, `FROM_SCRATCH`, or None for the base's.

    Raises:
        ValueError: if the backbone takes no plugs, and has no host that does.
    """
    host = host_type(cfg)
    start = _start(weights, cfg.model.backbone)
    changes = dict(backbone=dict(type=host, **start, plugs=plugs))
    return dict(pretrained=None, **changes) if start and cfg.model.get('pretrained') else changes


def own_modules(cfg: Config, plugs: Sequence[Mapping]) -> dict:
    """The `custom_imports` of a config whose plugs are named by paths such as ``my_plugs.MixedHeads``."""
    modules = {plug['type'].rpartition('.')[0] for plug in plugs} - {'', PLUGS.scope}
    before = as_list((cfg.get('custom_imports') or {}).get('imports'))
    return dict(custom_imports=dict(imports=[*before, *sorted(modules - {*before})])) if modules else {}


def _start(weights: str | None, backbone: Mapping) -> dict:
    """The `init_cfg` of a host.

    Args:
        weights: A checkpoint, `FROM_SCRATCH`, or None for no change.
        backbone: The base's, whose own is replaced. mmengine removes `_delete_` only where something is deleted.
    """
    if weights is None:
        return {}
    if weights == FROM_SCRATCH:
        return dict(init_cfg=None)
    replaces = dict(_delete_=True) if 'init_cfg' in backbone else {}
    return dict(init_cfg=dict(**replaces, type='vitplug.Pretrained', checkpoint=weights))


def base_weights(cfg: Config) -> str | None:
    """The checkpoint that a base starts from; None for random weights."""
    init = (cfg.model.get('backbone') or {}).get('init_cfg')
    return cfg.model.get('pretrained') or (init.get('checkpoint') if isinstance(init, Mapping) else None)


# --- numbers of classes ---


def class_counts(part: Mapping, place: str, apart: Collection[str]) -> dict:
    """Changes to a part of a model that set its numbers of classes to the data's.

    Args:
        part: The part.
        place: The expression that gives it in a config.
        apart: See :class:`vitplug.tasks.class_counts.ClassCounts`.
    """
    changes = {}
    if str(part.get('type')).rpartition('.')[2] in apart:
        return changes
    for key, value in part.items():
        if key in ('num_classes', 'num_things_classes'):
            changes[key] = NUM_CLASSES
        elif key == 'num_stuff_classes':
            changes[key] = 0
        elif key == 'class_weight' and isinstance(value, list | tuple):
            changes[key] = _class_weights(value)
        elif isinstance(value, Mapping) and key not in apart:
            changes[key] = class_counts(value, f'{place}.{key}', apart)
        elif isinstance(value, list | tuple) and key not in apart and all(isinstance(one, Mapping) for one in value):
            changes[key] = _counts_in_list(value, f'{place}.{key}', apart)
    return {key: value for key, value in changes.items() if value not in ({}, [])}


def _counts_in_list(parts: Sequence[Mapping], place: str, apart: Collection[str]) -> Code | list:
    """As :func:`class_counts` for a list of parts, such as the heads of a cascade: it is replaced as a whole."""
    changes_of_parts = [class_counts(part, f'{place}[{index}]', apart) for index, part in enumerate(parts)]
    if not any(changes_of_parts):
        return []
    if all(changes == dict(num_classes=NUM_CLASSES) for changes in changes_of_parts):
        return Code(f'[dict(part, num_classes=num_classes) for part in {place}]')
    return [Config._merge_a_into_b(changes, part) for changes, part in zip(changes_of_parts, parts, strict=True)]


def _class_weights(weights: Sequence[float]) -> Code | None:
    """Class weights for other classes: a last weight for no object stays, weights of single classes are dropped."""
    first, *_, before, last = (weights[0], *weights)
    alike = all(weight == first for weight in weights[:-1])
    return Code(f'[{before!r}] * num_classes + [{last!r}]') if alike and last != before else None


# --- data ---


def _loader(cfg: Config, name: str, task: Task, data: OwnData, split: Split, more: Mapping) -> dict:
    """Changes to a loader of the base that make it read a split of the data."""
    place, steps = pipeline_of(cfg[name])
    changed = [task.experiment.steps(data, step) for step in steps]
    pipeline = [dict(step, **change) for step, change in zip(steps, changed, strict=True)]
    leaf = dict(
        _delete_=True,
        type=task.experiment.dataset,
        data_root=Code('data_root'),
        **split.settings,
        metainfo=dict(classes=Code('classes')),
        **more,
        pipeline=pipeline if any(changed) else Code(f'_base_.{name}.{place}'),
    )
    for _ in range(place.partition('.pipeline')[0].count('.dataset') if 'datasets' not in place else 0):
        leaf = dict(dataset=leaf)
    return dict(dataset=leaf)


def _loaders(cfg: Config, task: Task, data: OwnData) -> Iterator[tuple[str, object]]:
    """The loaders and the evaluators."""
    trained = _loader(cfg, 'train_dataloader', task, data, data.splits['train'], task.experiment.trained)
    yield 'train_dataloader', dict(batch_size=Code('batch_size'), **trained)
    for split in ('val', 'test'):
        if split in data.splits:
            given = data.splits[split]
            yield f'{split}_dataloader', _loader(cfg, f'{split}_dataloader', task, data, given, task.experiment.tested)
            yield f'{split}_evaluator', dict(_delete_=True, **task.experiment.evaluator(cfg, data, given))
        else:
            yield f'{split}_dataloader', Code('val_dataloader')
            yield f'{split}_evaluator', Code('val_evaluator')


# --- hooks ---


def _hooks(cfg: Config, checkpoint: Mapping) -> tuple[bool, object]:
    """Whether the base lacks vitplug's hooks, and changes to `default_hooks`.

    Args:
        cfg: The base.
        checkpoint: Changes to the hook that saves checkpoints.
    """
    if 'interruption' in (cfg.get('default_hooks') or {}):
        return False, dict(checkpoint=checkpoint)
    settings = ', '.join(f'{key}={text(value)}' for key, value in checkpoint.items())
    hook = Code(f'dict(_base_.vitplug_hooks.checkpoint, {settings})')
    return True, Code(f'dict(_base_.vitplug_hooks, checkpoint={hook})')


# --- the file ---


def merged(*changes: Mapping) -> dict:
    """Nested changes in one."""
    result: dict = {}
    for change in changes:
        for key, value in change.items():
            both = isinstance(value, Mapping) and isinstance(result.get(key), Mapping)
            result[key] = merged(result[key], value) if both else value
    return result


def base_line(base: str, out: Path) -> str:
    """How a config in another folder names its base."""
    if '::' in base:
        return base
    configs, path = configs_folder('vitplug').resolve(), Path(base).resolve()
    if path.is_relative_to(configs):
        return f'vitplug::{path.relative_to(configs).as_posix()}'
    return Path(os.path.relpath(path, out.resolve().parent)).as_posix()


def experiment(args: argparse.Namespace) -> tuple[str, Schedule]:
    """The text of a config, and its schedule.

    Args:
        args: The command line.

    Raises:
        ValueError, OSError: if data, base or plugs cannot be used; says what to do.
    """
    task = TASKS_BY_NAME[args.task]
    plugs = parse_plugs(args.plugs, '--plugs')
    data = task.experiment.read(args.data, _class_names(args.classes))
    cfg = _read_base(args.base, task)
    if args.pretrained not in (None, FROM_SCRATCH):
        check_weights(args.pretrained, option='--pretrained')
    apart = task.class_counts.apart
    counts = class_counts(cfg.model, '_base_.model', apart)
    if not counts:
        raise ValueError(f'--base {args.base}: its model has no number of classes: choose a config of {args.task}')
    counts.pop('backbone', None)
    model = merged(plugged_model(cfg, plugs, args.pretrained), counts, task.experiment.model(cfg, data))
    schedule = Schedule.of(cfg, data.splits['train'].num_images, args.epochs, args.batch_size, args.lr)
    needs_hooks, hooks = _hooks(cfg, schedule.checkpoints())
    base = base_line(args.base, args.out)
    variables = dict(
        _base_=[base, 'vitplug::_base_/hooks.py'] if needs_hooks else base,
        **own_modules(cfg, plugs),
        data_root=f'{args.data.as_posix()}/',
        classes=data.classes,
        num_classes=Code('len(classes)'),
        batch_size=schedule.batch,
    )
    sections = dict(
        model=model,
        data_preprocessor=class_counts(cfg.get('data_preprocessor') or {}, '_base_.data_preprocessor', apart),
        **dict(_loaders(cfg, task, data)),
        **dict(schedule.settings()),
        default_hooks=hooks,
    )
    lines = [f'{name} = {text(value)}\n' for name, value in variables.items()]
    lines += ['\n', *(f'{name} = {text(value)}\n' for name, value in sections.items() if value not in ({}, []))]
    return ''.join([*_header(args, data), *lines]), schedule


def _class_names(given: str) -> list[str]:
    """The names in `--classes`.

    Raises:
        ValueError: if one is empty, or stands twice.
    """
    names = [name.strip() for name in given.split(',')] if given else []
    wrong = [name for name in names if not name or names.count(name) > 1]
    if wrong:
        fault = f'{wrong[0]!r} stands twice' if wrong[0] else 'a name is empty'
        raise ValueError(f'--classes {given!r}: {fault}: expected different names with commas between them')
    return names


def _header(args: argparse.Namespace, data: OwnData) -> list[str]:
    counts = ', '.join(f'{split.num_images} images in {name}' for name, split in data.splits.items())
    return [
        comment(f'{args.task.capitalize()} of {len(data.classes)} classes: {counts}.'),
        comment(call('check', [str(args.out)])),
        comment(call('train', [str(args.out)])),
    ]


def _read_base(base: str, task: Task) -> Config:
    """The base, with everything it inherits.

    Raises:
        FileNotFoundError: if there is none.
        ValueError: if it is of another task, or no config of a whole training.
    """
    cfg = read_config(base)
    check_scope(cfg)
    if cfg.default_scope != task.library:
        raise ValueError(f'--base {base}: is a config of {cfg.default_scope}; the task needs one of {task.library}')
    loaders = [f'{split}_dataloader' for split in ('train', 'val', 'test')]
    needed = ('model', *loaders, 'val_evaluator', 'test_evaluator', 'train_cfg', 'optim_wrapper')
    missing = [key for key in needed if not cfg.get(key)]
    if missing:
        raise ValueError(f'--base {base}: has no {", ".join(missing)}: name the config of a whole training')
    return cfg


def check_hosts_plugs(path: Path) -> Config:
    """Builds the backbone of a config, without memory for its weights.

    Raises:
        ValueError: if the plugs do not go together, or not with the host.
    """
    cfg = read_config(str(path))
    init_default_scope(cfg.default_scope)
    with torch.device('meta'):
        MODELS.build(cfg.model.backbone)
    return cfg


def main(argv: Sequence[str] | None = None) -> None:
    """Writes a config. Unusable data or settings end in one line and exit status 2."""
    args = _parser().parse_args(argv)
    with one_line_errors(*SETTINGS):
        _check_out(args.out)
        config, schedule = experiment(args)
        with open(args.out, 'x', encoding='utf-8') as file:
            file.write(config)
        try:
            cfg = check_hosts_plugs(args.out)
            remarks = check_data(cfg, splits=('train', 'val'))
        except SETTINGS:
            args.out.unlink()
            raise
    print(printable(f'{args.out}: {len(cfg.classes)} classes ({", ".join(cfg.classes[:8])})'))
    print('\n'.join([*map(printable, remarks), *schedule.lines()]))
    print(f'starts from {_told(base_weights(cfg))}')
    print(f'next: {call("check", [str(args.out)])}')


def _told(weights: str | None) -> str:
    if weights is None:
        return 'random weights; --pretrained FILE starts it from others'
    missing = '://' not in weights and not Path(weights).is_file()
    return f'{weights}, which is not there: get it, or name another file with --pretrained' if missing else weights


def _check_out(path: Path) -> None:
    if os.path.lexists(path):
        raise FileExistsError(f'--out: {path} exists and is not overwritten: choose another name')
    check_printable(path, '--out')
    if path.suffix != '.py':
        raise ValueError(f'--out: {path} must end in .py')
    if not path.parent.is_dir():
        raise FileNotFoundError(f'--out: {path}: there is no folder {path.parent}; make it first')


def _parser() -> argparse.ArgumentParser:
    parser = command_parser('new', 'Write the config of an experiment on your own data.')
    parser.add_argument('--task', required=True, choices=TASKS_BY_NAME)
    parser.add_argument('--data', required=True, type=Path, metavar='DIR', help='folder with train/ and val/')
    parser.add_argument('--base', required=True, metavar='CONFIG', help='a file, or a name such as mmdet::swin/....py')
    parser.add_argument(
        '--out', required=True, type=Path, metavar='FILE', help='the config to write; never overwritten'
    )
    parser.add_argument('--plugs', default=NONE, metavar='PLUGS', help=PLUGS_HELP)
    parser.add_argument('--classes', default='', metavar='NAMES', help='names of the labels of label maps, from 0')
    parser.add_argument('--epochs', type=int, default=EPOCHS, metavar='N', help=f'length (default {EPOCHS})')
    parser.add_argument(
        '--batch-size',
        type=int,
        metavar='N',
        help="images of a batch (default: the base's, or fewer for ten steps an epoch)",
    )
    parser.add_argument('--lr', type=float, help="learning rate (default: the base's, scaled to the batch)")
    parser.add_argument(
        '--pretrained', metavar='FILE', help=f'weights to start from, or {FROM_SCRATCH} (default: those of the base)'
    )
    return parser
