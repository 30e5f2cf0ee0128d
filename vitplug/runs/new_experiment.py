"""Writes the config of an experiment on one's own data: behind `tools/misc/new_experiment.py`.

One layout for each task; names of splits may go on (`train2017`, `valid`), and a test is not needed::

    classification   train/ val/ test/ with one folder for each class
    detection        the same, perhaps in images/, and a COCO file for each: in it, beside it or in annotations/
    segmentation     images/ and masks/ with train/ val/ test/ in each

Here places and names are found; whether files match is for :func:`.checks.check_data`.
"""

import argparse
import copy
import math
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from mmengine.config import Config

from vitplug.commands import call, command_parser
from vitplug.config.parts import pipeline_of
from vitplug.config.reading import read_config, take_plugs
from vitplug.config.text import Code, text
from vitplug.errors import printable
from vitplug.files.folders import IMAGE_SUFFIXES, names_in
from vitplug.files.named import check_new_file, check_weights
from vitplug.plugs.text import NONE, PLUGS_HELP, parse_plugs
from vitplug.tasks.libraries import TASKS, check_scope

from .checks import check_data
from .checks.classes import model_parts
from .checks.coco import read_coco

SPLITS = ('train', 'val', 'test')
FROM_SCRATCH = 'none'
LIBRARIES = {task.name: task.library for task in TASKS.values()}
# A batch has at most this part of an epoch's images, so that small data is trained in many steps, and never one image
# alone, which batch norms of one value cannot train on.
STEPS_OF_AN_EPOCH = 10
SMALLEST_BATCH = 2
# A training starts with a tenth of its iterations, or this many, at a rising learning rate.
LONGEST_WARM_UP = 1000

# --- data ---


class OwnData(NamedTuple):
    """A data set as it lies on the disk."""

    classes: Sequence[str]  # by label
    splits: Mapping[str, Mapping]  # settings of the data set of each split, with places relative to the root
    images: int  # of the training
    has_masks: bool = False  # whether every object has one (detection)


def only(root: Path, split: str, *patterns: str, kind: str = 'folder') -> Path | None:
    """The one file or folder of a split, by patterns below the root, or FileNotFoundError; None for a test without."""
    found = [path for pattern in patterns for path in sorted(root.glob(pattern))]
    found = [path for path in found if path.is_dir() == (kind == 'folder') and not path.name.startswith('.')]
    if len(found) == 1 or (split == 'test' and not found):
        return found[0] if found else None
    there = ', '.join(str(path.relative_to(root)) for path in found or sorted(root.glob('[!.]*'))[:8])
    raise FileNotFoundError(f'{root}: expected one {kind} for {split}, {" or ".join(patterns)}, and found {there}')


def read_classification(root: Path, names: Sequence[str]) -> OwnData:
    """Finds folders of classes, which name them."""
    folders = {split: only(root, split, f'{split}*') for split in SPLITS}
    found = {split: sorted(folder.iterdir()) for split, folder in folders.items() if folder}
    classes = {split: [path.name for path in paths if path.is_dir()] for split, paths in found.items()}
    # A test may have images without classes.
    splits = {split: dict(type='CustomDataset', data_prefix=folders[split].name) for split in classes if classes[split]}
    return OwnData(classes['train'], splits, len(names_in(folders['train'], IMAGE_SUFFIXES)))


def read_segmentation(root: Path, names: Sequence[str]) -> OwnData:
    """Finds images and label maps; the first pair tells how names end."""
    splits, number = {}, {}
    for split in SPLITS:
        images, masks = (only(root, split, f'{kind}/{split}*') for kind in ('images', 'masks'))
        if images and masks:
            files = names_in(images, IMAGE_SUFFIXES)
            stem, ending = os.path.splitext(next(iter(files), '.png'))
            maps = [name for name in names_in(masks, IMAGE_SUFFIXES) if name.startswith(stem)]
            # The shortest: 1 also begins 10_mask.png.
            ending_of_maps = min((name.removeprefix(stem) for name in maps), key=len, default='.png')
            prefix = dict(img_path=str(images.relative_to(root)), seg_map_path=str(masks.relative_to(root)))
            endings = dict(img_suffix=ending, seg_map_suffix=ending_of_maps)
            splits[split], number[split] = dict(type='BaseSegDataset', data_prefix=prefix, **endings), len(files)
    return OwnData(names, splits, number['train'])


def read_detection(root: Path, names: Sequence[str]) -> OwnData:
    """Finds COCO files and the folders of their images; ValueError if only some objects have masks."""
    splits, contents = {}, {}
    for split in SPLITS:
        folder = only(root, split, f'{split}*', f'images/{split}*')
        inside = [f'{folder.relative_to(root)}/*.json'] if folder else []
        file = only(root, split, f'*{split}*.json', f'annotations/*{split}*.json', *inside, kind='file')
        if folder and file:
            prefix = dict(img=f'{folder.relative_to(root)}/')
            splits[split] = dict(type='CocoDataset', ann_file=str(file.relative_to(root)), data_prefix=prefix)
            contents[split] = read_coco(file)
    objects = [one for content in contents.values() for one in content.get('annotations', ())]
    bare = [one['id'] for one in objects if not one.get('segmentation')]
    if 0 < len(bare) < len(objects):
        raise ValueError(
            f'annotation {bare[0]} has no segmentation, and {len(objects) - len(bare)} of {len(objects)} objects have '
            'one: give it one, or remove all of them to train boxes alone'
        )
    # Some exports have a category that holds the others: what no object of the training has is not learnt.
    used = {one['category_id'] for one in contents['train'].get('annotations', ())}
    classes = [one['name'] for one in contents['train']['categories'] if one['id'] in used]
    return OwnData(classes, splits, len(contents['train']['images']), not bare)


