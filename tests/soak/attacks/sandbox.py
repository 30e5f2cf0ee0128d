"""Sound inputs that attacks damage, and what tools make of them: a folder with configs, data sets and checkpoints."""

import fcntl
import hashlib
import json
import pickle
import re
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from bad_inputs import CLASSIFIER, ROOT, SWIN
from PIL import Image
from safetensors.torch import load_file, save_file

from .processes import Limits, Run, run_together
from .trials import Command

TOOLS = {path.name: path for path in (ROOT / 'tools').rglob('*.py')}

# --- configs: two epochs or iterations, with a checkpoint and a validation after each ---

CLASSIFY = """
_base_ = 'tiny.py'
train_dataloader = dict(sampler=dict(shuffle=True))
optim_wrapper = dict(optimizer=dict(_delete_=True, type='AdamW', lr=0.01))
train_cfg = dict(max_epochs=2)
default_hooks = dict(logger=dict(interval=1))
"""
PLUGS = """
_base_ = 'classify.py'
model = dict(
    backbone=dict(plugs=[dict(type='ContextBroadcast', scaled=True), dict(type='RelPosBias'),
                         dict(type='GaussianAttentionBias')])
)
default_hooks = dict(ema=dict(type='EMAHook', momentum=0.1), checkpoint=dict(save_best='auto'))
"""
EARLY = """
_base_ = 'classify.py'
train_cfg = dict(max_epochs=9)
custom_hooks = [
    dict(type='EarlyStoppingHook', monitor='accuracy/top1', rule='greater', patience=2, min_delta=1000.0)
]
"""
LABELS = """
_base_ = 'classify.py'
_lists = dict(data_root='', data_prefix='data')
train_dataloader = dict(dataset=dict(ann_file='train.txt', **_lists))
val_dataloader = dict(dataset=dict(ann_file='val.txt', **_lists))
test_dataloader = dict(dataset=dict(ann_file='val.txt', **_lists))
"""
DENSE = """
work_dir = 'work'
log_level = 'WARNING'
optim_wrapper = dict(type='OptimWrapper', optimizer=dict(type='AdamW', lr=0.01))
train_cfg = dict(type='IterBasedTrainLoop', max_iters=2, val_interval=1)
val_cfg = dict(type='ValLoop')
test_cfg = dict(type='TestLoop')
default_hooks = dict(checkpoint=dict(interval=1), logger=dict(interval=1))
_train = dict(batch_size=2, num_workers=0, sampler=dict(type='InfiniteSampler', shuffle=True))
_val = dict(batch_size=1, num_workers=0, sampler=dict(type='DefaultSampler', shuffle=False))
"""
SEGMENT = f"""
_base_ = '{ROOT}/configs/_base_/default_runtime_mmseg.py'
{DENSE}
_settings = dict(
    type='BaseSegDataset', data_root='ade', img_suffix='.png', metainfo=dict(classes=('cat', 'dog')),
    data_prefix=dict(img_path='images', seg_map_path='maps'),
    pipeline=[dict(type='LoadImageFromFile'), dict(type='LoadAnnotations'), dict(type='PackSegInputs')],
)
train_dataloader = dict(**_train, dataset=_settings)
val_dataloader = dict(**_val, dataset=_settings)
test_dataloader = val_dataloader
val_evaluator = dict(type='IoUMetric', iou_metrics=['mIoU'])
test_evaluator = val_evaluator
model = dict(
    type='EncoderDecoder',
    data_preprocessor=dict(type='SegDataPreProcessor', mean=[127.5] * 3, std=[64.0] * 3, size=(16, 24)),
    backbone=dict(
        type='vitplug.VisionTransformer',
        arch=dict(embed_dims=8, num_layers=2, num_heads=2, feedforward_channels=16),
        img_size=(16, 24), patch_size=8, out_type='featmap', with_cls_token=False,
        plugs=[dict(type='ContextBroadcast')],
    ),
    decode_head=dict(
        type='FCNHead', in_channels=8, in_index=0, channels=8, num_convs=1, concat_input=False, num_classes=2,
        norm_cfg=dict(type='BN'), dropout_ratio=0.0, align_corners=False,
        loss_decode=dict(type='CrossEntropyLoss'),
    ),
    train_cfg=dict(),
    test_cfg=dict(mode='whole'),
)
"""
DETECT = f"""
_base_ = ['{ROOT}/configs/_base_/default_runtime_mmdet.py', '{ROOT}/configs/_base_/models/mask-rcnn_swin-mini_fpn.py']
{DENSE}
_settings = dict(type='CocoDataset', data_root='coco', metainfo=dict(classes=('cat', 'dog')))
_masks = dict(type='LoadAnnotations', with_bbox=True, with_mask=True)
_resize = dict(type='Resize', scale=24, keep_ratio=True)
train_dataloader = dict(
    **_train,
    dataset=dict(
        **_settings, ann_file='train.json', data_prefix=dict(img='train'), filter_cfg=dict(filter_empty_gt=True),
        pipeline=[dict(type='LoadImageFromFile'), _masks, _resize, dict(type='PackDetInputs')],
    ),
)
val_dataloader = dict(
    **_val,
    dataset=dict(
        **_settings, ann_file='val.json', data_prefix=dict(img='val'), test_mode=True,
        pipeline=[
            dict(type='LoadImageFromFile'), _resize, _masks,
            dict(type='PackDetInputs', meta_keys=('img_id', 'img_path', 'ori_shape', 'img_shape', 'scale_factor')),
        ],
    ),
)
test_dataloader = val_dataloader
val_evaluator = dict(type='CocoMetric', ann_file='coco/val.json', metric=['bbox', 'segm'])
test_evaluator = val_evaluator
model = dict(
    data_preprocessor=dict(mean=[127.5] * 3, std=[64.0] * 3),
    backbone=dict(arch=dict(embed_dims=8, depths=[1, 1, 1], num_heads=[1, 2, 2]), img_size=32, in_channels=3),
    neck=dict(in_channels=[8, 16, 32], out_channels=8),
    rpn_head=dict(in_channels=8, feat_channels=8),
    roi_head=dict(
        bbox_roi_extractor=dict(out_channels=8),
        bbox_head=dict(in_channels=8, fc_out_channels=16, num_classes=2),
        mask_roi_extractor=dict(out_channels=8),
        mask_head=dict(num_convs=1, in_channels=8, conv_out_channels=8, num_classes=2),
    ),
    test_cfg=dict(rcnn=dict(score_thr=0.0, max_per_img=5)),
)
"""
CONFIGS = {
    'tiny.py': CLASSIFIER,
    'classify.py': CLASSIFY,
    'plugs.py': PLUGS,
    'windows.py': SWIN.replace('tiny.py', 'classify.py').replace('window_size=4', 'window_size=2'),
    'labels.py': LABELS,
    'early.py': EARLY,
    'segment.py': SEGMENT,
    'detect.py': DETECT,
}
# The configs of which there are checkpoints.
TRAINED = ('classify', 'plugs', 'windows', 'segment', 'detect')
CLASSIFIERS = ('classify', 'plugs', 'windows')
# A grid of one cell.
GRID_LINE = 'ablate.py classify.py --plugs none --seeds 1 --jobs 1 --keep last --out grid'

