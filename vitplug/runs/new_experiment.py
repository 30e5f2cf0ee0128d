"""Writes the config of an experiment on one's own data: behind `tools/misc/new_experiment.py`."""

import argparse
import math
import os
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import torch
from mmengine.config import Config
from mmengine.registry import MODELS, init_default_scope

from vitplug.commands import call, command_parser
from vitplug.config.hosts import host_type
from vitplug.config.parts import as_list, pipeline_of
from vitplug.config.reading import read_config
from vitplug.config.text import Code, comment, printable, text
from vitplug.errors import one_line_errors
from vitplug.files.named import check_new_file, check_weights
from vitplug.plugs.text import NONE, PLUGS_HELP, parse_plugs
from vitplug.registry import PLUGS
from vitplug.tasks import TASKS, check_scope

from .checks.classes import APART
from .checks.data import check_data
from .own_data import OwnData, read_classification, read_detection, read_segmentation

EPOCHS = 50
FROM_SCRATCH = 'none'
NUM_CLASSES = Code('num_classes')


# --- data ---


class Experiment(NamedTuple):
    """What the libraries differ in: type of the data sets, reader of folders, metric, and further settings of data."""

    dataset: str
    read: Callable[[Path, Sequence[str]], OwnData]
    metric: Callable[[Config, OwnData, Mapping], dict]
    trained: Mapping = {}
    tested: Mapping = {}


def _accuracy(cfg: Config, data: OwnData, files: Mapping) -> dict:
    return dict(type='Accuracy', topk=(1, 5) if len(data.classes) > 5 else (1,))


def _iou(cfg: Config, data: OwnData, files: Mapping) -> dict:
    return dict(type='IoUMetric', iou_metrics=['mIoU'])


def _average_precision(cfg: Config, data: OwnData, files: Mapping) -> dict:
    metric = ['bbox', 'segm'] if data.has_masks and _loads_masks(cfg) else 'bbox'
    return dict(type='CocoMetric', ann_file=Code(f'data_root + {text(files["ann_file"])}'), metric=metric)


TESTED = dict(test_mode=True)
EXPERIMENTS = {
    'detection': Experiment(
        'CocoDataset', read_detection, _average_precision, dict(filter_cfg=dict(filter_empty_gt=True)), TESTED
    ),
    'segmentation': Experiment('BaseSegDataset', read_segmentation, _iou, tested=TESTED),
    'classification': Experiment('CustomDataset', read_classification, _accuracy),
}
LIBRARIES = {task.name: task.library for task in TASKS.values()}


def _loads_masks(cfg: Config) -> bool:
    return any(step.get('with_mask') for step in pipeline_of(cfg.train_dataloader)[1])


def _changes(step: Mapping, data: OwnData) -> dict:
    """Changes to a step of a pipeline: masks are loaded where there are some, and label 0 is a class.

    Raises:
        ValueError: If the base wants maps of the background, which a COCO file has not.
    """
    if 'LoadPanopticAnnotations' in str(step['type']) or step.get('with_seg'):
        raise ValueError('--base: it trains on maps of the background, which are not read here: choose another one')
    masks = dict(with_mask=False) if step.get('with_mask') and not data.has_masks else {}
    return masks | (dict(reduce_zero_label=False) if step.get('reduce_zero_label') else {})


def _loader(cfg: Config, split: str, experiment: Experiment, data: OwnData) -> dict:
    """Changes to a loader of the base that make it read a split of the data."""
    name = f'{split}_dataloader'
    place, steps = pipeline_of(cfg[name])
    changed = [dict(step, **_changes(step, data)) for step in steps]
    return dict(
        dataset=dict(
            _delete_=True,
            type=experiment.dataset,
            data_root=Code('data_root'),
            **data.splits[split],
            metainfo=dict(classes=Code('classes')),
            **(experiment.trained if split == 'train' else experiment.tested),
            pipeline=changed if changed != list(steps) else Code(f'_base_.{name}.{place}'),
        )
    )


def _loaders(cfg: Config, experiment: Experiment, data: OwnData) -> Iterator[tuple[str, object]]:
    """The loaders and the evaluators; a test without annotations is the validation."""
    yield 'train_dataloader', dict(batch_size=Code('batch_size'), **_loader(cfg, 'train', experiment, data))
    for split in ('val', 'test'):
        if split in data.splits:
            yield f'{split}_dataloader', _loader(cfg, split, experiment, data)
            yield f'{split}_evaluator', dict(_delete_=True, **experiment.metric(cfg, data, data.splits[split]))
        else:
            yield f'{split}_dataloader', Code('val_dataloader')
            yield f'{split}_evaluator', Code('val_evaluator')


