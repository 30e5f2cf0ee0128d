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
from .checks.coco import check_masks, read_coco

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
    has_masks: bool = False  # whether objects have some (detection)


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
    for split in ('train', 'val'):
        if (number := len(classes[split])) < 2:
            raise FileNotFoundError(f'{folders[split]} has {number} class folders: expected two or more, with images')
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
    """Finds COCO files and the folders of their images."""
    splits, contents = {}, {}
    for split in SPLITS:
        folder = only(root, split, f'{split}*', f'images/{split}*')
        inside = [f'{folder.relative_to(root)}/*.json'] if folder else []
        file = only(root, split, f'*{split}*.json', f'annotations/*{split}*.json', *inside, kind='file')
        if folder and file:
            prefix = dict(img=f'{folder.relative_to(root)}/')
            splits[split] = dict(type='CocoDataset', ann_file=str(file.relative_to(root)), data_prefix=prefix)
            contents[split] = read_coco(file)
    has_masks = any(one.get('segmentation') for content in contents.values() for one in content.get('annotations', ()))
    for split, content in contents.items() if has_masks else ():
        check_masks(content.get('annotations', ()), root / splits[split]['ann_file'])
    # Some exports have a category that holds the others: what no object of the training has is not learnt.
    used = {one['category_id'] for one in contents['train'].get('annotations', ())}
    classes = [one['name'] for one in contents['train']['categories'] if one['id'] in used]
    return OwnData(classes, splits, len(contents['train']['images']), has_masks)


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


def set_schedule(cfg: Config, steps: int, epochs: int) -> None:
    """Sets a warm-up, then half a cosine, over epochs of ``steps`` iterations, with a validation after each."""
    cfg.train_cfg = dict(type='EpochBasedTrainLoop', max_epochs=Code('max_epochs'), val_interval=1)
    if 'Infinite' in str(cfg.train_dataloader.get('sampler')):  # of a base that counts iterations
        # Batch norms of one value, as in a last batch of one image, cannot be trained.
        cfg.train_dataloader.update(sampler=dict(type='DefaultSampler', shuffle=True), drop_last=True)
        cfg.log_processor = dict(cfg.get('log_processor') or {}, by_epoch=True)
    cosine = dict(type='CosineAnnealingLR', eta_min=0.0, by_epoch=True, begin=0, end=Code('max_epochs'))
    warm_up = min(LONGEST_WARM_UP, epochs * steps // 10)
    # mmengine's warm-up of one step never ends.
    rising = [dict(type='LinearLR', start_factor=0.01, by_epoch=False, begin=0, end=warm_up)] if warm_up > 1 else []
    cfg.param_scheduler = [*rising, dict(cosine, convert_to_iter_based=True)]
    # Beside the best checkpoint; those of all epochs would fill a disk.
    kept = dict(by_epoch=True, interval=1, max_keep_ckpts=2, save_best='auto')
    if has_hooks(cfg):
        cfg.default_hooks.checkpoint.update(kept)
    else:
        checkpoint = f'dict(_base_.vitplug_hooks.checkpoint, {text(kept).removeprefix("dict(")}'
        cfg.default_hooks = Code(f'dict(_base_.vitplug_hooks, checkpoint={checkpoint})')


def has_hooks(cfg: Config) -> bool:
    """True if a base has vitplug's hooks."""
    return 'interruption' in (cfg.get('default_hooks') or {})


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
    set_schedule(cfg, math.ceil(data.images / batch), args.epochs)
    if cfg.train_dataloader.get('drop_last') and data.images < batch:
        raise ValueError(f'--data {args.data}: {data.images} training images are no whole batch of {batch}: add some')
    if 'base_batch_size' in (cfg.get('auto_scale_lr') or {}):
        cfg.auto_scale_lr.enable = True
    # A file is named from the folder of the new config.
    name = args.base if '::' in args.base else Path(os.path.relpath(args.base, args.out.parent)).as_posix()
    variables = dict(
        _base_=name if has_hooks(base) else [name, 'vitplug::_base_/hooks.py'],
        data_root=f'{args.data.as_posix()}/',
        classes=tuple(data.classes),
        num_classes=Code('len(classes)'),
        batch_size=batch,
        max_epochs=args.epochs,
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
