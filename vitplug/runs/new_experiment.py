"""Writes the config of an experiment on one's own data: behind `tools/misc/new_experiment.py`.

It is a child of another config, and has what differs from it.

One layout for each task; names of splits may go on (`train2017`, `valid`), and a test is not needed::

    classification   train/ val/ test/ with one folder for each class
    detection        the same, perhaps in images/, and a COCO file for each: in it, beside it or in annotations/
    segmentation     images/ and masks/ with train/ val/ test/ in each

Here places and names are found; whether files match is for :func:`.checks.check_data`.
"""

import argparse
import inspect
import math
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from mmengine.config import Config
from mmengine.runner import Runner

from vitplug.commands import call, command_parser
from vitplug.config.parts import difference, pipeline_of
from vitplug.config.reading import CONFIG_HELP, PLUGS_KEY, read_config
from vitplug.config.text import Code, config_text, text
from vitplug.errors import printable
from vitplug.files.folders import IMAGE_SUFFIXES, names_in
from vitplug.files.named import check_new_file, check_weights
from vitplug.plugs.text import NONE, PLUGS_HELP, parse_plugs
from vitplug.tasks.libraries import KNOWN, TASKS, check_scope

from .checks import check_data, own_splits
from .checks.accounts import read_coco
from .checks.classes import model_parts

SPLITS = ('train', 'val', 'test')
FROM_SCRATCH = 'none'
HOOKS = 'vitplug::_base_/hooks.py'
# A batch has at most this part of an epoch's images, so that small data is trained in many steps, and never one image
# alone, which batch norms of one value cannot train on.
STEPS_OF_AN_EPOCH = 10
SMALLEST_BATCH = 2
# A training starts with a tenth of its iterations, or this many, at a rising learning rate.
LONGEST_WARM_UP = 1000


class OwnData(NamedTuple):
    """A data set as it lies on the disk."""

    classes: Sequence[str]  # by label
    splits: Mapping[str, Mapping]  # settings of the data set of each split, with places relative to the root
    images: int  # of the training
    metric: Mapping  # settings of the evaluator, without its file
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
    splits, classes, images = {}, {}, {}
    for split in SPLITS:
        folder = only(root, split, f'{split}*')
        found = sorted(path.name for path in folder.iterdir() if path.is_dir()) if folder else []
        if len(found) > 1:
            splits[split] = dict(type='CustomDataset', data_prefix=folder.name)
            classes[split], images[split] = found, len(names_in(folder, IMAGE_SUFFIXES))
        elif found or split != 'test':  # which may have images without classes
            raise FileNotFoundError(f'{folder} has {len(found)} class folders: expected two or more, with images')
    return OwnData(classes['train'], splits, images['train'], dict(type='Accuracy'))


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
    return OwnData(names, splits, number['train'], dict(type='IoUMetric', iou_metrics=['mIoU']))


def read_detection(root: Path, names: Sequence[str]) -> OwnData:
    """Finds COCO files and the folders of their images."""
    splits, contents = {}, {}
    for split in SPLITS:
        folder = only(root, split, f'{split}*', f'images/{split}*')
        inside = [f'{folder.relative_to(root)}/*.json'] if folder else []
        file = only(root, split, f'*{split}*.json', f'annotations/*{split}*.json', *inside, kind='file')
        if folder and file and ((content := read_coco(file)).get('annotations') or split != 'test'):
            places = dict(ann_file=str(file.relative_to(root)), data_prefix=dict(img=f'{folder.relative_to(root)}/'))
            splits[split] = dict(type='CocoDataset', **places, filter_cfg=dict(filter_empty_gt=True))
            contents[split] = content
    objects = contents['train'].get('annotations', ())
    # Some exports have a category that holds the others: what no object of the training has is not learnt.
    used = {one['category_id'] for one in objects}
    classes = [one['name'] for one in contents['train']['categories'] if one['id'] in used]
    has_masks = any(one.get('segmentation') for one in objects)
    return OwnData(classes, splits, len({one['image_id'] for one in objects}), dict(type='CocoMetric'), has_masks)


# By library.
READERS = dict(mmdet=read_detection, mmseg=read_segmentation, mmpretrain=read_classification)