# --- the model ---


def plugged_model(cfg: Config, plugs: Sequence[Mapping], weights: str | None) -> dict:
    """Changes to the model that give its backbone plugs and weights to start from.

    Args:
        cfg: The base.
        plugs: Plugs as dicts.
        weights: A checkpoint, `FROM_SCRATCH`, or None for the base's.

    Raises:
        ValueError: If the backbone takes no plugs, and has no host that does.
    """
    backbone: dict = dict(type=host_type(cfg))
    if weights == FROM_SCRATCH:
        backbone['init_cfg'] = None
    elif weights is not None:
        # mmengine removes `_delete_` only where something is deleted.
        replaces = dict(_delete_=True) if 'init_cfg' in cfg.model.backbone else {}
        backbone['init_cfg'] = dict(**replaces, type='vitplug.Pretrained', checkpoint=weights)
    changes = dict(backbone=dict(backbone, plugs=plugs))
    return dict(pretrained=None, **changes) if weights and cfg.model.get('pretrained') else changes


def without_masks(cfg: Config, data: OwnData) -> dict:
    """Changes that leave the mask head of a two-stage detector out where the data has no masks.

    Raises:
        ValueError: If the detector needs masks all the same.
    """
    if data.has_masks or not _loads_masks(cfg):
        return {}
    if 'mask_head' not in (cfg.model.get('roi_head') or {}):
        raise ValueError(
            f'--base: its {cfg.model.type} needs masks, and no annotation has a segmentation: choose a detector of '
            'boxes'
        )
    return dict(roi_head=dict(mask_head=None, mask_roi_extractor=None))


def class_counts(part: Mapping, place: str, apart: Collection[str]) -> dict:
    """Changes to a part of a model that set its numbers of classes to the data's.

    Args:
        part: The part.
        place: The expression that gives it in a config.
        apart: Parts that count something else, see :data:`vitplug.runs.checks.classes.APART`.
    """
    changes: dict = {}
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


# --- the schedule ---

# A batch has at most this part of an epoch's images, so that small data is trained in many steps, and never one image
# alone, which batch norms of one value cannot train on.
STEPS_OF_AN_EPOCH = 10
SMALLEST_BATCH = 2
# A training starts with a tenth of its iterations, or this many, at a rising learning rate.
LONGEST_WARM_UP = 1000
VALIDATIONS = 10  # of a training that is counted in iterations


