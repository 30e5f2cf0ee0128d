"""Writes the config of an experiment on one's own data: behind `tools/misc/new_experiment.py`."""

import argparse
import copy
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from mmengine.config import Config

from vitplug.commands import call, command_parser
from vitplug.config.parts import pipeline_of
from vitplug.config.reading import read_config, take_plugs
from vitplug.config.text import Code, text
from vitplug.errors import printable
from vitplug.files.named import check_new_file, check_weights
from vitplug.plugs.text import NONE, PLUGS_HELP, parse_plugs
from vitplug.tasks import TASKS, check_scope

from .checks import check_data
from .checks.classes import model_parts
from .own_data import READERS, OwnData

EPOCHS = 50
FROM_SCRATCH = 'none'
LIBRARIES = {task.name: task.library for task in TASKS.values()}


# --- data ---


def read_own_data(cfg: Config, data: OwnData) -> None:
    """Has loaders and evaluators read data of one's own; a test without annotations is the validation."""
    for split in ('train', 'val', 'test'):
        name, metric = f'{split}_dataloader', f'{split}_evaluator'
        if split not in data.splits:
            cfg[name], cfg[metric] = Code('val_dataloader'), Code('val_evaluator')
            continue
        files, (place, steps) = data.splits[split], pipeline_of(cfg[name])
        changed = [dict(step, **_changes(step, data)) for step in steps]
        cfg[name].dataset = dict(
            type=files['type'],
            data_root=Code('data_root'),
            **{key: value for key, value in files.items() if key != 'type'},
            metainfo=dict(classes=Code('classes')),
            pipeline=changed if changed != list(steps) else Code(f'_base_.{name}.{place}'),
        )
        if split != 'train':
            cfg[metric] = dict(data.metric)
            if 'ann_file' in files:
                objects = ['bbox', 'segm'] if data.has_masks else 'bbox'
                cfg[metric].update(ann_file=Code(f'data_root + {text(files["ann_file"])}'), metric=objects)


def _changes(step: Mapping, data: OwnData) -> dict:
    """Changes to a step of a pipeline: masks are loaded where there are some, and label 0 is a class."""
    if 'LoadPanopticAnnotations' in str(step['type']) or step.get('with_seg'):
        raise ValueError('--base: it trains on maps of the background, which are not read here: choose another one')
    masks = dict(with_mask=False) if step.get('with_mask') and not data.has_masks else {}
    return masks | (dict(reduce_zero_label=False) if step.get('reduce_zero_label') else {})


# --- the model ---


def plug_in(cfg: Config, plugs: Sequence[Mapping], weights: str | None) -> None:
    """Gives the backbone of a config plugs and weights: a checkpoint, `FROM_SCRATCH`, or None for the base's.

    Raises:
        ValueError: If the backbone takes no plugs, and has no host that does.
    """
    take_plugs(cfg)
    cfg.model.backbone.plugs = plugs
    if weights is not None:
        init = None if weights == FROM_SCRATCH else dict(type='vitplug.Pretrained', checkpoint=weights)
        cfg.model.backbone['init_cfg'] = init
        if cfg.model.get('pretrained'):
            cfg.model.pretrained = None


def leave_masks_out(cfg: Config) -> None:
    """Leaves the mask head of a two-stage detector out.

    Raises:
        ValueError: If the detector needs masks.
    """
    if 'mask_head' not in (cfg.model.get('roi_head') or {}):
        raise ValueError(f'--base: {cfg.model.type} needs masks, and no object has one: choose a detector of boxes')
    cfg.model.roi_head.update(mask_head=None, mask_roi_extractor=None)


def count_classes(cfg: Config) -> bool:
    """Sets the numbers of classes of a model to the data's; False if it has none."""
    found = False
    for settings in (part.settings for part in model_parts(cfg) if part.name != 'backbone'):
        for key in settings.keys() & {'num_classes', 'num_things_classes'}:
            settings[key], found = Code('num_classes'), True
        if 'num_stuff_classes' in settings:
            settings['num_stuff_classes'] = 0
        weights = settings.get('class_weight')
        if isinstance(weights, list | tuple):
            # A last weight for no object stays, weights of single classes are dropped.
            alike = len({*weights[:-1]}) == 1 and weights[0] != weights[-1]
            settings['class_weight'] = Code(f'[{weights[0]!r}] * num_classes + [{weights[-1]!r}]') if alike else None
    return found


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