def load_own_data(cfg: Config, data: OwnData, with_masks: bool) -> None:
    """Has loaders and evaluators read data of one's own; a test without annotations is the validation."""
    # Label 0 is a class, and masks are loaded where they are learnt.
    off = ('reduce_zero_label',) if with_masks else ('reduce_zero_label', 'with_mask')
    for split in SPLITS:
        loader, metric = f'{split}_dataloader', f'{split}_evaluator'
        if split not in data.splits:
            cfg[loader], cfg[metric] = cfg.val_dataloader, cfg.val_evaluator
            continue
        place, steps = pipeline_of(cfg[loader])
        changed = [{**step, **{key: False for key in off if step.get(key)}} for step in steps]
        own = dict(data_root=Code('data_root'), metainfo=dict(classes=Code('classes')), test_mode=split != 'train')
        pipeline = changed if changed != list(steps) else Code(f'_base_.{loader}.{place}')
        dataset = dict(data.splits[split], **own, pipeline=pipeline)
        cfg[loader] = {**cfg[loader], 'dataset': dataset}
        if split != 'train':
            cfg[metric] = data.metric
            if 'ann_file' in dataset:
                kinds = ['bbox', 'segm'] if with_masks else 'bbox'
                cfg[metric] = dict(data.metric, ann_file=Code(f'data_root + {dataset["ann_file"]!r}'), metric=kinds)


def change_model(cfg: Config, weights: str | None, without_masks: bool) -> None:
    """Gives a model weights (None for the base's), the number of classes, and no head for masks that are absent."""
    if weights is not None:
        init = None if weights == FROM_SCRATCH else dict(type='vitplug.Pretrained', checkpoint=weights)
        cfg.model.backbone['init_cfg'] = init
        if cfg.model.get('pretrained'):
            cfg.model.pretrained = None
        if cfg.get('load_from'):
            cfg.load_from = None
    if without_masks:
        if 'mask_head' not in (cfg.model.get('roi_head') or {}):
            raise ValueError(f'--base: {cfg.model.type} needs masks, and no object has one: choose a detector of boxes')
        cfg.model.roi_head.update(mask_head=None, mask_roi_extractor=None)
    for part in (part for part in model_parts(cfg) if not part.goes_by('backbone')):
        settings = part.settings
        for key in ('num_classes', 'num_things_classes'):
            if key in settings or (part.get(key) or 0) > 0:  # or of the class, such as 80
                settings[key] = Code('num_classes')
        weights = settings.get('class_weight')
        if isinstance(weights, list | tuple):
            # A last weight for no object stays, weights of single classes are dropped.
            alike = len({*weights[:-1]}) == 1 and weights[0] != weights[-1]
            settings['class_weight'] = Code(f'[{weights[0]!r}] * num_classes + [{weights[-1]!r}]') if alike else None