def fitting_batch(cfg: Config, images: int) -> int:
    """The base's batch, or so much less that an epoch has enough steps."""
    return min(cfg.train_dataloader.batch_size, images, max(SMALLEST_BATCH, images // STEPS_OF_AN_EPOCH))


def schedule(cfg: Config, steps: int, epochs: int) -> dict:
    """Settings of a warm-up, then half a cosine, counted as the base counts.

    Args:
        cfg: The base.
        steps: Iterations of an epoch.
        epochs: Length of the training.
    """
    total = epochs * steps
    # Beside the best checkpoint; those of all epochs would fill a disk.
    kept = dict(max_keep_ckpts=2, save_best='auto')
    if 'max_iters' not in cfg.train_cfg:
        settings: dict = dict(max_epochs=epochs)
        loop = dict(type='EpochBasedTrainLoop', max_epochs=Code('max_epochs'), val_interval=1)
        end = dict(by_epoch=True, begin=0, end=Code('max_epochs'), convert_to_iter_based=True)
    else:
        settings = dict(max_iters=total, val_interval=max(1, total // VALIDATIONS))
        loop = dict(type='IterBasedTrainLoop', max_iters=Code('max_iters'), val_interval=Code('val_interval'))
        end = dict(by_epoch=False, begin=0, end=Code('max_iters'))
        kept['interval'] = Code('val_interval')
    warm_up = min(LONGEST_WARM_UP, total // 10)
    # mmengine's warm-up of one step never ends.
    rising = [dict(type='LinearLR', start_factor=0.01, by_epoch=False, begin=0, end=warm_up)] if warm_up > 1 else []
    return settings | dict(
        train_cfg=dict(_delete_=True, **loop),
        param_scheduler=[*rising, dict(type='CosineAnnealingLR', eta_min=0.0, **end)],
        default_hooks=_hooks(cfg, kept),
    )


def _hooks(cfg: Config, checkpoint: Mapping) -> object:
    """Changes to `default_hooks`: vitplug's where the base lacks them, and the settings of the one that saves."""
    if has_hooks(cfg):
        return dict(checkpoint=checkpoint)
    settings = ', '.join(f'{key}={text(value)}' for key, value in checkpoint.items())
    return Code(f'dict(_base_.vitplug_hooks, checkpoint=dict(_base_.vitplug_hooks.checkpoint, {settings}))')


def has_hooks(cfg: Config) -> bool:
    """Whether a base has vitplug's hooks."""
    return 'interruption' in (cfg.get('default_hooks') or {})


def learning_rate(cfg: Config, batch: int) -> tuple[dict, str]:
    """The learning rate of a batch as settings, and where it comes from."""
    optimizer = cfg.optim_wrapper.get('optimizer') or {}
    before, of_batch = optimizer.get('lr'), (cfg.get('auto_scale_lr') or {}).get('base_batch_size')
    # In one process the rate stays as it is; mmengine raises it for more of them.
    scaled = dict(auto_scale_lr=dict(enable=True, base_batch_size=Code('batch_size'))) if of_batch else {}
    if before is None:
        return scaled, 'those of the base'
    if not of_batch:
        return dict(optim_wrapper=dict(optimizer=dict(lr=before))), f"{before:g}, the base's, which names no batch"
    # The steps of SGD grow with the gradient; those of all others (Adam, LAMB ...) do not.
    kind, scale, by = str(optimizer.get('type')).rpartition('.')[2], batch / of_batch, f'{batch}/{of_batch}'
    if kind != 'SGD':
        scale, by = math.sqrt(scale), f'the root of {by}'
    rate = float(f'{before * scale:.3g}')
    reason = f"{rate:g}, the base's {before:g} times {by}, as {kind} takes it"
    return dict(optim_wrapper=dict(optimizer=dict(lr=rate)), **scaled), reason


# --- the file ---


def merged(*changes: Mapping) -> dict:
    """Nested changes in one."""
    result: dict = {}
    for change in changes:
        for key, value in change.items():
            both = isinstance(value, Mapping) and isinstance(result.get(key), Mapping)
            result[key] = merged(result[key], value) if both else value
    return result


def config_of(args: argparse.Namespace) -> str:
    """The text of a config.

    Raises:
        ValueError, OSError: If data, base or plugs cannot be used; says what to do.
    """
    if args.epochs < 1:
        raise ValueError(f'--epochs {args.epochs}: expected at least 1')
    experiment, apart = EXPERIMENTS[args.task], APART[LIBRARIES[args.task]]
    plugs = parse_plugs(args.plugs, '--plugs')
    data = experiment.read(args.data, _class_names(args.classes))
    cfg = _read_base(args.base, args.task)
    if args.pretrained not in (None, FROM_SCRATCH):
        check_weights(args.pretrained, option='--pretrained')
    counts = class_counts(cfg.model, '_base_.model', apart)
    if not counts:
        raise ValueError(f'--base {args.base}: its model has no number of classes: choose a config of {args.task}')
    counts.pop('backbone', None)
    batch = fitting_batch(cfg, data.images)
    rate, reason = learning_rate(cfg, batch)
    # A file is named from the folder of the new config.
    base = args.base if '::' in args.base else Path(os.path.relpath(args.base, args.out.parent)).as_posix()
    # Plugs of one's own are named by paths such as ``my_plugs.MixedHeads``.
    imports = as_list((cfg.get('custom_imports') or {}).get('imports'))
    modules = {plug['type'].rpartition('.')[0] for plug in plugs} - {'', PLUGS.scope, *imports}
    variables = dict(
        _base_=base if has_hooks(cfg) else [base, 'vitplug::_base_/hooks.py'],
        custom_imports=dict(imports=[*imports, *sorted(modules)]) if modules else {},
        data_root=f'{args.data.as_posix()}/',
        classes=data.classes,
        num_classes=Code('len(classes)'),
        batch_size=batch,
    )
    sections = dict(
        model=merged(plugged_model(cfg, plugs, args.pretrained), counts, without_masks(cfg, data)),
        data_preprocessor=class_counts(cfg.get('data_preprocessor') or {}, '_base_.data_preprocessor', apart),
        **dict(_loaders(cfg, experiment, data)),
        **schedule(cfg, math.ceil(data.images / batch), args.epochs),
        **rate,
    )
    comments = (
        f'{args.task.capitalize()} of {len(data.classes)} classes, {data.images} training images.',
        f'Learning rate: {reason}.',
        call('check', [str(args.out)]),
        call('train', [str(args.out)]),
    )
    blocks = (
        ''.join(f'{name} = {text(value)}\n' for name, value in part.items() if value not in ({}, []))
        for part in (variables, sections)
    )
    return ''.join(map(comment, comments)) + '\n'.join(blocks)


def _class_names(given: str) -> list[str]:
    """The names in `--classes`.

    Raises:
        ValueError: If one is empty, or stands twice.
    """
    names = [name.strip() for name in given.split(',')] if given else []
    if not all(names) or len({*names}) < len(names):
        raise ValueError(f'--classes {given!r}: expected different names with commas between them')
    return names


def _read_base(base: str, task: str) -> Config:
    """The base, with everything it inherits.

    Raises:
        FileNotFoundError: If there is none.
        ValueError: If it is of another task, or no config of a whole training.
    """
    cfg = read_config(base)
    check_scope(cfg)
    if cfg.default_scope != LIBRARIES[task]:
        raise ValueError(f'--base {base}: is a config of {cfg.default_scope}; the task needs one of {LIBRARIES[task]}')
    loaders = [f'{split}_dataloader' for split in ('train', 'val', 'test')]
    needed = ('model', *loaders, 'val_evaluator', 'test_evaluator', 'train_cfg', 'optim_wrapper')
    missing = [key for key in needed if not cfg.get(key)]
    if missing:
        raise ValueError(f'--base {base}: has no {", ".join(missing)}: name the config of a whole training')
    return cfg


def check_written(path: Path) -> tuple[Config, list[str]]:
    """Builds the backbone of a config, without memory for its weights, and checks its data as a training does.

    Returns:
        The config, and remarks on what of the data is left out.

    Raises:
        ValueError: If the plugs do not go together, or not with the host, or data do not fit.
    """
    cfg = read_config(str(path))
    init_default_scope(cfg.default_scope)
    with torch.device('meta'):
        MODELS.build(cfg.model.backbone)
    return cfg, check_data(cfg, splits=('train', 'val'))


def main(argv: Sequence[str] | None = None) -> None:
    """Writes a config. Unusable data or settings end in one line and exit status 2."""
    args = _parser().parse_args(argv)
    with one_line_errors():
        check_new_file(args.out, '--out', ('.py',))
        config = config_of(args)
        with open(args.out, 'x', encoding='utf-8') as file:
            file.write(config)
        try:
            cfg, remarks = check_written(args.out)
        except Exception:
            args.out.unlink()
            raise
    init = cfg.model.backbone.get('init_cfg')
    weights = cfg.model.get('pretrained') or (init.get('checkpoint') if isinstance(init, Mapping) else None)
    lines = [
        f'{args.out}: {len(cfg.classes)} classes ({", ".join(cfg.classes[:8])})',
        *remarks,
        f'starts from {weights or "random weights; --pretrained FILE starts it from others"}',
        f'next: {call("check", [str(args.out)])}',
    ]
    print('\n'.join(map(printable, lines)))


def _parser() -> argparse.ArgumentParser:
    parser = command_parser('new', 'Write the config of an experiment on your own data.')
    parser.add_argument('--task', required=True, choices=EXPERIMENTS)
    parser.add_argument('--data', required=True, type=Path, metavar='DIR', help='folder with train/ and val/')
    parser.add_argument('--base', required=True, metavar='CONFIG', help='a file, or a name such as mmdet::swin/....py')
    parser.add_argument(
        '--out', required=True, type=Path, metavar='FILE', help='the config to write; never overwritten'
    )
    parser.add_argument('--plugs', default=NONE, metavar='PLUGS', help=PLUGS_HELP)
    parser.add_argument('--classes', default='', metavar='NAMES', help='names of the labels of label maps, from 0')
    parser.add_argument('--epochs', type=int, default=EPOCHS, metavar='N', help=f'length (default {EPOCHS})')
    parser.add_argument(
        '--pretrained', metavar='FILE', help=f'weights to start from, or {FROM_SCRATCH} (default: those of the base)'
    )
    return parser