READERS = dict(detection=read_detection, segmentation=read_segmentation, classification=read_classification)


def load_own_data(cfg: Config, data: OwnData) -> None:
    """Has loaders and evaluators read data of one's own; a test without annotations is the validation."""
    for split in SPLITS:
        name, metric = f'{split}_dataloader', f'{split}_evaluator'
        if split not in data.splits:
            cfg[name], cfg[metric] = Code('val_dataloader'), Code('val_evaluator')
            continue
        files, (place, steps) = dict(data.splits[split], test_mode=split != 'train'), pipeline_of(cfg[name])
        changed = [dict(step, **_changes(step, data)) for step in steps]
        cfg[name].dataset = dict(
            data_root=Code('data_root'),
            **files,
            metainfo=dict(classes=Code('classes')),
            pipeline=changed if changed != list(steps) else Code(f'_base_.{name}.{place}'),
        )
        if split == 'train' and 'ann_file' in files:
            cfg[name].dataset['filter_cfg'] = dict(filter_empty_gt=True)
        elif split != 'train' and 'ann_file' in files:
            cfg[metric] = dict(type='CocoMetric', ann_file=Code(f'data_root + {text(files["ann_file"])}'))
            cfg[metric].metric = ['bbox', 'segm'] if data.has_masks else 'bbox'
        elif split != 'train':
            accuracy = dict(type='Accuracy', topk=(1, 5) if len(data.classes) > 5 else (1,))
            is_maps = 'img_suffix' in files
            cfg[metric] = dict(type='IoUMetric', iou_metrics=['mIoU']) if is_maps else accuracy


def _changes(step: Mapping, data: OwnData) -> dict:
    """Changes to a step of a pipeline: masks are loaded where there are some, and label 0 is a class."""
    masks = dict(with_mask=False) if step.get('with_mask') and not data.has_masks else {}
    return masks | (dict(reduce_zero_label=False) if step.get('reduce_zero_label') else {})


# --- the model ---


def change_model(cfg: Config, plugs: Sequence[Mapping], weights: str | None, has_masks: bool) -> None:
    """Gives a model plugs, weights (None for the base's), the number of classes, and no head for absent masks."""
    take_plugs(cfg)
    cfg.model.backbone.plugs = plugs
    if weights is not None:
        init = None if weights == FROM_SCRATCH else dict(type='vitplug.Pretrained', checkpoint=weights)
        cfg.model.backbone['init_cfg'] = init
        if cfg.model.get('pretrained'):
            cfg.model.pretrained = None
    if not has_masks and any(step.get('with_mask') for step in pipeline_of(cfg.train_dataloader)[1]):
        if 'mask_head' not in (cfg.model.get('roi_head') or {}):
            raise ValueError(f'--base: {cfg.model.type} needs masks, and no object has one: choose a detector of boxes')
        cfg.model.roi_head.update(mask_head=None, mask_roi_extractor=None)
    for settings in (part.settings for part in model_parts(cfg) if part.name != 'backbone'):
        for key in settings.keys() & {'num_classes', 'num_things_classes'}:
            settings[key] = Code('num_classes')
        weights = settings.get('class_weight')
        if isinstance(weights, list | tuple):
            # A last weight for no object stays, weights of single classes are dropped.
            alike = len({*weights[:-1]}) == 1 and weights[0] != weights[-1]
            settings['class_weight'] = Code(f'[{weights[0]!r}] * num_classes + [{weights[-1]!r}]') if alike else None


# --- the schedule ---