# --- data ---

SPLITS = ('train', 'val')
CLASSES = ('cat', 'dog')


def write_inputs(folder: Path) -> None:
    """Writes the configs and the data sets into a new folder."""
    folder.mkdir(parents=True)
    for name, text in CONFIGS.items():
        (folder / name).write_text(text)
    draw = np.random.default_rng(0)

    def picture(name: str) -> None:
        # Blocks of 4 x 4 pixels: as JPEG they stay much what they are.
        blocks = draw.integers(0, 255, (4, 6, 3), np.uint8)
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(blocks.repeat(4, 0).repeat(4, 1)).save(path)

    for split in SPLITS:
        for kind in CLASSES:
            picture(f'data/{split}/{kind}/0.png')
            picture(f'data/{split}/{kind}/1.jpg')
        labels = [f'{split}/{kind}/{name} {label}' for label, kind in enumerate(CLASSES) for name in ('0.png', '1.jpg')]
        (folder / f'{split}.txt').write_text('\n'.join(labels) + '\n')
        for number in range(2):
            picture(f'coco/{split}/{number}.png')
        (folder / f'coco/{split}.json').write_text(json.dumps(coco_file()))
    for number in range(3):
        picture(f'ade/images/{number}.png')
        seg_map = folder / f'ade/maps/{number}.png'
        seg_map.parent.mkdir(exist_ok=True)
        Image.fromarray(draw.integers(0, 2, (16, 24), np.uint8)).save(seg_map)