def set_schedule(cfg: Config, steps: int, epochs: int) -> None:
    """Sets a warm-up, then half a cosine, over epochs of ``steps`` iterations, with a validation after each."""
    cfg.train_cfg = dict(type='EpochBasedTrainLoop', max_epochs=Code('max_epochs'), val_interval=1)
    if 'Infinite' in str(cfg.train_dataloader.get('sampler')):  # of a base that counts iterations
        # Batch norms of one value, as in a last batch of one image, cannot be trained.
        cfg.train_dataloader.update(
            sampler=dict(type='DefaultSampler', shuffle=True), drop_last=True, batch_sampler=None
        )
    cfg.log_processor = dict(cfg.get('log_processor') or {}, by_epoch=True)
    for hook in cfg.get('custom_hooks') or ():  # an average for hundreds of epochs would stay near the start
        if str(hook['type']).endswith('EMAHook'):
            hook.setdefault('ema_type', 'MomentumAnnealingEMA')
    # mmengine's warm-up of one step never ends.
    warm_up = max(2, min(LONGEST_WARM_UP, epochs * steps // 10))
    rising = dict(type='LinearLR', start_factor=0.01, by_epoch=False, end=warm_up)
    cosine = dict(type='CosineAnnealingLR', eta_min=0.0, by_epoch=True, end=Code('max_epochs'))
    cfg.param_scheduler = [rising, dict(cosine, convert_to_iter_based=True)]
    hooks = read_config(HOOKS).vitplug_hooks
    # Beside the best checkpoint; those of all epochs would fill a disk.
    hooks.checkpoint.update(by_epoch=True, interval=1, max_keep_ckpts=2, save_best='auto')
    cfg.default_hooks = {**hooks, **(cfg.get('default_hooks') or {}), 'checkpoint': hooks.checkpoint}


def child_of(base: Config, name: str, cfg: Config) -> tuple[str | list[str], dict]:
    """The bases and the settings of a child of ``base``, which goes by a name, that is equal to a config."""
    changes = difference(base.to_dict(), cfg.to_dict())
    for kind in ('dataloader', 'evaluator'):
        if f'val_{kind}' in changes and changes[f'val_{kind}'] == changes.get(f'test_{kind}'):
            changes[f'test_{kind}'] = Code(f'val_{kind}')
    hooks = changes.get('default_hooks', {})
    lacks_hooks = hooks.keys() == read_config(HOOKS).vitplug_hooks.keys() and 'vitplug_hooks' not in base
    if lacks_hooks:
        checkpoint = text(hooks['checkpoint'], indent=4)
        changes['default_hooks'] = Code(f'dict(\n    _base_.vitplug_hooks,\n    checkpoint={checkpoint},\n)')
    # In the order of mmengine, which has validations before tests.
    settings = {key: changes[key] for key in inspect.signature(Runner).parameters if key in changes}
    return [name, HOOKS] if lacks_hooks else name, settings


def config_of(args: argparse.Namespace) -> str:
    """The text of a config; ValueError or OSError if data, base or plugs cannot be used."""
    if args.pretrained not in (None, FROM_SCRATCH):
        check_weights(args.pretrained, option='--pretrained')
    base = read_config(args.base)
    check_scope(base)
    if base.default_scope not in READERS:
        raise ValueError(f'--base {args.base}: default_scope = {base.default_scope!r}: expected one of {KNOWN}')
    cfg = read_config(args.base, {PLUGS_KEY: parse_plugs(args.plugs, '--plugs')})
    names = [name.strip() for name in args.classes.split(',') if name.strip()]
    if bool(names) != (cfg.default_scope == 'mmseg'):
        raise ValueError(f'--classes {args.classes}: label maps, and they alone, need names for their labels')
    data = READERS[cfg.default_scope](args.data, names)
    if missing := [f'{split}_dataloader' for split in data.splits if not cfg.get(f'{split}_dataloader')]:
        raise ValueError(f'--base {args.base}: has no {", ".join(missing)}: name a whole config (docs/models.md)')
    if data.images < SMALLEST_BATCH:
        kind = ' with objects' if base.default_scope == 'mmdet' else ''
        raise ValueError(f'--data {args.data}: {data.images} training images{kind} are no batch: add some')
    batch = max(SMALLEST_BATCH, min(cfg.train_dataloader.batch_size, data.images // STEPS_OF_AN_EPOCH))
    steps = pipeline_of(cfg.train_dataloader)[1]
    if not any('Load' in str(step['type']) for step in steps):
        raise ValueError(f'--base {args.base}: its pipeline loads no files, as of data sets in memory: choose another')
    loads_masks = any(step.get('with_mask') for step in steps)
    change_model(cfg, args.pretrained, loads_masks and not data.has_masks)
    load_own_data(cfg, data, loads_masks and data.has_masks)
    set_schedule(cfg, math.ceil(data.images / batch), args.epochs)
    cfg.train_dataloader.batch_size = Code('batch_size')
    if 'base_batch_size' in (cfg.get('auto_scale_lr') or {}):
        cfg.auto_scale_lr.enable = True
    # A file is named from the folder of the new config.
    name = args.base if '::' in args.base else Path(os.path.relpath(args.base, args.out.parent)).as_posix()
    bases, settings = child_of(base, name, cfg)
    variables = dict(
        _base_=bases,
        data_root=f'{args.data.as_posix()}/',
        classes=tuple(data.classes),
        num_classes=Code('len(classes)'),
        batch_size=batch,
        max_epochs=args.epochs,
    )
    task = TASKS[cfg.default_scope].name.capitalize()
    title = f'{task} of {len(data.classes)} classes, {data.images} training images.'
    command = printable(call('train', [str(args.out)]))
    return f'# {title}\n# {command}\n{config_text(variables)}\n{config_text(settings)}'


def main(argv: Sequence[str] | None = None) -> None:
    """Writes a config, and checks its data."""
    parser = command_parser('new', 'Write the config of an experiment on your own data.')
    parser.add_argument('--data', required=True, type=Path, metavar='DIR', help='folder as in docs/your_data.md')
    parser.add_argument('--base', required=True, metavar='CONFIG', help=f'{CONFIG_HELP}; it decides the task')
    parser.add_argument('--out', required=True, type=Path, metavar='FILE', help='the config to write, a new file')
    parser.add_argument('--plugs', default=NONE, metavar='PLUGS', help=PLUGS_HELP)
    parser.add_argument('--classes', default='', metavar='NAMES', help='of the labels of label maps, as road,other')
    parser.add_argument('--epochs', type=int, default=50, metavar='N', help='length (default 50)')
    parser.add_argument('--pretrained', metavar='FILE', help=f'weights, or {FROM_SCRATCH} (default: those of the base)')
    args = parser.parse_args(argv)
    check_new_file(args.out, '--out', ('.py',))
    args.out.write_text(config_of(args), encoding='utf-8')
    try:
        cfg = read_config(str(args.out))
        remarks = check_data(cfg, own_splits(cfg))
    except Exception:
        args.out.unlink()
        raise
    title = f'{args.out}: {len(cfg.classes)} classes ({", ".join(cfg.classes[:8])})'
    print('\n'.join(map(printable, (title, *remarks, f'next: {call("check", [str(args.out)])}'))))