def set_schedule(cfg: Config, steps: int, epochs: int) -> dict[str, int]:
    """Sets a warm-up, then half a cosine, counted as the base counts, with a validation after each epoch.

    ``steps`` are the iterations of an epoch. Gives the variables of the config that the settings name.
    """
    total, by_epoch = epochs * steps, 'max_iters' not in cfg.train_cfg
    # Beside the best checkpoint; those of all epochs would fill a disk.
    kept = dict(max_keep_ckpts=2, save_best='auto')
    if by_epoch:
        variables = dict(max_epochs=epochs)
        cfg.train_cfg = dict(type='EpochBasedTrainLoop', max_epochs=Code('max_epochs'), val_interval=1)
    else:
        variables = dict(max_iters=total, val_interval=steps)
        lengths = dict(max_iters=Code('max_iters'), val_interval=Code('val_interval'))
        cfg.train_cfg, kept['interval'] = dict(type='IterBasedTrainLoop', **lengths), Code('val_interval')
    end = dict(by_epoch=by_epoch, begin=0, end=Code(next(iter(variables))))
    end |= dict(convert_to_iter_based=True) if by_epoch else {}
    warm_up = min(LONGEST_WARM_UP, total // 10)
    # mmengine's warm-up of one step never ends.
    rising = [dict(type='LinearLR', start_factor=0.01, by_epoch=False, begin=0, end=warm_up)] if warm_up > 1 else []
    cfg.param_scheduler = [*rising, dict(type='CosineAnnealingLR', eta_min=0.0, **end)]
    if has_hooks(cfg):
        cfg.default_hooks.checkpoint.update(kept)
    else:
        checkpoint = f'dict(_base_.vitplug_hooks.checkpoint, {text(kept).removeprefix("dict(")}'
        cfg.default_hooks = Code(f'dict(_base_.vitplug_hooks, checkpoint={checkpoint})')
    return variables


def has_hooks(cfg: Config) -> bool:
    """True if a base has vitplug's hooks."""
    return 'interruption' in (cfg.get('default_hooks') or {})


def scale_rate(cfg: Config, batch: int) -> None:
    """Sets the learning rate of a batch, if the base says for which batch its rate is."""
    optimizer, scaling = cfg.optim_wrapper.get('optimizer') or {}, cfg.get('auto_scale_lr') or {}
    of_batch = scaling.get('base_batch_size')
    if of_batch and 'lr' in optimizer:
        # In one process the rate stays as it is; mmengine raises it for more of them.
        scaling.update(enable=True, base_batch_size=Code('batch_size'))
        # The steps of SGD grow with the gradient; those of all others (Adam, LAMB ...) do not.
        power = 1.0 if str(optimizer.get('type')).endswith('SGD') else 0.5
        optimizer.lr = float(f'{optimizer.lr * (batch / of_batch) ** power:.3g}')


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
    """The text of a config; ValueError or OSError if data, base or plugs cannot be used."""
    if args.pretrained not in (None, FROM_SCRATCH):
        check_weights(args.pretrained, option='--pretrained')
    names = [name.strip() for name in args.classes.split(',') if name.strip()]
    if bool(names) != (args.task == 'segmentation'):
        raise ValueError(
            f'--classes {args.classes}: label maps, and they alone, need names for their labels 0, 1, 2 ...'
        )
    base = read_config(args.base)
    check_scope(base)
    if base.default_scope != LIBRARIES[args.task]:
        raise ValueError(f'--base {args.base}: the task needs a config of {LIBRARIES[args.task]}')
    if missing := [key for key in ('train_dataloader', 'val_dataloader', 'val_evaluator') if not base.get(key)]:
        raise ValueError(f'--base {args.base}: has no {", ".join(missing)}: name a whole config (docs/models.md)')
    data, cfg = READERS[args.task](args.data, names), copy.deepcopy(base)
    batch = min(base.train_dataloader.batch_size, max(SMALLEST_BATCH, data.images // STEPS_OF_AN_EPOCH))
    change_model(cfg, parse_plugs(args.plugs, '--plugs'), args.pretrained, data.has_masks)
    learns_masks = any(step.get('with_mask') for step in pipeline_of(base.train_dataloader)[1])
    load_own_data(cfg, data._replace(has_masks=learns_masks and data.has_masks))
    cfg.train_dataloader.batch_size = Code('batch_size')
    lengths = set_schedule(cfg, math.ceil(data.images / batch), args.epochs)
    scale_rate(cfg, batch)
    # A file is named from the folder of the new config.
    name = args.base if '::' in args.base else Path(os.path.relpath(args.base, args.out.parent)).as_posix()
    variables = dict(
        _base_=name if has_hooks(base) else [name, 'vitplug::_base_/hooks.py'],
        data_root=f'{args.data.as_posix()}/',
        classes=tuple(data.classes),
        num_classes=Code('len(classes)'),
        batch_size=batch,
        **lengths,
    )
    whole = cfg.to_dict()
    changes = difference(base.to_dict(), whole)
    # The test may name the evaluator of the validation, which may be that of the base.
    changes = {key: changes.pop(key, whole[key]) for key in ('val_dataloader', 'val_evaluator')} | changes
    blocks = (''.join(f'{name} = {text(value)}\n' for name, value in part.items()) for part in (variables, changes))
    title = f'{args.task.capitalize()} of {len(data.classes)} classes, {data.images} training images.'
    return f'# {title}\n# {printable(call("train", [str(args.out)]))}\n' + '\n'.join(blocks)


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
    title = f'{args.out}: {len(cfg.classes)} classes ({", ".join(cfg.classes[:8])})'
    print('\n'.join(map(printable, (title, *remarks, f'next: {call("check", [str(args.out)])}'))))


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
    parser.add_argument('--epochs', type=int, default=50, metavar='N', help='length (default 50)')
    parser.add_argument(
        '--pretrained', metavar='FILE', help=f'weights to start from, or {FROM_SCRATCH} (default: those of the base)'
    )
    return parser