def coco_file() -> dict:
    """Two images; one of the three instances of each is a crowd given as RLE, one an RLE without compression."""
    whole = dict(size=[16, 24], counts=[0, 16 * 24])
    annotations = []
    for image in range(2):
        for number in range(3):
            box = [2 + 3 * number, 1 + 2 * image, 10, 8]
            x, y, width, height = box
            polygon = [[x, y, x + width, y, x + width, y + height, x, y + height]]
            annotations.append(
                dict(
                    id=10 * image + number + 1,
                    image_id=image,
                    category_id=1 + number % 2,
                    bbox=box if number < 2 else [0, 0, 24, 16],
                    area=width * height if number < 2 else 16 * 24,
                    segmentation=polygon if number < 2 else whole,
                    iscrowd=int(number == 2),
                )
            )
    images = [dict(id=number, file_name=f'{number}.png', width=24, height=16) for number in range(2)]
    categories = [dict(id=1, name='cat'), dict(id=2, name='dog')]
    return dict(images=images, categories=categories, annotations=annotations)


# --- sandboxes ---


class Sandboxes:
    """Makes sound sandboxes, and knows what commands make of them.

    Args:
        folder: Where the originals are kept.
        tools: Files of the tools by name.
        limits: Limits of every process.
    """

    def __init__(self, folder: Path, tools: Mapping[str, Path] = TOOLS, limits: Limits = Limits()):
        self.folder, self.tools, self.limits = folder, tools, limits

    @property
    def template(self) -> Path:
        return self.folder / 'template' / 'sandbox'

    def prepare(self) -> None:
        """Writes configs and data, and trains the models of which attacks damage checkpoints.

        Raises:
            RuntimeError: if a sound training fails.
        """
        template = self.template
        write_inputs(template)
        for name in TRAINED:
            command = Command(f'train.py {name}.py --work-dir work')
            (run,) = self.run([command], template, template.parent / 'streams' / name)
            if run.status != 0:
                raise RuntimeError(f'{run.line} ended with {run.status}:\n{run.text}')
            kept = template / f'trained_{name}'
            (template / 'work').rename(kept)
            shutil.copy(first_checkpoint(kept), template / f'good_{name}.pth')
        (run,) = self.run([Command(GRID_LINE)], template, template.parent / 'streams' / 'grid')
        if run.status != 0:
            raise RuntimeError(f'{run.line} ended with {run.status}:\n{run.text}')
        (template / 'grid').rename(template / 'trained_grid')

    def run(self, commands: Sequence[Command], folder: Path, streams: Path) -> list[Run]:
        """Runs commands at the same time in a sandbox."""
        (folder.parent / 'temporary').mkdir(exist_ok=True)
        (folder.parent / 'temporary').chmod(0o777)
        return run_together(commands, self.tools, folder, streams, self.limits)

    def make(self, root: Path, base: str = 'plain') -> Path:
        """Makes a sandbox and a folder of precious files below a new folder, and returns the sandbox."""
        root.mkdir(parents=True)
        folder = root / 'sandbox'
        shutil.copytree(self.template, folder)
        precious = root / 'precious'
        (precious / 'inner').mkdir(parents=True)
        for name in ('notes.txt', 'epoch_1.pth', 'best.pth', 'inner/thesis.tex'):
            (precious / name).write_text(f'{name}: precious')
        family, _, argument = base.partition(' ')
        BASES[family](folder, argument)
        return folder

    def sound(self, base: str, line: str) -> 'Sound':
        """A command in a sound sandbox; it is run once.

        Raises:
            RuntimeError: if it does not end with status 0.
        """
        root = self.folder / 'clean' / hashlib.sha256(f'{base} {line}'.encode()).hexdigest()[:20]
        kept = root.with_suffix('.pkl')
        kept.parent.mkdir(exist_ok=True)
        with Lock(root.with_suffix('.lock')):
            if not kept.exists():
                folder = self.make(root, base)
                (run,) = self.run([Command(line)], folder, root / 'streams')
                if run.status != 0:
                    raise RuntimeError(f'{base}: {line} ended with {run.status}:\n{run.text}')
                kept.write_bytes(pickle.dumps(Sound(results(folder, [run]), run)))
                shutil.rmtree(root)
        return pickle.loads(kept.read_bytes())