def set_schedule(cfg: Config, steps: int, epochs: int) -> dict[str, int]:
    """Sets a warm-up, then half a cosine, counted as the base counts.

    Args:
        cfg: The config.
        steps: Iterations of an epoch.
        epochs: Length of the training.

    Returns:
        Variables of the config, which the settings name.
    """
    total = epochs * steps
    # Beside the best checkpoint; those of all epochs would fill a disk.
    kept = dict(max_keep_ckpts=2, save_best='auto')
    if 'max_iters' not in cfg.train_cfg:
        variables = dict(max_epochs=epochs)
        cfg.train_cfg = dict(type='EpochBasedTrainLoop', max_epochs=Code('max_epochs'), val_interval=1)
        end = dict(by_epoch=True, begin=0, end=Code('max_epochs'), convert_to_iter_based=True)
    else:
        variables = dict(max_iters=total, val_interval=max(1, total // VALIDATIONS))
        lengths = dict(max_iters=Code('max_iters'), val_interval=Code('val_interval'))
        cfg.train_cfg = dict(type='IterBasedTrainLoop', **lengths)
        end = dict(by_epoch=False, begin=0, end=Code('max_iters'))
        kept['interval'] = Code('val_interval')
    warm_up = min(LONGEST_WARM_UP, total // 10)
    # mmengine's warm-up of one step never ends.
    rising = [dict(type='LinearLR', start_factor=0.01, by_epoch=False, begin=0, end=warm_up)] if warm_up > 1 else []
    cfg.param_scheduler = [*rising, dict(type='CosineAnnealingLR', eta_min=0.0, **end)]
    if has_hooks(cfg):
        cfg.default_hooks.checkpoint.update(kept)
    else:
        settings = text(kept).removeprefix('dict(')
        cfg.default_hooks = Code(
            f'dict(_base_.vitplug_hooks, checkpoint=dict(_base_.vitplug_hooks.checkpoint, {settings})'
        )
    return variables


def has_hooks(cfg: Config) -> bool:
    """True if a base has vitplug's hooks."""
    return 'interruption' in (cfg.get('default_hooks') or {})


def scale_rate(cfg: Config, batch: int) -> str:
    """Sets the learning rate of a batch, if the base says for which batch its rate is; where it comes from."""
    optimizer = cfg.optim_wrapper.get('optimizer') or {}
    before, of_batch = optimizer.get('lr'), (cfg.get('auto_scale_lr') or {}).get('base_batch_size')
    if not of_batch:
        return f"{before}, the base's, which names no batch"
    # In one process the rate stays as it is; mmengine raises it for more of them.
    cfg.auto_scale_lr.update(enable=True, base_batch_size=Code('batch_size'))
    if before is None:
        return "the base's"
    # The steps of SGD grow with the gradient; those of all others (Adam, LAMB ...) do not.
    is_sgd = str(optimizer.get('type')).endswith('SGD')
    optimizer.lr = float(f'{before * (batch / of_batch if is_sgd else math.sqrt(batch / of_batch)):.3g}')
    return f"{optimizer.lr:g}, the base's {before:g} times {'' if is_sgd else 'the root of '}{batch}/{of_batch}"


# --- the file ---


def difference(old: Mapping, new: Mapping) -> dict:
    """What a config adds to its base, as mmengine merges them."""
    changes = {}
    for key, value in new.items():
        before = old.get(key)
        if key in old and value == before:
            continue
        changes[key] = value
        if key in old and isinstance(value, Mapping):
            extends = isinstance(before, Mapping) and before.keys() <= value.keys()
            changes[key] = difference(before, value) if extends else dict(_delete_=True, **value)
    return changes


def config_of(args: argparse.Namespace) -> str:
    """The text of a config.

    Raises:
        ValueError, OSError: If data, base or plugs cannot be used; says what to do.
    """
    if args.pretrained not in (None, FROM_SCRATCH):
        check_weights(args.pretrained, option='--pretrained')
    plugs = parse_plugs(args.plugs, '--plugs')
    names = [name.strip() for name in args.classes.split(',') if args.classes]
    if names and (args.task != 'segmentation' or '' in names or len({*names}) < len(names)):
        raise ValueError(f'--classes {args.classes}: expected different names, of label maps, which alone have none')
    if args.epochs < 1:
        raise ValueError(f'--epochs {args.epochs}: expected at least 1')
    data = READERS[args.task](args.data, names)
    base = _read_base(args.base, args.task)
    cfg, batch = copy.deepcopy(base), fitting_batch(base, data.images)
    if not count_classes(cfg):
        raise ValueError(f'--base {args.base}: its model has no number of classes: choose a config of {args.task}')
    plug_in(cfg, plugs, args.pretrained)
    learns_masks = any(step.get('with_mask') for step in pipeline_of(base.train_dataloader)[1])
    if learns_masks and not data.has_masks:
        leave_masks_out(cfg)
    data = replace(data, has_masks=learns_masks and data.has_masks)
    read_own_data(cfg, data)
    cfg.train_dataloader.batch_size = Code('batch_size')
    lengths, rate = set_schedule(cfg, math.ceil(data.images / batch), args.epochs), scale_rate(cfg, batch)
    # A file is named from the folder of the new config.
    name = args.base if '::' in args.base else Path(os.path.relpath(args.base, args.out.parent)).as_posix()
    variables = dict(
        _base_=name if has_hooks(base) else [name, 'vitplug::_base_/hooks.py'],
        data_root=f'{args.data.as_posix()}/',
        classes=data.classes,
        num_classes=Code('len(classes)'),
        batch_size=batch,
        **lengths,
    )
    whole = cfg.to_dict()
    changes = difference(base.to_dict(), whole)
    # The test may name the evaluator of the validation, which may be that of the base.
    changes = {key: changes.pop(key, whole[key]) for key in ('val_dataloader', 'val_evaluator')} | changes
    comments = (
        f'{args.task.capitalize()} of {len(data.classes)} classes, {data.images} training images.',
        f'Learning rate: {rate}.',
        call('check', [str(args.out)]),
        call('train', [str(args.out)]),
    )
    blocks = (''.join(f'{name} = {text(value)}\n' for name, value in part.items()) for part in (variables, changes))
    return ''.join(f'# {printable(line)}\n' for line in comments) + '\n'.join(blocks)


def _read_base(base: str, task: str) -> Config:
    """The base, with everything it inherits.

    Raises:
        ValueError: If it is of another task.
    """
    cfg = read_config(base)
    check_scope(cfg)
    if cfg.default_scope != LIBRARIES[task]:
        raise ValueError(f'--base {base}: is a config of {cfg.default_scope}; the task needs one of {LIBRARIES[task]}')
    if missing := [key for key in ('train_dataloader', 'val_dataloader', 'val_evaluator') if not cfg.get(key)]:
        raise ValueError(f'--base {base}: has no {", ".join(missing)}: name a whole config (docs/models.md)')
    return cfg


def main(argv: Sequence[str] | None = None) -> None:
    """Writes a config, and checks its data."""
    args = _parser().parse_args(argv)
    check_new_file(args.out, '--out', ('.py',))
    args.out.write_text(config_of(args), encoding='utf-8')
    try:
        cfg = read_config(str(args.out))
        remarks = check_data(cfg, ('train', 'val'))
    except Exception:
        args.out.unlink()
        raise
    lines = [
        f'{args.out}: {len(cfg.classes)} classes ({", ".join(cfg.classes[:8])})',
        *remarks,
        f'next: {call("check", [str(args.out)])}',
    ]
    print('\n'.join(map(printable, lines)))


def _parser() -> argparse.ArgumentParser:
    parser = command_parser('new', 'Write the config of an experiment on your own data.')
    parser.add_argument('--task', required=True, choices=READERS)
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