@dataclass(frozen=True)
class Sound:
    """What a command made of a sound sandbox: its results by name, and its run."""

    results: Mapping[str, Any]
    run: Run


class Lock:
    """Keeps other processes out."""

    def __init__(self, path: Path):
        self.path = path

    def __enter__(self):
        self.file = self.path.open('w')
        fcntl.flock(self.file, fcntl.LOCK_EX)

    def __exit__(self, *_):
        self.file.close()


def first_checkpoint(work_dir: Path) -> Path:
    """The oldest regular checkpoint of a work dir."""
    paths = [path for path in work_dir.glob('*.pth') if path.stem.partition('_')[0] in ('epoch', 'iter')]
    return min(paths, key=lambda path: int(path.stem.rpartition('_')[2]))


def _with_checkpoint(folder: Path, name: str) -> None:
    shutil.copy(folder / f'good_{name}.pth', folder / 'bad.pth')


def _with_safetensors(folder: Path, name: str) -> None:
    state = torch.load(folder / f'good_{name}.pth', weights_only=False)['state_dict']
    save_file({key: value.contiguous() for key, value in state.items()}, folder / 'bad.safetensors')


def _with_half_a_training(folder: Path, name: str) -> None:
    """A work dir as if the training had been killed after its first checkpoint."""
    shutil.copytree(folder / f'trained_{name}', folder / 'work')
    first = first_checkpoint(folder / 'work')
    for path in folder.glob('work/*.pth'):
        if path != first:
            path.unlink()
    (folder / 'work/last_checkpoint').write_text(str(first))


def _with_grid(folder: Path, _: str) -> None:
    """The folder of a grid whose cell is done."""
    shutil.copytree(folder / 'trained_grid', folder / 'grid')
    for note in folder.glob('grid/cells/*/last_checkpoint'):
        note.write_text(str(note.with_name(Path(note.read_text()).name)))


# How the sandboxes differ before they are damaged.
BASES: dict[str, Callable[[Path, str], None]] = {
    'plain': lambda folder, _: None,
    'checkpoint': _with_checkpoint,
    'safetensors': _with_safetensors,
    'half': _with_half_a_training,
    'grid': _with_grid,
}

# --- results ---

TIME = re.compile(r'\(t=[\d.]+s\)')


def results(folder: Path, runs: Sequence[Run]) -> dict[str, Any]:
    """What commands have left: weights of the last checkpoints, predictions, metrics, converted files, tables."""
    found: dict[str, Any] = {}
    for note, content in _last_checkpoints(folder):
        found |= flatten(content['state_dict'], f'{note.parent.name}: weights ')
        found |= flatten(content.get('optimizer', {}), f'{note.parent.name}: optimizer ')
    for path in sorted(folder.glob('pred*.pkl')):
        found |= flatten(pickle.loads(path.read_bytes()), 'predictions ')
    for path in sorted(folder.glob('tested/*/*.json')):
        metrics = json.loads(path.read_text())
        found |= flatten({key: value for key, value in metrics.items() if 'time' not in key}, 'metrics ')
    for path in sorted(folder.glob('new*')):
        if path.suffix == '.safetensors':
            found |= flatten(load_file(path), 'file ')
        elif path.is_file():
            content = torch.load(path, weights_only=False)
            found |= flatten(content.get('state_dict', content), 'file ')
    for path in sorted(folder.glob('work/*/vis_data/scalars.json')):
        for record in map(_record, path.read_text().splitlines()):
            if 'loss' not in record and 'step' in record:
                metrics = {key: value for key, value in record.items() if 'time' not in key}
                found |= flatten(metrics, f'validation {record["step"]} ')
    tables = [run for run in runs if run.line.split()[0] in ('get_flops.py', 'print_config.py', 'check_dataset.py')]
    return found | {f'output {number}': TIME.sub('', run.out) for number, run in enumerate(tables)}


def _last_checkpoints(folder: Path) -> Iterator[tuple[Path, dict]]:
    """The files that name the last checkpoint of a training, and what is in it."""
    for note in sorted(folder.glob('*/last_checkpoint')):
        if not note.parent.name.startswith('trained_'):
            yield note, torch.load(folder / note.read_text().strip(), weights_only=False)


def _record(line: str) -> dict:
    """A line of a log, {} where a kill left half of one."""
    try:
        return json.loads(line)
    except ValueError:
        return {}


def skipped_at_the_end(folder: Path) -> str:
    """Whether the loss of a training's last iteration was not finite, or ''."""
    for note, content in _last_checkpoints(folder):
        records = note.with_name('non_finite.jsonl')
        lines = records.read_text().splitlines() if records.is_file() else []
        if lines and _record(lines[-1]).get('iteration') == content['meta']['iter']:
            return f'the loss of its last iteration, {content["meta"]["iter"]}, was not finite'
    return ''


def flatten(node: Any, name: str) -> dict[str, Any]:
    """Numbers, texts and arrays by name."""
    return dict(_leaves(node, name))


def _leaves(node: Any, name: str) -> Iterator[tuple[str, Any]]:
    if hasattr(node, 'to_dict'):
        node = node.to_dict()
    if isinstance(node, Mapping):
        for key, value in node.items():
            yield from _leaves(value, f'{name}.{key}')
    elif isinstance(node, list | tuple):
        for number, value in enumerate(node):
            yield from _leaves(value, f'{name}.{number}')
    elif isinstance(node, torch.Tensor):
        yield name, node.detach().double().numpy() if not node.is_complex() else node.detach().numpy()
    else:
        yield name, node


def difference(ours: Mapping[str, Any], theirs: Mapping[str, Any]) -> str:
    """The first result in which two runs differ, or ''."""
    for name in {**theirs, **ours}:
        if name not in ours:
            return f'{name} is missing'
        if name not in theirs:
            return f'{name} is new'
        if not _equal(ours[name], theirs[name]):
            return f'{name} differs'
    return ''


def _equal(one: Any, other: Any) -> bool:
    if isinstance(one, np.ndarray) and isinstance(other, np.ndarray):
        return np.array_equal(one, other, equal_nan=True)
    if isinstance(one, float) and isinstance(other, float):
        return one == other or (one != one and other != other)
    return type(one) is type(other) and bool(np.all(one == other))


def not_finite(found: Mapping[str, Any]) -> str:
    """The first weight or metric that is not finite, or ''; precision and recall of nothing are legitimately NaN."""
    for name, value in found.items():
        if 'weights' in name and isinstance(value, np.ndarray) and not np.isfinite(value).all():
            return f'{name} is not finite'
    return ''
