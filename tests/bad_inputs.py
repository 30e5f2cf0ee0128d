"""Bad inputs of every kind, what a user does with them and what he is told.

`python tests/bad_inputs.py --out docs/bad_input.md` runs all of them and writes the table.
"""

import argparse
import contextlib
import functools
import io
import json
import os
import pickle
import re
import shlex
import shutil
import signal
import struct
import sys
import tarfile
import tempfile
import textwrap
import zipfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from unittest import mock

import numpy as np
import torch
from mmengine.config import Config
from mmengine.fileio.handlers.registry_utils import file_handlers
from mmengine.logging import MMLogger
from mmengine.registry import MODELS, DefaultScope
from mmengine.runner import runner as mmengine_runner
from mmengine.runner.checkpoint import CheckpointLoader
from mmengine.utils import ManagerMixin
from PIL import Image

from vitplug.runs.hooks.interruption import SIGNALS

ROOT = Path(__file__).resolve().parents[1]
TOOLS = {path.name: path for path in (ROOT / 'tools').rglob('*.py')}

# --- running ---


@dataclass(frozen=True)
class Outcome:
    """How a command ended: its exit status, and what it printed."""

    status: int
    out: str
    err: str

    @property
    def text(self) -> str:
        return self.out + self.err


@functools.cache
def _main(tool: str) -> Callable[[], object]:
    """The function behind a tool, as its file runs it."""
    spec = spec_from_file_location(Path(tool).stem, TOOLS[tool])
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    code = textwrap.dedent(TOOLS[tool].read_text().partition("if __name__ == '__main__':\n")[2])
    return functools.partial(exec, compile(code, tool, 'exec'), vars(module))


@contextlib.contextmanager
def own_process(folder: Path) -> Iterator[None]:
    """Makes a command in this process leave nothing behind: folder, readers of files, what mmengine keeps."""
    before, schemes, threads = Path.cwd(), dict(CheckpointLoader._schemes), torch.get_num_threads()
    handlers = {number: signal.getsignal(number) for number in map(signal.Signals.__getitem__, SIGNALS)}
    environment = {**os.environ, 'LOCAL_RANK': '0', 'COLUMNS': '120', 'TORCH_HOME': str(folder)}
    os.chdir(folder)
    try:
        # What mmengine prints of the machine takes a second of compilers' version numbers.
        with (
            mock.patch.dict(os.environ, environment),
            mock.patch.dict(file_handlers),
            mock.patch.object(np, 'load', np.load),
            mock.patch.object(Image, 'MAX_IMAGE_PIXELS', Image.MAX_IMAGE_PIXELS),
            mock.patch.object(mmengine_runner, 'collect_env', dict),
        ):
            yield
    finally:
        os.chdir(before)
        CheckpointLoader._schemes = schemes
        torch.set_num_threads(threads)
        for number, handler in handlers.items():
            signal.signal(number, handler)
        for handler in (handler for logger in MMLogger._instance_dict.values() for handler in logger.handlers):
            with contextlib.suppress(OSError):  # of a full disk
                handler.close()
        for manager in (ManagerMixin, *_subclasses(ManagerMixin)):
            manager._instance_dict.clear()


def _subclasses(kind: type) -> Iterator[type]:
    for child in kind.__subclasses__():
        yield from (child, *_subclasses(child))


def run(command: str, folder: Path) -> Outcome:
    """Runs the command of a row, such as ``train.py tiny.py``, in a folder."""
    tool, *arguments = shlex.split(command)
    out, err, status = io.StringIO(), io.StringIO(), 0
    with (
        own_process(folder),
        mock.patch.object(sys, 'argv', [tool, *arguments]),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
    ):
        try:
            _main(tool)()
        except SystemExit as end:
            status = end.code if isinstance(end.code, int) else int(end.code is not None)
    return Outcome(status, out.getvalue(), err.getvalue())


def snapshot(folder: Path) -> dict[Path, bytes]:
    """Every file of a folder."""
    return {path: path.read_bytes() for path in folder.rglob('*') if path.is_file()}


# --- what every row finds in its folder ---

PIPELINE = "[dict(type='LoadImageFromFile'), dict(type='Resize', scale=(16, 16)), dict(type='PackInputs')]"
CLASSIFIER = f"""
_base_ = '{ROOT}/configs/_base_/default_runtime_mmpretrain.py'
default_scope = 'mmpretrain'
work_dir = 'work'
_settings = dict(type='CustomDataset', data_root='data', metainfo=dict(classes=('cat', 'dog')), pipeline={PIPELINE})
_loader = dict(batch_size=2, num_workers=0, collate_fn=dict(type='default_collate'))
_ordered = dict(type='DefaultSampler', shuffle=False)
train_dataloader = dict(**_loader, sampler=_ordered, dataset=dict(**_settings, data_prefix='train'))
val_dataloader = dict(**_loader, sampler=_ordered, dataset=dict(**_settings, data_prefix='val'))
test_dataloader = val_dataloader
val_evaluator = dict(type='Accuracy')
test_evaluator = val_evaluator
model = dict(
    type='ImageClassifier',
    data_preprocessor=dict(type='ClsDataPreprocessor', num_classes=2, mean=[127.5] * 3, std=[64.0] * 3),
    backbone=dict(
        type='vitplug.VisionTransformer',
        arch=dict(embed_dims=8, num_layers=2, num_heads=2, feedforward_channels=16),
        img_size=16,
        patch_size=8,
        out_type='avg_featmap',
        with_cls_token=False,
    ),
    head=dict(type='LinearClsHead', num_classes=2, in_channels=8),
)
optim_wrapper = dict(optimizer=dict(type='SGD', lr=0.01))
train_cfg = dict(by_epoch=True, max_epochs=1)
val_cfg = dict()
test_cfg = dict()
log_level = 'WARNING'
"""
SWIN = """
_base_ = 'tiny.py'
model = dict(
    backbone=dict(
        _delete_=True,
        type='vitplug.SwinTransformer',
        arch=dict(embed_dims=8, depths=[1, 1], num_heads=[2, 2]),
        img_size=32,
        window_size=4,
        out_indices=(1,),
    ),
    neck=dict(type='GlobalAveragePooling'),
    head=dict(in_channels=16),
)
"""
SEGMENTOR = """
default_scope = 'mmseg'
train_dataloader = dict(
    dataset=dict(
        type='BaseSegDataset',
        data_root='ade',
        img_suffix='.png',
        data_prefix=dict(img_path='images', seg_map_path='maps'),
        metainfo=dict(classes=('cat', 'dog')),
        pipeline=[dict(type='LoadImageFromFile'), dict(type='LoadAnnotations'), dict(type='PackSegInputs')],
    )
)
"""
DETECTOR = """
default_scope = 'mmdet'
train_dataloader = dict(
    dataset=dict(
        type='CocoDataset',
        data_root='coco',
        ann_file='train.json',
        data_prefix=dict(img='train'),
        metainfo=dict(classes=('cat', 'dog')),
        pipeline=[dict(type='LoadImageFromFile'), dict(type='LoadAnnotations', with_bbox=True)],
    )
)
"""
MASKS = f"""
_base_ = '{ROOT}/configs/digits/swin-mini-p4-w4_mask-rcnn_1xb8-400i_digits-128x128.py'
work_dir = 'work'
_pipeline = [
    dict(type='LoadImageFromFile'),
    dict(type='LoadAnnotations', with_bbox=True, with_mask=True),
    dict(type='Resize', scale=(32, 32)),
    dict(type='PackDetInputs'),
]
train_dataloader = dict(
    batch_size=1,
    num_workers=0,
    persistent_workers=False,
    dataset=dict(
        data_root='coco',
        ann_file='train.json',
        data_prefix=dict(_delete_=True, img='train'),
        metainfo=dict(_delete_=True, classes=('cat', 'dog')),
        pipeline=_pipeline,
    ),
)
val_cfg = val_dataloader = val_evaluator = None
model = dict(
    backbone=dict(in_channels=3),
    roi_head=dict(bbox_head=dict(num_classes=2), mask_head=dict(num_classes=2)),
)
train_cfg = dict(max_iters=4)
log_level = 'WARNING'
"""
IMAGES = (
    *(f'data/{split}/{kind}/{number}.png' for split in ('train', 'val') for kind in ('cat', 'dog') for number in '01'),
    *(f'{folder}/{number}.png' for folder in ('ade/images', 'coco/train') for number in '01'),
)


def coco_file(**annotation) -> dict:
    """A COCO file of two images with an annotation each, the second changed."""
    outline = [[1, 1, 9, 1, 9, 9, 1, 9]]
    first = dict(id=0, image_id=0, category_id=1, bbox=[1, 1, 8, 8], area=64, iscrowd=0, segmentation=outline)
    images = [dict(id=number, file_name=f'{number}.png', width=20, height=16) for number in range(2)]
    categories = [dict(id=1, name='cat'), dict(id=2, name='dog')]
    second = {**first, 'id': 1, 'image_id': 1, **annotation}
    return dict(images=images, categories=categories, annotations=[first, second])


@functools.cache
def _template() -> Path:
    """A folder with tiny configs, their data and the checkpoint of a training."""
    folder = Path(tempfile.mkdtemp(prefix='bad_inputs_'))
    pixels = np.random.default_rng(0).integers(0, 255, (16, 20, 3), np.uint8)
    for name in IMAGES:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels).save(folder / name)
    (folder / 'ade/maps').mkdir()
    for number in '01':
        Image.fromarray(pixels[..., 0] % 2).save(folder / f'ade/maps/{number}.png')
    (folder / 'coco/train.json').write_text(json.dumps(coco_file()))
    (folder / 'tiny.py').write_text(CLASSIFIER)
    (folder / 'swin.py').write_text(SWIN)
    (folder / 'segment.py').write_text(SEGMENTOR)
    (folder / 'detect.py').write_text(DETECTOR)
    (folder / 'mask.py').write_text(MASKS)
    done = run('train.py tiny.py --work-dir trained', folder)
    assert done.status == 0, done.text
    shutil.copy(folder / 'trained/epoch_1.pth', folder / 'good.pth')
    shutil.rmtree(folder / 'trained')
    return folder


def prepare(folder: Path) -> Path:
    """Fills a folder for a row."""
    return Path(shutil.copytree(_template(), folder, dirs_exist_ok=True))


def clean() -> None:
    """Removes what the rows were copied from."""
    if _template.cache_info().currsize:
        shutil.rmtree(_template())
        _template.cache_clear()


# --- how things are made bad ---

Make = Callable[[Path], object]


def write(name: str, content: str | bytes) -> Make:
    """Puts a file there."""
    data = content.encode() if isinstance(content, str) else content
    return lambda folder: (folder / name).write_bytes(data)


def child(text: str, name: str = 'child.py') -> Make:
    """Puts a config there that inherits the tiny classifier."""
    return write(name, f"_base_ = 'tiny.py'\n{text}\n")


def starting(checkpoint: str, settings: str = '', wider: str = '') -> Make:
    """Puts a config there whose backbone starts from a checkpoint."""
    init_cfg = f"init_cfg=dict(type='vitplug.Pretrained', checkpoint='{checkpoint}', {settings})"
    return child(f'model = dict(backbone=dict({init_cfg}, {wider}))')


def cut(name: str, size: int) -> Make:
    """Keeps the first bytes of a file."""
    return lambda folder: (folder / name).write_bytes((folder / name).read_bytes()[:size])


def picture(name: str, pixels: np.ndarray) -> Make:
    return lambda folder: Image.fromarray(pixels).save(folder / name)


def remove(name: str) -> Make:
    return lambda folder: (shutil.rmtree if (folder / name).is_dir() else os.remove)(folder / name)


def empty(name: str) -> Make:
    """Leaves a folder without its files."""

    def make(folder: Path) -> None:
        shutil.rmtree(folder / name)
        (folder / name).mkdir()

    return make


def annotation(**changes) -> Make:
    return write('coco/train.json', json.dumps(coco_file(**changes)))


# By this key, many formats of checkpoints are recognised, with the help of others.
VIT_KEY = 'blocks.0.attn.qkv.weight'


def saved(content, name: str = 'bad.pth') -> Make:
    return lambda folder: torch.save(content, folder / name)


def changed(change: Callable[[dict], object], name: str = 'bad.pth') -> Make:
    """Saves what a function makes of the checkpoint of a training."""

    def make(folder: Path) -> None:
        content = torch.load(folder / 'good.pth', weights_only=False)
        result = change(content)
        torch.save(content if result is None else result, folder / name)

    return make


def pipe(name: str) -> Make:
    return lambda folder: os.mkfifo(folder / name)


def link(name: str, target: str) -> Make:
    return lambda folder: (folder / name).symlink_to(target)


def many_ways(folder: Path) -> None:
    """Twelve folders with two links each to the next: 4,096 ways to the last, without a circle."""
    last = folder / 'data/train/cat'
    for level in range(12):
        (folder / f'level{level}').mkdir()
        for name in 'ab':
            (last / name).symlink_to(folder / f'level{level}')
        last = folder / f'level{level}'


def huge_image(folder: Path) -> None:
    """30,000 x 30,000 pixels in a file of 0.1 MB."""
    Image.new('1', (30_000, 30_000)).save(folder / 'data/train/cat/0.png')


def coco_image(**changes) -> Make:
    """A COCO file whose second image is changed."""
    content = coco_file()
    content['images'][1].update(changes)
    return write('coco/train.json', json.dumps(content))


def class_weight(name: str) -> Make:
    """Puts a config there whose loss reads its class weights from a file."""
    return child(f"model = dict(head=dict(loss=dict(type='mmseg.CrossEntropyLoss', class_weight='{name}')))")


def trained_with(before: str, after: str) -> Make:
    """Saves the checkpoint of a training as if the config had said something else."""

    def change(content: dict) -> None:
        assert before in content['meta']['cfg']
        content['meta']['cfg'] = content['meta']['cfg'].replace(before, after)

    return changed(change)


def wide_images(content: dict) -> None:
    """Makes a checkpoint one of images of 16 x 64, and so of 2 x 8 patches."""
    content['meta']['cfg'] = content['meta']['cfg'].replace('img_size=16', 'img_size=(16, 64)')
    content['state_dict']['backbone.pos_embed'] = torch.ones(1, 16, 8)


def weights(config: str = 'tiny.py', change: Callable[[dict], object] = lambda state: None, **settings) -> Make:
    """Saves bare weights of a config's model, changed; there is no config in such a file."""

    def make(folder: Path) -> None:
        with own_process(folder), DefaultScope.overwrite_default_scope('mmpretrain'):
            cfg = Config.fromfile(config)
            cfg.merge_from_dict(settings)
            state = MODELS.build(cfg.model).state_dict()
        change(state)
        torch.save(dict(state_dict=state), folder / 'bad.pth')

    return make


def tensor(change: Callable[[torch.Tensor], torch.Tensor], key: str = 'head.fc.weight') -> Make:
    """Saves the checkpoint of a training with another tensor in it."""
    return changed(lambda content: content['state_dict'].update({key: change(content['state_dict'][key])}))


def both(*makes: Make) -> Make:
    return lambda folder: [make(folder) for make in makes]


def splits_of_coco(folder: Path) -> None:
    """Images and annotations of a validation, beside those of the training."""
    shutil.copytree(folder / 'coco/train', folder / 'coco/val')
    shutil.copy(folder / 'coco/train.json', folder / 'coco/val.json')


def splits_of_maps(folder: Path) -> None:
    """Images and label maps in folders of a training and a validation."""
    for split in ('train', 'val'):
        shutil.copytree(folder / 'ade/images', folder / f'town/images/{split}')
        shutil.copytree(folder / 'ade/maps', folder / f'town/masks/{split}')


# --- files that are meant to do harm; `harm` is what none of them may leave behind ---


class Malicious:
    """Makes a folder when it is unpickled."""

    def __reduce__(self):
        return os.mkdir, ('harm',)


def _repacked(folder: Path, name: str, program: bytes | None = None, kind: int = zipfile.ZIP_STORED) -> None:
    """Writes a file of torch anew: with another pickle in it, or packed."""
    with zipfile.ZipFile(folder / name) as source:
        parts = {entry: source.read(entry) for entry in source.namelist()}
    with zipfile.ZipFile(folder / name, 'w', kind) as target:
        for entry, content in parts.items():
            target.writestr(entry, program if program and entry.endswith('data.pkl') else content)


def zip_bomb(folder: Path) -> None:
    """80 MB of zeros in a file of 80 kB."""
    torch.save(dict(state_dict={'w': torch.zeros(20_000_000)}), folder / 'bad.pth')
    _repacked(folder, 'bad.pth', kind=zipfile.ZIP_DEFLATED)


def expanding_bomb(folder: Path) -> None:
    """One number that says it is 4 TB."""
    torch.save(dict(state_dict={'w': torch.zeros(1).expand(10**12)}), folder / 'bad.pth')


def fetched_code(folder: Path) -> None:
    """A pickle of nothing but names that mmengine lists as safe, which together run a line of Python.

    It fetches `exec` with getattr and puts it where a class of mmengine looks for a function of numpy.
    """

    def text(value: str) -> bytes:
        return b'X' + struct.pack('<I', len(value)) + value.encode()

    def fetched(thing: bytes, name: str) -> bytes:
        return b'cbuiltins\ngetattr\n' + thing + text(name) + b'\x86R'

    buffer = b'cmmengine.logging.history_buffer\nHistoryBuffer\n'
    run_text = fetched(fetched(b'cbuiltins\ngetattr\n', '__self__'), 'exec')
    numpy = buffer + b')\x81}' + text('array') + run_text + b'sb'
    names = fetched(fetched(buffer, 'update'), '__globals__')
    code = "import os; os.mkdir('harm')"
    call = buffer + text(code) + text('x' * len(code)) + b'\x86R'
    program = b'\x80\x02}' + text('a') + names + text('np') + numpy + b'ss' + text('b') + call + b's.'
    torch.save({}, folder / 'bad.pth')
    _repacked(folder, 'bad.pth', program)


def code_in_meta(content: dict) -> None:
    """A config in the place from which mmengine runs it when a training is resumed."""
    content['meta']['config'] = "import os\nos.mkdir('harm')\n"


def lying_header(shape: Sequence[int], end: int, name: str = 'bad.safetensors') -> Make:
    """A safetensors file of 8 bytes of numbers that says otherwise."""
    text = json.dumps(dict(w=dict(dtype='F32', shape=shape, data_offsets=[0, end]))).encode()
    return write(name, struct.pack('<Q', len(text)) + text + bytes(8))


def called(function: Callable, *arguments) -> Make:
    """A pickle that calls a function which builds data, with arguments that no training has."""

    class Called:
        def __reduce__(self):
            return function, arguments

    return saved(dict(state_dict={'w': torch.zeros(2)}, meta=Called()))


def forged_dtype(folder: Path) -> None:
    """A numpy array of numbers whose dtype says that they are Python objects: numpy follows them as addresses."""

    class Dtype:
        def __reduce__(self):
            return np.dtype, ('f8', False, True), (3, '<', None, None, None, -1, -1, 63)

    class Array:
        def __reduce__(self):
            return (*np.zeros(1).__reduce__()[:2], (1, (4,), Dtype(), False, bytes(range(32))))

    class Scalar:
        def __reduce__(self):
            return np.float64(1).__reduce__()[0], (Dtype(), bytes(range(8)))

    changed(lambda content: content['meta'].update(array=Array(), scalar=Scalar()))(folder)


def endless(folder: Path) -> None:
    """A state dict that contains itself."""
    content = dict(state_dict={})
    content['state_dict']['state_dict'] = content['state_dict']
    torch.save(content, folder / 'bad.pth')


def exponential(folder: Path) -> None:
    """Lists of two lists, each of two lists, and so on: 2^200 in 2 kB."""
    nested = [0]
    for _ in range(200):
        nested = [nested, nested]
    changed(lambda content: content['meta'].update(dataset_meta=nested))(folder)


def exponential_key(folder: Path) -> None:
    """A dict whose key is such a tuple: Python takes for ever to hash it."""
    torch.save(dict(state_dict={'w': torch.zeros(2)}, meta={}), folder / 'bad.pth')
    with zipfile.ZipFile(folder / 'bad.pth') as file:
        program = file.read('bad/data.pkl')
    tuples = b''.join(b'h%c\x86q%c' % (number, number + 1) for number in range(100, 180))
    start = program.index(b'}', program.index(b'meta'))
    _repacked(folder, 'bad.pth', program[: start + 1] + b'K\x00qd' + tuples + b'K\x00s' + program[start + 1 :])


def large_storage(folder: Path) -> None:
    """A file in the format before zip archives, of a few bytes that say they are 3 GB."""
    torch.save(dict(w=torch.zeros(7)), folder / 'bad.pth', _use_new_zipfile_serialization=False)
    data = (folder / 'bad.pth').read_bytes()
    (folder / 'bad.pth').write_bytes(data.replace(b'K\x07N', b'J' + struct.pack('<i', 750_000_000) + b'N', 1))


def overread(folder: Path) -> None:
    """A tensor of a million numbers whose storage holds two: reading it shows what lies behind in memory."""
    torch.save(dict(w=torch.zeros(2)), folder / 'bad.pth')
    with zipfile.ZipFile(folder / 'bad.pth') as file:
        program = file.read('bad/data.pkl').replace(b'K\x02', b'J' + struct.pack('<i', 1_000_000))
    _repacked(folder, 'bad.pth', program)


def tar_file(folder: Path) -> None:
    """A tar file, in which torch before 2.6 runs code even where it is asked not to."""
    with tarfile.open(folder / 'bad.pth', 'w') as file:
        for name in ('storages', 'tensors', 'pickle'):
            data = pickle.dumps(Malicious(), protocol=2)
            entry = tarfile.TarInfo(name)
            entry.size = len(data)
            file.addfile(entry, io.BytesIO(data))


UNTRUSTED: dict[str, Make] = {
    'a pickle that would make a folder': saved(dict(state_dict={}, extra=Malicious())),
    'a pickle without torch around it': write('bad.pth', pickle.dumps(dict(state_dict={}, extra=Malicious()))),
    'a pickle of names that are listed as safe': fetched_code,
    'a zip bomb of tensors': zip_bomb,
    'a tensor that says it is 4 TB': expanding_bomb,
}
#: Files that would crash whoever reads them, or take for ever.
UNSOUND: dict[str, Make] = {
    'a numpy dtype that says numbers are objects': forged_dtype,
    'a numpy array of 1 TB that is never filled': called(np.ndarray, (10**11,)),
    'bytes of 3 GB from a number': called(bytearray, 3 * 10**9),
    'a tensor of 3 GB from a number': called(torch.FloatTensor, 750_000_000),
    'a storage of 3 GB in a small file': large_storage,
    'a storage with less than its tensor': overread,
    'a state dict that contains itself': endless,
    'lists that name one another 2^200 times': exponential,
    'a key that takes for ever to hash': exponential_key,
    'a tar file': tar_file,
}

# --- the rows ---


@dataclass(frozen=True)
class Row:
    """One bad input.

    Attributes:
        title: What is wrong.
        command: What the user types, without `python tools/...`.
        error: What must be in the message, a regular expression; it names the culprit.
        make: Makes it bad.
        status: The exit status.
    """

    title: str
    command: str
    error: str
    make: Make = lambda folder: None
    status: int = 2


def _set(option: str, command: str = 'get_flops.py tiny.py') -> str:
    return f'{command} --cfg-options {shlex.quote(option)}'


def _backbone(option: str, command: str = 'get_flops.py tiny.py') -> str:
    return _set(f'model.backbone.{option}', command)


def _plugs(title: str, plugs: str, error: str) -> 'Row':
    return Row(title, 'get_flops.py child.py', error, child(f'model = dict(backbone=dict(plugs=[{plugs}]))'))


def _swin_v2(title: str, settings: str, error: str) -> 'Row':
    arch = 'arch=dict(embed_dims=8, depths=[1, 1], num_heads=[2, 2]), out_indices=1'
    backbone = f"_delete_=True, type='vitplug.SwinTransformerV2', **dict({arch}) | dict({settings})"
    return Row(title, 'get_flops.py child.py', error, child(f'model = dict(backbone=dict({backbone}))'))


def _t2t(title: str, settings: str, error: str, command: str = 'get_flops.py child.py') -> 'Row':
    backbone = f"_delete_=True, type='vitplug.T2T_ViT', embed_dims=8, num_layers=2, {settings}"
    return Row(title, command, error, child(f'model = dict(backbone=dict({backbone}))'))


def _lvt(title: str, settings: str, error: str) -> 'Row':
    backbone = f"_delete_=True, type='vitplug.LVT', {settings}"
    return Row(title, 'get_flops.py child.py', error, child(f'model = dict(backbone=dict({backbone}))'))


def _host(title: str, settings: str, error: str, command: str = 'get_flops.py child.py') -> 'Row':
    """Another host in the tiny classifier."""
    return Row(title, command, error, child(f'model = dict(backbone=dict(_delete_=True, {settings}))'))


MIXER = "type='vitplug.MlpMixer', img_size=16, patch_size=8"


def _mvit(title: str, settings: str, error: str) -> 'Row':
    arch = 'arch=dict(embed_dims=8, num_layers=2, num_heads=1, downscale_indices=[1])'
    backbone = f"_delete_=True, type='vitplug.MViT', {settings if 'arch' in settings else f'{arch}, {settings}'}"
    return Row(title, 'get_flops.py child.py', error, child(f'model = dict(backbone=dict({backbone}))'))


CHECK = 'check_dataset.py {}.py --splits train'
CLASSIFY, SEGMENT, DETECT = (CHECK.format(name) for name in ('tiny', 'segment', 'detect'))
TRAIN, TEST, RESUME = 'train.py tiny.py', 'test.py tiny.py bad.pth', 'train.py tiny.py --resume bad.pth'
# What reads a checkpoint, and the status that it ends with where it refuses one.
READING = (
    (TEST, 66),
    ('convert.py bad.pth new.pth', 2),
    (RESUME, 66),
    (_set('load_from=bad.pth', TRAIN), 66),
    ('publish_model.py bad.pth new.pth', 2),
)
SMALL = np.zeros((4, 4), np.uint8)
FAR = [1, 1, 1e9, 1, 9, 9]
NORMED = child("model = dict(neck=dict(type='LinearNeck', in_channels=8, out_channels=8, gap_dim=0, "
               "norm_cfg=dict(type='BN1d'), act_cfg=None))", 'normed.py')  # fmt: skip

# What writes a config for own data: of the classifier, and of the tasks whose data are made for it.
NEW = 'new_experiment.py --task classification --base tiny.py --out my.py'
NEW_DETECTOR = 'new_experiment.py --task detection --data coco --base detect.py --out my.py'
NEW_SEGMENTOR = 'new_experiment.py --task segmentation --data town --base segment.py --out my.py'
DATA = (
    Row('image folder is missing', TRAIN, r'no such data folder: .*data/train', remove('data/train')),
    Row('image folder is empty', TRAIN, r'the data folder is empty: .*data/train', empty('data/train')),
    Row('image of 0 bytes', CLASSIFY, r'image is empty\n.*data/train/cat/0\.png', cut('data/train/cat/0.png', 0), 1),
    Row('image cut short', CLASSIFY, r'image is damaged\n.*data/train/cat/0\.png', cut('data/train/cat/0.png', 300), 1),
    Row(
        'text with the name of an image',
        CLASSIFY,
        r'of no known format\n.*cat/0\.png',
        write('data/train/cat/0.png', '<html>404</html>'),
        1,
    ),
    Row('grey image', CLASSIFY, r'1 x image with grey.*\n.*cat/0\.png', picture('data/train/cat/0.png', SMALL), 0),
    Row(
        'image of 16 bit',
        CLASSIFY,
        r'1 x image with 16 bit.*\n.*cat/0\.png',
        picture('data/train/cat/0.png', np.zeros((4, 4), np.uint16)),
        0,
    ),
    Row(
        'label map is missing',
        SEGMENT,
        r'2 images \*\.png in .*1 without a partner, e\.g\. 1',
        remove('ade/maps/1.png'),
        1,
    ),
    Row(
        'label map of another size',
        SEGMENT,
        r'another size than its image\n.*ade/maps/1\.png \(20 x 16 as loaded, annotated as 4 x 4',
        picture('ade/maps/1.png', SMALL),
        1,
    ),
    Row(
        'label map with labels that are no classes',
        SEGMENT,
        r'labels outside of the 2 classes\n.*maps/1\.png \(\[9\]\)',
        picture('ade/maps/1.png', np.full((16, 20), 9, np.uint8)),
        1,
    ),
    Row('COCO file is missing', DETECT, r'no such annotation file: .*coco/train\.json', remove('coco/train.json'), 1),
    Row('COCO file of 0 bytes', DETECT, r'annotation file is empty: .*coco/train\.json', cut('coco/train.json', 0), 1),
    Row('COCO file cut short', DETECT, r'not valid JSON: .*coco/train\.json', cut('coco/train.json', 90), 1),
    Row(
        'COCO file with a list in it',
        DETECT,
        r'another form than expected\n.*coco/train\.json',
        write('coco/train.json', '[1, 2]'),
        1,
    ),
    Row(
        'COCO file without annotations',
        DETECT,
        r'has no annotations: .*coco/train\.json',
        write('coco/train.json', json.dumps(coco_file() | dict(annotations=[]))),
        1,
    ),
    Row(
        'box of three numbers',
        DETECT,
        r'four finite numbers\n.*annotation 1 \(\[1, 1, 4\]',
        annotation(bbox=[1, 1, 4]),
        1,
    ),
    Row(
        'box that is not finite',
        DETECT,
        r'four finite numbers\n.*annotation 1',
        annotation(bbox=[1, 1, float('nan'), 4]),
        1,
    ),
    Row(
        'box without width',
        DETECT,
        r'narrower than a pixel: left out.*\n.*annotation 1',
        annotation(bbox=[1, 1, 0, 4]),
        0,
    ),
    Row(
        'box outside of its image',
        DETECT,
        r'outside of its image: left out.*\n.*annotation 1',
        annotation(bbox=[90, 1, 4, 4]),
        0,
    ),
    Row(
        'annotation of an unknown class',
        DETECT,
        r'unknown category\n.*annotation 1 \(category_id 7',
        annotation(category_id=7),
        1,
    ),
    Row(
        'annotation of an unknown image',
        DETECT,
        r'not in the file\n.*annotation 1 \(image_id 7',
        annotation(image_id=7),
        1,
    ),
    Row('two annotations of one id', DETECT, r'more than once\n.*train\.json, annotations \(0\)', annotation(id=0), 1),
    Row(
        'annotations in a pickle',
        _set('train_dataloader.dataset.ann_file=list.pkl', TRAIN),
        r"ann_file = 'list\.pkl'.*pickle.*--unsafe-unpickle",
        write('data/list.pkl', pickle.dumps(Malicious())),
    ),
    Row(
        'line of an image list without a label',
        _set('train_dataloader.dataset.ann_file=list.txt', CLASSIFY),
        r'not a path and a label\n.*data/list\.txt, line 2',
        write('data/list.txt', 'cat/0.png 0\ncat/1.png\n'),
        1,
    ),
    Row(
        'label of an image list that is no class',
        _set('train_dataloader.dataset.ann_file=list.txt', CLASSIFY),
        r'outside of the 2 classes\n.*data/list\.txt, line 2',
        write('data/list.txt', 'cat/0.png 0\ncat/1.png 7\n'),
        1,
    ),
    Row(
        'line of an image list without a label, in a training',
        _set('train_dataloader.dataset.ann_file=list.txt', TRAIN),
        r'data/list\.txt cannot be read by CustomDataset: not enough values',
        write('data/list.txt', 'cat/0.png 0\ncat/1.png\n'),
    ),
    Row(
        'label of a validation list that is no class',
        _set('val_dataloader.dataset.ann_file=list.txt', TRAIN),
        r'1 of 2 validation images cannot be read',
        write('data/list.txt', 'cat/0.png 0\ncat/1.png -1\n'),
        0,
    ),
    Row(
        'image list in another encoding',
        _set('train_dataloader.dataset.ann_file=list.txt', CLASSIFY),
        r'another form than expected\n.*data/list\.txt',
        write('data/list.txt', b'\xff\xfe\xfa 0\n'),
        1,
    ),
    Row(
        'damaged image in a training',
        TRAIN,
        r'\d samples replaced so far that cannot be used: .*work/bad_samples\.jsonl',
        cut('data/train/cat/0.png', 0),
        0,
    ),
    Row(
        'damaged image in a validation',
        TRAIN,
        r'1 of 4 validation images cannot be read.*bad_samples\.jsonl',
        cut('data/val/cat/0.png', 0),
        0,
    ),
    Row(
        'damaged image where none is allowed',
        _set('default_hooks.bad_samples.strict=True', TRAIN),
        r'cannot use data/train/cat/0\.png: .*repair or remove it',
        cut('data/train/cat/0.png', 0),
        65,
    ),
    Row(
        'nothing but damaged images',
        TRAIN,
        r'20 samples drawn in a row cannot be used, the last is data/train/',
        both(*(cut(name, 0) for name in IMAGES if 'data/train' in name)),
        65,
    ),
    Row(
        'damaged image in a test',
        'test.py tiny.py good.pth',
        r'cannot use data/val/cat/0\.png: .*test on a list without it',
        cut('data/val/cat/0.png', 0),
        65,
    ),
    Row(
        'nothing but damaged images in a validation',
        TRAIN,
        r'none of the 4 val images can be read.*work/bad_samples\.jsonl',
        both(*(cut(name, 0) for name in IMAGES if 'data/val' in name)),
        65,
    ),
    Row(
        'small file with an image of 900 million pixels',
        CLASSIFY,
        r'image is too large\n.*cat/0\.png \(has 900,000,000 pixels: allowed are 89,478,485.*max_pixels',
        huge_image,
        1,
    ),
    Row(
        'small file with an image of 900 million pixels, in a training',
        _set('default_hooks.bad_samples.strict=True', TRAIN),
        r'cannot use data/train/cat/0\.png: .* has 900,000,000 pixels: allowed are 89,478,485',
        huge_image,
        65,
    ),
    Row(
        'image larger than the config allows',
        _set('default_hooks.bad_samples.max_pixels=300', CLASSIFY),
        r'4 x image is too large\n.*has 320 pixels: allowed are 300',
        status=1,
    ),
    Row(
        'limit of pixels that is a word',
        _set('default_hooks.bad_samples.max_pixels=many', CLASSIFY),
        r"default_hooks\.bad_samples\.max_pixels = 'many': expected a number of pixels",
    ),
    Row(
        'image that is a pipe',
        _set('train_dataloader.dataset.ann_file=list.txt', CLASSIFY),
        r'image is no regular file\n.*train/cat/2\.png \(pipe',
        both(pipe('data/train/cat/2.png'), write('data/list.txt', 'cat/0.png 0\ncat/2.png 0\n')),
        1,
    ),
    Row(
        'image that is a pipe, in a training',
        _set('train_dataloader.dataset.ann_file=list.txt', TRAIN),
        r'data/train/cat/2\.png is a pipe: expected a regular file',
        both(pipe('data/train/cat/2.png'), write('data/list.txt', 'cat/0.png 0\ncat/2.png 0\n')),
    ),
    Row(
        'image that is a device',
        f'{_set("default_hooks.bad_samples.strict=True", TRAIN)} train_dataloader.dataset.ann_file=list.txt',
        r'data/train/cat/2\.png is a character device: expected a regular file',
        both(link('data/train/cat/2.png', '/dev/zero'), write('data/list.txt', 'cat/2.png 0\n')),
    ),
    Row(
        'image list that is a pipe',
        _set('train_dataloader.dataset.ann_file=list.txt', TRAIN),
        r'dataset\.ann_file: data/list\.txt is a pipe: expected a regular file',
        pipe('data/list.txt'),
    ),
    Row(
        'list of classes that is a device',
        _set('train_dataloader.dataset.metainfo.classes=classes.txt', CLASSIFY),
        r'the data set cannot be built\n.*metainfo\.classes: classes\.txt is a character device',
        link('classes.txt', '/dev/zero'),
        1,
    ),
    Row(
        'folder that contains itself',
        TRAIN,
        r'data/train/cat/again leads to .*data/train again: remove links',
        link('data/train/cat/again', '..'),
    ),
    Row(
        'folders with ever more ways through them',
        CLASSIFY,
        r'the data set cannot be built\n.*leads to .*again',
        many_ways,
        1,
    ),
    Row(
        'COCO file of lists in lists without an end',
        DETECT,
        r'nested too deeply: .*coco/train\.json',
        write('coco/train.json', '[' * 100_000),
        1,
    ),
    Row(
        'polygon with a coordinate of 1e9',
        DETECT,
        r'outside of the limits\n.*annotation 1 \(coordinate 1e\+09 in an image of 20 x 16: allowed are -20 to 40',
        annotation(segmentation=[FAR]),
        1,
    ),
    Row(
        'polygon with a coordinate of 1e9, in a training',
        'train.py mask.py',
        r'[1-9] samples replaced so far',
        annotation(segmentation=[FAR]),
        0,
    ),
    Row(
        'polygon with a coordinate of 1e9 in what a metric reads',
        'train.py detect.py --cfg-options val_evaluator.type=CocoMetric val_evaluator.ann_file=coco/train.json',
        r'coco/train\.json, annotation 1: coordinate 1e\+09',
        annotation(segmentation=[FAR]),
    ),
    Row(
        'polygon that runs to and fro',
        DETECT,
        r'annotation 1 \(polygon with an outline of \d+ pixels in an image of 20 x 16: allowed are 464',
        annotation(segmentation=[[0, 0, 20, 16] * 500]),
        1,
    ),
    Row(
        'box with a coordinate of 1e9',
        DETECT,
        r'annotation 1 \(coordinate 1e\+09',
        annotation(bbox=[1, 1, 1e9, 8]),
        1,
    ),
    Row(
        'RLE of another size than its image',
        DETECT,
        r'annotation 1 \(RLE of size \[100000, 100000\]: expected that of its image, \[16, 20\]',
        annotation(segmentation=dict(size=[100_000, 100_000], counts=[10**10])),
        1,
    ),
    Row(
        'RLE of more pixels than its image has',
        DETECT,
        r'annotation 1 \(RLE of size \[16, 20\]: its counts are no 320 pixels',
        annotation(segmentation=dict(size=[16, 20], counts=[0, 10**9])),
        1,
    ),
    Row(
        'packed RLE of more pixels than its image has',
        DETECT,
        r'annotation 1 \(RLE of size \[16, 20\]: its counts are no 320 pixels',
        annotation(segmentation=dict(size=[16, 20], counts='0oooo1')),
        1,
    ),
    Row(
        'COCO file with an image of 10 billion pixels',
        DETECT,
        r'image 1 \(size 100000 x 100000 pixels: allowed are 89,478,485',
        coco_image(width=100_000, height=100_000),
        1,
    ),
    Row(
        'class weights in a pickle',
        'train.py child.py',
        r"class_weight = 'w\.pkl': a pickle or YAML file can run code.*--unsafe-unpickle",
        both(write('w.pkl', pickle.dumps(Malicious())), class_weight('w.pkl')),
    ),
    Row(
        'class weights in a pickle, counted',
        'get_flops.py child.py',
        r"class_weight = 'w\.pkl': a pickle or YAML file can run code",
        both(write('w.pkl', pickle.dumps(Malicious())), class_weight('w.pkl')),
    ),
    Row(
        'class weights in pickled objects of numpy',
        'train.py child.py',
        r'w\.npy is or holds a pickle, which can run code.*--unsafe-unpickle',
        both(lambda folder: np.save(folder / 'w.npy', np.array([Malicious()])), class_weight('w.npy')),
    ),
    Row(
        'images in pickles',
        'train.py child.py',
        r"decode_backend = 'pickle': read as a pickle, which can run code",
        child(
            "train_dataloader = dict(dataset=dict(pipeline=[dict(type='mmseg.LoadBiomedicalImageFromFile', "
            "decode_backend='pickle')]))"
        ),
    ),
    Row(
        'loss that is not finite',
        f'{_set("optim_wrapper.optimizer.lr=1e30", TRAIN)} default_hooks.non_finite.max_consecutive=1',
        r'loss or gradients of iteration 2 are not finite.*loss = nan; images: data/train/',
        status=70,
    ),
    Row(
        'own data without folders of splits',
        f'{NEW} --data data/train',
        r'data/train has no folder for train and val: .*found cat, dog',
    ),
    Row(
        'own class folder without images',
        f'{NEW} --data data',
        r'class folders without images in data/val: dog',
        empty('data/val/dog'),
    ),
    Row(
        'own classes that val lacks',
        f'{NEW} --data data',
        r'data/val and data/train differ in the class folders dog',
        remove('data/val/dog'),
    ),
    Row(
        'own images without annotations',
        NEW_DETECTOR,
        r'no annotations for val: expected a COCO file such as coco/annotations/instances_val\.json',
        both(splits_of_coco, remove('coco/val.json')),
    ),
    Row(
        'own images with two COCO files',
        NEW_DETECTOR,
        r'two COCO files for val: coco/person_val\.json and coco/val\.json',
        both(splits_of_coco, write('coco/person_val.json', '{}')),
    ),
    Row(
        'own annotations that are no COCO file',
        NEW_DETECTOR,
        r'coco/val\.json is no COCO file: expected lists of images, annotations and categories',
        both(splits_of_coco, write('coco/val.json', '[1]')),
    ),
    Row(
        'own masks with colours',
        NEW_SEGMENTOR,
        r'town/masks/val/0\.png has colours \(RGB\): expected a label map',
        both(splits_of_maps, picture('town/masks/val/0.png', np.zeros((16, 20, 3), np.uint8))),
    ),
    Row(
        'own masks of 0 and 255',
        NEW_SEGMENTOR,
        r'masks have the labels 0 \(255 is ignored\).*number the classes 0, 1, 2',
        both(
            splits_of_maps,
            *(
                picture(f'town/masks/{split}/{name}.png', np.full((16, 20), 255 * int(name), np.uint8))
                for split in ('train', 'val')
                for name in '01'
            ),
        ),
    ),
)

CONFIG = (
    Row('config is missing', 'train.py tinny.py', r'no such config: tinny\.py \(did you mean tiny\.py\?\)'),
    Row('syntax error', 'train.py bad.py', r'bad\.py is no config \(SyntaxError', write('bad.py', 'model = dict(')),
    Row(
        'name that is not defined',
        'train.py bad.py',
        r"bad\.py is no config .*'nothing'",
        write('bad.py', 'a = nothing'),
    ),
    Row(
        'config that ends the program',
        'check_dataset.py bad.py',
        r'bad\.py is no config \(SystemExit\)',
        write('bad.py', 'raise SystemExit(0)'),
    ),
    Row(
        'base is missing',
        'get_flops.py bad.py',
        r'bad\.py is no config .*nowhere\.py',
        write('bad.py', "_base_ = 'nowhere.py'"),
    ),
    Row(
        'base of a missing package',
        'train.py bad.py',
        r'bad\.py is no config .*nopackage',
        write('bad.py', "_base_ = 'nopackage::vit/a.py'"),
    ),
    Row(
        'import of a missing package',
        'train.py bad.py',
        r'Failed to import nopackage in bad\.py, line 1',
        write('bad.py', 'import nopackage'),
    ),
    Row(
        'custom_imports of a missing module',
        'train.py child.py',
        r'child\.py is no config .*nopackage',
        child("custom_imports = dict(imports=['nopackage'])"),
    ),
    Row('config that is another file', 'train.py notes.txt', r'notes\.txt is no config', write('notes.txt', 'hello')),
    Row('broken JSON config', 'print_config.py bad.json', r'bad\.json is no config', write('bad.json', '{"model": ')),
    Row(
        'unknown hook that is switched off',
        _set('default_hooks.bad_sample=None', TRAIN),
        r"no 'bad_sample' in default_hooks; did you mean 'bad_samples'",
    ),
    Row(
        'interruptions without checkpoints',
        _set('default_hooks.checkpoint=None', TRAIN),
        r'InterruptionHook saves with .*, or default_hooks\.interruption = None',
    ),
    Row(
        'hooks of vitplug on a base without their line',
        'train.py bad.py',
        r'bad\.py is no config .*vitplug_hooks',
        write('bad.py', "_base_ = 'tiny.py'\ndefault_hooks = _base_.vitplug_hooks"),
    ),
    Row('no default_scope', 'train.py bad.py', r'sets no default_scope: set it to one of', write('bad.py', 'a = 1')),
    Row('unknown default_scope', _set('default_scope=mmnothing', TRAIN), r"default_scope = 'mmnothing' is unknown"),
    Row('no model', 'train.py bad.py', r'no `?model', write('bad.py', "default_scope = 'mmpretrain'")),
    Row('model that is no dict', _set('model=vit', TRAIN), r"model = 'vit': expected a dict"),
    Row('unknown model', _set('model.type=Classifier', TRAIN), r"model\.type = 'Classifier' is not in the "),
    Row(
        'plug in the place of a backbone',
        _set('model.backbone.type=vitplug.ContextBroadcast', TRAIN),
        r"model\.backbone\.type = 'vitplug\.ContextBroadcast': a plug is no part of a model: name it in plugs",
    ),
    Row(
        'model that names a function of another module',
        _set('model.type=os.system', TRAIN),
        r"model\.type = 'os\.system'.*custom_imports",
    ),
    Row(
        'hook that names a class of another module',
        'train.py child.py',
        r"custom_hooks\.0\.type = 'subprocess\.Popen'",
        child("custom_hooks = [dict(type='subprocess.Popen', args=['mkdir', 'harm'])]"),
    ),
    Row(
        'model that names a function of a known module',
        _set('model.type=mmengine.load', TRAIN),
        r"model\.type = 'mmengine\.load': no class of",
    ),
    Row(
        'class of another module behind a known one',
        _set('model.type=mmengine.runner.checkpoint.TemporaryDirectory', TRAIN),
        r"model\.type = 'mmengine\.runner\.checkpoint\.TemporaryDirectory': no class of",
    ),
    _plugs(
        'plug that names a function of another module',
        "dict(type='os.mkdir', path='harm')",
        r"plugs\.0\.type = 'os\.mkdir'",
    ),
    Row(
        'backbone with a slip in its name',
        _backbone('type=vitplug.VisionTransfomer', TRAIN),
        r"model\.backbone\.type = 'vitplug\.VisionTransfomer' is not .*: did you mean 'vitplug\.VisionTransformer'",
    ),
    Row(
        'backbone with a slip in its name, counted',
        _backbone('type=vitplug.SwinTransfomer'),
        r"'vitplug\.SwinTransfomer' is not in .*did you mean 'vitplug\.SwinTransformer'",
    ),
    Row(
        "Swin with mmdet's arguments",
        'get_flops.py child.py',
        r"has no argument \['embed_dims', 'depths', .*arch=dict\(embed_dims=96, depths=\[2, 2\], num_heads=\[3, 6\]\)",
        child(
            "model = dict(backbone=dict(_delete_=True, type='vitplug.SwinTransformer', embed_dims=96, depths=[2, 2], "
            'num_heads=[3, 6], mlp_ratio=4))'
        ),
    ),
    Row(
        'size of a backbone beyond all bounds',
        _backbone(f'arch.num_layers={10**22}'),
        r'arch: num_layers=10{22}: expected an integer of at most',
    ),
    Row('unknown size of a backbone', _backbone('arch=deit-huge'), r"arch='deit-huge': unknown; choose from"),
    Row(
        'size of a backbone without the heads',
        _backbone('arch.num_heads=None'),
        r'arch: num_heads=None: expected an integer',
    ),
    Row(
        'backbone of no blocks',
        _backbone('arch.num_layers=0'),
        r'arch: num_layers=0: expected an integer of at least 1',
    ),
    Row(
        'heads that do not divide the width',
        _backbone('arch.num_heads=3'),
        r'embed_dims=8 is no multiple of num_heads=3',
    ),
    Row(
        'argument that a backbone has not',
        _backbone('widow_size=7'),
        r"no 'widow_size' in model\.backbone; did you mean 'window_size'",
    ),
    Row('patches of size 0', _backbone('patch_size=0'), r'patch size 0.*expected positive integers'),
    Row(
        'patches larger than the image',
        f'{_backbone("patch_cfg.padding=0")} --shape 4',
        r'image size \(4, 4\) is smaller than the patch size \(8, 8\)',
    ),
    Row(
        'drop rate above 1',
        _backbone('drop_path_rate=1.5'),
        r'drop_path_rate=1\.5: expected a number at least 0\.0 and below 1\.0',
    ),
    Row('flag that is a word', _backbone('with_cp=yes'), r"with_cp='yes': expected True or False"),
    Row('unknown norm', _backbone('norm_cfg.type=LNN'), r"norm_cfg=\{'type': 'LNN'.*no norm"),
    Row(
        'output of a block that is not there',
        _backbone('out_indices=[2]'),
        r'out_indices=\[2\]: \[2\] outside; .* 0 to 1',
    ),
    Row(
        'class token in windows',
        _backbone('window_size=2') + ' model.backbone.with_cls_token=True',
        r'window_size=2: a class token lies in no window',
    ),
    Row(
        'Swin with heads for another number of stages',
        _backbone('arch.depths=[1]', 'get_flops.py swin.py'),
        r"arch: .*'depths': \[1\].* differ in length",
    ),
    Row(
        'Swin with a window of 0',
        _backbone('window_size=0', 'get_flops.py swin.py'),
        r'window_size=0: expected a positive integer',
    ),
    Row(
        'Swin on maps smaller than a window',
        'get_flops.py swin.py --shape 24',
        r'feature map \(3, 3\) is smaller than the window \(4\): set pad_small_map',
    ),
    _swin_v2(
        'Swin V2 with windows for another number of stages',
        'window_size=[4]',
        r'window_size=\[4\]: expected one integer, or a list of 2, one for each stage',
    ),
    _swin_v2(
        'Swin V2 with windows of a pretraining that are none',
        'pretrained_window_sizes=[4, -1]',
        r'pretrained_window_sizes=-1: expected an integer of at least 0',
    ),
    _swin_v2(
        'Swin V2 with norms after every -1 blocks',
        'arch=dict(embed_dims=8, depths=[1, 1], num_heads=[2, 2], extra_norm_every_n_blocks=-1)',
        r'arch: extra_norm_every_n_blocks=-1: expected an integer of at least 0',
    ),
    _t2t(
        'T2T-ViT with a slip in its token stage',
        'layer_cfgs=dict(num_heads=2), t2t_cfg=dict(performer=True)',
        r"t2t_cfg=\{'performer': True\} makes no token stage: .*'performer'",
    ),
    _t2t('T2T-ViT by the name of a model', "arch='t2t-vit-7'", r"T2T_ViT has no argument \['arch'\]; it takes"),
    _t2t('T2T-ViT with scores of 0', 'qk_scale=0', r'qk_scale=0: expected a number above 0, or None'),
    _t2t(
        'T2T-ViT on images that make no token',
        'layer_cfgs=dict(num_heads=2)',
        r'image size \(2, 2\): expected at least 3 x 3 pixels',
        'get_flops.py child.py --shape 2',
    ),
    _lvt('LVT with a rate of 0', 'atrous_rates=[1, 0]', r'atrous_rates=\[1, 0\]: expected a list of positive integers'),
    _lvt(
        'LVT with a class token of all stages',
        "out_type='cls_token', out_indices=(0, 1, 2, 3)",
        r"out_indices=\(0, 1, 2, 3\): out_type='cls_token' is of the last stage alone",
    ),
    _lvt(
        'LVT with a bias in its first stage',
        "plugs=[dict(type='GaussianAttentionBias')]",
        r"gab takes the socket 'bias', which block 0 .*layers=\[2, 3, 4, 5, 6, 7\] are the blocks that do",
    ),
    _host(
        'PiT whose pooling cannot widen its tokens',
        "type='vitplug.PoolingVisionTransformer', "
        'arch=dict(embed_dims=[8, 12], depths=[1, 1], num_heads=[2, 2], patch_size=8, stride=4)',
        r"arch: embed_dims=\[8, 12\]: expected each stage's width to be a multiple of the one before",
    ),
    _host(
        'PiT with a patch size of its own',
        "type='vitplug.PoolingVisionTransformer', arch='ti', patch_size=8",
        r"has no argument \['patch_size'\].*sizes belong into arch: arch=dict\(patch_size=8\)",
    ),
    _host(
        'PiT on images smaller than a patch',
        "type='vitplug.PoolingVisionTransformer', arch='ti'",
        r'image size \(8, 8\) is smaller than the patch size \(16, 16\)',
        'get_flops.py child.py --shape 8',
    ),
    _host(
        'PiT with an MLP of no width',
        "type='vitplug.PoolingVisionTransformer', arch='ti', mlp_ratio=0",
        'mlp_ratio=0: expected a number above 0',
    ),
    _host(
        'Mixer with attention',
        f"{MIXER}, plugs=[dict(type='GaussianAttentionBias')]",
        r"gab takes the socket 'bias', which block 0 does not offer; it offers \['mlp_front', 'mlp_mid', 'mlp_end', "
        r"'mlp_residual', 'block_in', 'block_out'\]",
    ),
    _host(
        'Mixer on images of another size',
        MIXER,
        r'images of \(32, 32\): .* resize or crop the images to \(16, 16\), or build the backbone for their size',
        'get_flops.py child.py --shape 32',
    ),
    _host('Mixer with an unknown activation', f"{MIXER}, act_cfg=dict(type='Nothing')", r'act_cfg=.*Nothing'),
    _host('Mixer with an unknown output', f"{MIXER}, out_type='cls_token'", r"out_type='cls_token': expected one of"),
    _mvit('MViT with an unknown name', "arch='huge'", r"arch='huge': unknown; choose from \['base', 'large', 'small',"),
    _mvit(
        'MViT with a stage that begins after its last block',
        'arch=dict(embed_dims=8, num_layers=2, num_heads=1, downscale_indices=[2])',
        r'downscale_indices=\[2\]: expected ascending block indices below 2',
    ),
    _mvit(
        'MViT with an even kernel', 'pool_kernel=(2, 2)', r'pool_kernel=\(2, 2\): expected two odd positive integers'
    ),
    _mvit('MViT without the class token it returns', "out_type='cls_token'", r'needs with_cls_token=True'),
    _mvit(
        'MViT with windows that pooling divides',
        'window_size=6',
        r'window_size=6: block 0 pools its windows of 6 tokens by 4, which leaves no whole ones; .* a multiple of 4',
    ),
    _mvit(
        'MViT with padding shown without windows',
        'shows_padding=True',
        r'shows_padding=True: there is none without window',
    ),
    _mvit(
        'a table of offsets on pooled keys',
        "plugs=[dict(type='RelPosBias')]",
        r'RelPosBias: block 0 has queries on 56x56 and keys on 14x14',
    ),
    Row(
        'plugs that cannot be read',
        _backbone('plugs=3'),
        r"model\.backbone\.plugs: '3' in '3' is no plug: expected a name such as gab",
    ),
    _plugs('plug without a type', 'dict(sigma=2)', r"plugs: \{'sigma': 2\} is no plug"),
    _plugs('unknown plug', "dict(type='Nothing')", r"type='Nothing' is no plug; choose from .*'Refiner'"),
    _plugs(
        'argument that a plug has not',
        "dict(type='Refiner', kernel=3)",
        r"Refiner has no argument \['kernel'\]; it takes",
    ),
    _plugs(
        'value out of range in a plug',
        "dict(type='GaussianAttentionBias', sigma=-1)",
        r'GaussianAttentionBias: sigma=-1: expected a number at least 0\.01',
    ),
    _plugs(
        'plug on a block that is not there',
        "dict(type='RelPosBias', layers=[5])",
        r'RelPosBias: layers=\[5\]: expected different block indices from 0 to 1',
    ),
    _plugs(
        'plug given twice',
        "dict(type='RelPosBias'), dict(type='RelPosBias')",
        r'RelPosBias occurs more than once for blocks 0-1; give it once',
    ),
    _plugs(
        'plug given twice, with one block in common',
        "dict(type='ContextBroadcast'), dict(type='ContextBroadcast', mode='max', layers=[1])",
        r'ContextBroadcast occurs more than once for blocks 1; .*layers=\[\.\.\.\] without common blocks',
    ),
    _plugs(
        'position bias for a block that reuses the map of an earlier one',
        "dict(type='Refiner', share=1), dict(type='GaussianAttentionBias')",
        r"plugs: \['gab'\] need q and k of block 1, which has none because it reuses the map of an earlier block",
    ),
    Row(
        'position bias for a block without attention',
        'get_flops.py child.py',
        r"plugs: \['rel_pos_bias'\] change the attention branch of block 1, which has none; take the block out of",
        child("model = dict(backbone=dict(layer_cfgs=[{}, dict(with_attn=False)], plugs=[dict(type='RelPosBias')]))"),
    ),
    Row(
        'plug on a block that lacks its branch',
        'get_flops.py child.py',
        r"plugs: \['cb'\] change the MLP branch of block 1, which has none; take the block out of their layers",
        child(
            "model = dict(backbone=dict(layer_cfgs=[{}, dict(with_ffn=False)], plugs=[dict(type='ContextBroadcast')]))"
        ),
    ),
    Row(
        'block without a branch',
        'get_flops.py child.py',
        r'with_attn=False and with_ffn=False leave nothing of the block',
        child('model = dict(backbone=dict(layer_cfgs=dict(with_attn=False, with_ffn=False)))'),
    ),
    Row('unknown data set', _set('train_dataloader.dataset.type=Nothing', TRAIN), r"dataset\.type = 'Nothing'"),
    Row(
        'loader without a data set',
        _set('train_dataloader.dataset=None', TRAIN),
        r'train_dataloader\.dataset = None: expected a dict',
    ),
    Row(
        'unknown transform',
        'train.py child.py',
        r"train_dataloader\.dataset\.pipeline\.0\.type = 'Nothing' is not in the ",
        child("train_dataloader = dict(dataset=dict(pipeline=[dict(type='Nothing')]))"),
    ),
    Row('unknown metric', _set('val_evaluator.type=Nothing', TRAIN), r"val_evaluator\.type = 'Nothing' is not in the "),
    Row(
        'unknown optimizer',
        _set('optim_wrapper.optimizer.type=Nothing', TRAIN),
        r"optim_wrapper\.optimizer = .*'Nothing'.*such as AdamW",
    ),
    Row(
        'negative learning rate',
        _set('optim_wrapper.optimizer.lr=-1.0', TRAIN),
        r'optim_wrapper\.optimizer\.lr = -1\.0: expected a number from 0 to',
    ),
    Row(
        'learning rate beyond all bounds',
        _set('optim_wrapper.optimizer.lr=1e38', TRAIN),
        r'optim_wrapper\.optimizer\.lr = 1e\+38: expected a number from 0 to',
    ),
    Row(
        'argument that an optimizer has not',
        _set('optim_wrapper.optimizer.beta=1', TRAIN),
        r"has no 'beta' in optim_wrapper\.optimizer; there are .*momentum",
    ),
    Row('argument that a loop has not', _set('train_cfg.max_epoch=3', TRAIN), r"'max_epoch'"),
    Row(
        'unknown hook',
        _set('default_hooks.mine.type=Nothing', TRAIN),
        r"default_hooks\.mine\.type = 'Nothing' is not in the .*custom_imports",
    ),
    Row('hook that is a parenthesis', _set('default_hooks.timer.type=(', TRAIN), r"default_hooks\.timer\.type = '\('"),
    Row(
        'value out of range in a hook',
        _set('default_hooks.bad_samples.max_in_a_row=0', TRAIN),
        r'max_in_a_row = 0: must be at least 1',
    ),
    Row('head for another width', _set('model.head.in_channels=9'), r'16x16: head\.fc \(Linear\)'),
    Row(
        'head for another width, in a training',
        _set('model.head.in_channels=9', TRAIN),
        r'error: head\.fc \(Linear\): RuntimeError',
    ),
)

CHECKPOINT = (
    Row('checkpoint of 0 bytes', TEST, r'bad\.pth is empty \(0 bytes\)', write('bad.pth', ''), 66),
    Row(
        'checkpoint cut short',
        'train.py tiny.py --resume bad.pth',
        r'bad\.pth is truncated',
        both(changed(lambda c: None), cut('bad.pth', 2000)),
        66,
    ),
    Row(
        'web page with the name of a checkpoint',
        _set('load_from=bad.pth', TRAIN),
        r'bad\.pth is truncated or no checkpoint',
        write('bad.pth', '<html>404</html>'),
        66,
    ),
    *(
        Row(title, command, r'bad\.pth (is|has .* bytes and would fill|would run|holds more)', make, status)
        for (title, make), (command, status) in zip({**UNTRUSTED, **UNSOUND}.items(), READING * 3, strict=True)
    ),
    Row(
        'safetensors file that says it has 4 TB',
        'convert.py bad.safetensors new.pth',
        r'bad\.safetensors is truncated',
        lying_header([10**12], 4 * 10**12),
    ),
    Row(
        'safetensors file that says another shape',
        'publish_model.py bad.safetensors new.safetensors',
        r'bad\.safetensors is truncated',
        lying_header([3], 8),
    ),
    Row(
        'file without weights',
        'convert.py bad.pth new.pth',
        r'bad\.pth holds no weights: its keys are lr',
        saved(dict(lr=0.1)),
    ),
    Row(
        'file with a list',
        'publish_model.py bad.pth new.pth',
        r'bad\.pth holds a list: expected a state dict',
        saved([1]),
    ),
    Row(
        'weights of no known model',
        'convert.py bad.pth new.pth',
        r'bad\.pth: the keys \(a\) match no known network',
        saved({'a': torch.zeros(1)}),
    ),
    Row(
        'weights of two networks',
        'convert.py bad.pth new.pth',
        r"bad\.pth: several networks in one file: choose one with --prefix 'a\.' \(timm ViT\) or --prefix 'b\.'",
        saved({f'a.{VIT_KEY}': torch.zeros(1), f'b.transformers.0.{VIT_KEY}': torch.zeros(1)}),
    ),
    Row(
        'Refined-ViT whose first block refines',
        'convert.py bad.pth new.pth',
        r'bad\.pth: Refined-ViT: blocks \[0\] of 1 refine a map: expected every second one, from block 1 on',
        saved(
            {
                VIT_KEY: torch.zeros(1),
                'pos_embed': torch.zeros(1, 2, 1),
                'blocks.0.norm1.weight': torch.zeros(1),
                'blocks.0.attn.adapt_bn.weight': torch.zeros(1),
            }
        ),
    ),
    Row(
        'MViT of videos',
        'convert.py bad.pth new.pth',
        r'bad\.pth: original MViT has no blocks\.0\.attn\.rel_pos_t \(1 of 3 tensors\)',
        saved(
            {
                'patch_embed.proj.weight': torch.zeros(1),
                'blocks.0.attn.pool_k.weight': torch.zeros(1),
                'blocks.0.attn.rel_pos_t': torch.zeros(1),
            }
        ),
    ),
    Row(
        'network that timm lacks',
        'convert.py bad.pth new.pth --to timm',
        r'bad\.pth: timm has no T2T-ViT: expected one of ViT, Swin, ',
        saved({VIT_KEY: torch.zeros(1), 'tokens_to_token.project.weight': torch.zeros(1)}),
    ),
    Row(
        'plugs that mmpretrain lacks',
        'convert.py bad.pth new.pth --to mmpretrain',
        r'bad\.pth: mmpretrain ViT has no keys for backbone\.plugs\.residual_attention\.start\.alpha\.residual_alpha',
        saved({VIT_KEY: torch.zeros(1), 'alpha': torch.zeros(1)}),
    ),
    Row(
        'meta that is no dict',
        'publish_model.py bad.pth new.pth',
        r'bad\.pth: its meta is a str',
        changed(lambda c: c.update(meta='x')),
    ),
    Row(
        'test of a checkpoint of another model',
        TEST,
        r'bad\.pth does not fit .* of its \d+ parameters.*backbone',
        saved(dict(state_dict={'a': torch.zeros(1)})),
        66,
    ),
    Row(
        'test of a checkpoint of another width',
        TEST,
        r'bad\.pth does not fit .* 6 of its \d+ parameters .*layers\.0\.ffn',
        weights(**{'model.backbone.arch.feedforward_channels': 24}),
        66,
    ),
    Row(
        'test of a Swin with other heads',
        'test.py swin.py bad.pth',
        r'bad\.pth does not fit .* e\.g\. .*relative_position_bias_table',
        weights('swin.py', **{'model.backbone.arch.num_heads': [4, 4]}),
        66,
    ),
    Row(
        'test of a position table of another grid with as many entries',
        _set('model.backbone.img_size=(64,16)', TEST),
        r'bad\.pth was trained on images of 16x64, .*pos_embed .* a 2x8 grid, not of 8x2',
        changed(wide_images),
        66,
    ),
    Row(
        'start from a position table of another grid with as many entries',
        f'{_set("load_from=bad.pth", TRAIN)} model.backbone.img_size=(64,16)',
        r'bad\.pth was trained on images of 16x64, .*pos_embed .* a 2x8 grid, not of 8x2',
        changed(wide_images),
        66,
    ),
    Row(
        'test without the statistics of a batch norm',
        'test.py normed.py bad.pth',
        r'bad\.pth does not fit .* 1 of its \d+ parameters and buffers .*norm\.running_var',
        both(NORMED, weights('normed.py', lambda state: state.pop('neck.norm.running_var'))),
        66,
    ),
    Row(
        'test without a plug of the checkpoint',
        TEST,
        r'bad\.pth does not fit .* no place, e\.g\. backbone\.layers\.0\.plugs\.rel_pos_bias',
        weights(**{'model.backbone.plugs': [dict(type='RelPosBias')]}),
        66,
    ),
    Row(
        'test without a plug that has no weights',
        TEST,
        r"model\.backbone\.plugs\.ContextBroadcast was \{'type': 'ContextBroadcast'\}, is not set",
        trained_with('img_size=16', "img_size=16, plugs=[dict(type='ContextBroadcast')]"),
        66,
    ),
    Row(
        'test with other heads',
        _set('model.backbone.arch.num_heads=1', 'test.py tiny.py good.pth'),
        r'good\.pth was trained with other settings .*num_heads was 2, is 1: .*--allow-changes',
        status=66,
    ),
    Row(
        'test with other heads, allowed',
        _set('model.backbone.arch.num_heads=1', 'test.py tiny.py good.pth --allow-changes'),
        r'good\.pth was trained with other settings .*num_heads was 2, is 1',
        status=0,
    ),
    Row('test of weights without a config', TEST, r'bad\.pth holds no config that could be compared', weights(), 0),
    Row(
        'resume with another learning rate and batch size',
        _set('optim_wrapper.optimizer.lr=0.1', RESUME) + ' train_dataloader.batch_size=1',
        r'bad\.pth was trained with (?=.*optimizer\.lr was 0\.01, is 0\.1).*batch_size was 2, is 1',
        changed(lambda content: None),
        66,
    ),
    Row(
        'resume with averaging that the checkpoint has not',
        'train.py child.py --resume good.pth',
        r"good\.pth was trained with .*averaging was \[\], is \[\{'type': 'EMAHook'\}\]",
        child("custom_hooks = [dict(type='EMAHook')]"),
        66,
    ),
    Row(
        'resume with an image less in the data',
        _set('train_cfg.max_epochs=2', 'train.py tiny.py --resume good.pth'),
        r'good\.pth was trained with other data: .*img_path .*data/train\) has 3 files, and had 4: .*--allow-changes',
        remove('data/train/cat/0.png'),
        66,
    ),
    Row(
        'resume from before the first epoch',
        RESUME,
        r'bad\.pth says that epoch -7 .* expected 0 to 1,000,000,000,000',
        changed(lambda content: content['meta'].update(epoch=-7)),
        66,
    ),
    Row(
        'resume from an iteration that no training reaches',
        RESUME,
        r'bad\.pth says that epoch .* and iteration 9223372036854775808 are done: expected 0 to 1,000,000,000,000',
        changed(lambda content: content['meta'].update(iter=2**63)),
        66,
    ),
    Row(
        'resume for more epochs',
        _set('train_cfg.max_epochs=2', 'train.py tiny.py --resume good.pth'),
        r'good\.pth was trained with .*max_epochs was 1, is 2',
        status=0,
    ),
    Row('NaN in weights', TEST, r'bad\.pth has .* not finite .* head\.fc\.weight', tensor(lambda t: t * np.nan), 66),
    Row(
        'infinity in weights to be published',
        'publish_model.py bad.pth new.pth',
        r'bad\.pth has .* not finite .* head\.fc\.weight',
        tensor(lambda t: t / 0),
    ),
    Row(
        'NaN in the state of an optimizer',
        RESUME,
        r'bad\.pth has .* not finite .* optimizer\.state\.0\.momentum',
        changed(lambda c: c['optimizer']['state'].update({0: dict(momentum=torch.tensor(np.nan))})),
        66,
    ),
    Row('complex weights', TEST, r'bad\.pth: .*head\.fc\.weight is a complex', tensor(lambda t: t + 1j), 66),
    Row(
        'weights without numbers',
        'convert.py bad.pth new.pth',
        r'bad\.pth: .*head\.fc\.weight is a meta tensor',
        tensor(lambda t: t.to('meta')),
    ),
    Row(
        'sparse weights',
        'convert.py bad.pth new.pth',
        r'bad\.pth: .*head\.fc\.weight is a sparse tensor',
        tensor(torch.Tensor.to_sparse),
    ),
    Row(
        'quantized weights',
        _set('load_from=bad.pth', TRAIN),
        r'bad\.pth: .*head\.fc\.weight is a quantized tensor',
        tensor(lambda t: torch.quantize_per_tensor(t, 0.1, 0, torch.qint8)),
        66,
    ),
    Row(
        'key with a number of stages without end',
        'convert.py bad.pth new.pth',
        r'bad\.pth: a key names stage 99999999999: expected at most 64',
        saved(
            {
                'layers.0.downsample.reduction.weight': torch.zeros(2, 8),
                'layers.99999999999.blocks.0.norm1.weight': torch.zeros(2),
            }
        ),
    ),
    Row(
        'key that clears the terminal',
        'convert.py bad.pth new.pth',
        r"bad\.pth: the key '\\x1b\[2Jw' has unprintable characters",
        saved({'\x1b[2Jw': torch.zeros(2)}),
    ),
    Row(
        'pipe with the name of a checkpoint',
        'convert.py bad.pth new.pth',
        r'bad\.pth is a pipe or a device: expected a regular file',
        lambda folder: os.mkfifo(folder / 'bad.pth'),
    ),
    Row(
        'model that begins with a file of timm that runs code',
        'get_flops.py child.py',
        r'child\.py: the model cannot be built: .*(posix\.mkdir|non-allowlisted pickle globals)',  # by timm's version
        both(
            UNTRUSTED['a pickle that would make a folder'],
            child(
                "model = dict(backbone=dict(_delete_=True, type='TIMMBackbone', model_name='resnet10t', "
                "checkpoint_path='bad.pth'))"
            ),
        ),
    ),
    Row(
        'start from a checkpoint of another model',
        _set('load_from=bad.pth', TRAIN),
        r'bad\.pth does not fit',
        saved(dict(state_dict={'a': torch.zeros(1)})),
        66,
    ),
    Row(
        'resume from weights alone',
        'train.py tiny.py --resume bad.pth',
        r'bad\.pth has no optimizer, message_hub, so no training',
        changed(lambda c: {k: c[k] for k in ('meta', 'state_dict')}),
        66,
    ),
    Row(
        'resume from a checkpoint without a position',
        'train.py tiny.py --resume bad.pth',
        r'bad\.pth has no meta\.iter',
        changed(lambda c: c['meta'].pop('iter') and None),
        66,
    ),
    Row(
        'init_cfg with a checkpoint of another width',
        'train.py child.py',
        r'good\.pth: \d+ tensors do not fit this model: pos_embed has shape',
        starting('good.pth', wider='arch=dict(embed_dims=16)'),
    ),
    Row(
        'init_cfg with a missing checkpoint',
        'train.py child.py',
        r'no such checkpoint: god\.pth \(did you mean good\.pth',
        starting('god.pth'),
    ),
    Row(
        'init_cfg with a checkpoint of another depth',
        'train.py child.py',
        r'good\.pth .* is of another network: .* set an arch with \d blocks in layers, not 3',
        starting('good.pth', wider='arch=dict(num_layers=3)'),
    ),
    Row(
        'checkpoint in a bucket',
        _set('load_from=s3://bucket/a.pth', TRAIN),
        r"checkpoint='s3://bucket/a\.pth': expected a path or an address",
        status=66,
    ),
)

ARGUMENT = (
    Row('no config', 'train.py', r'arguments are required: config'),
    Row('unknown option', 'train.py tiny.py --epochs 3', r'unrecognized arguments: --epochs 3'),
    Row('setting without a value', 'train.py tiny.py --cfg-options lr', r'KEY=VALUE pairs of plain values, but got lr'),
    Row(
        'setting that is no plain value',
        _set('model.backbone.out_indices=range(0,2)'),
        r'pairs of plain values, but got model\.backbone\.out_indices=range',
    ),
    Row('setting with an open bracket', _set('model.backbone.out_indices=[0,(1]'), r'values, but got .*=\[0,\(1\]'),
    Row(
        'setting whose value is a dict',
        _set('model.backbone.init_cfg=dict(type=Pretrained,checkpoint=a.pth)'),
        r'one by one, model\.backbone\.init_cfg\.type=Pretrained model\.backbone\.init_cfg\.checkpoint=a\.pth',
    ),
    Row(
        'plugs given as dicts by a setting',
        'train.py tiny.py --cfg-options "model.backbone.plugs=[dict(type=\'ContextBroadcast\')]"',
        r"plugs=\[dict.*'\)\]: a dict is no value.*plugs\.0\.type=ContextBroadcast, if.*plugs as a text.*plugs='gab\+",
    ),
    Row(
        'setting below a word',
        _set('default_scope.name=a', TRAIN),
        r"default_scope\.name: default_scope = 'mmpretrain' has no settings of its own",
    ),
    Row(
        'setting with a slip in its name',
        _set('train_dataloder.batch_size=2', TRAIN),
        r"train_dataloder.*did you mean 'train_dataloader'",
    ),
    Row(
        'mixed precision without a GPU',
        'train.py tiny.py --amp',
        r'--amp.*needs an accelerator, but the device here is cpu',
    ),
    Row(
        '--auto-scale-lr without a base',
        'train.py tiny.py --auto-scale-lr',
        r'--auto-scale-lr needs auto_scale_lr\.base_batch_size',
    ),
    Row(
        'launcher that did not start the process',
        'train.py tiny.py --launcher slurm',
        r'--launcher slurm needs the environment variables SLURM',
    ),
    Row(
        'work dir with checkpoints',
        TRAIN,
        r'work already holds checkpoints.*--resume',
        lambda folder: [(folder / 'work').mkdir(), (folder / 'work/epoch_1.pth').write_text('precious')],
    ),
    Row('work dir that is a file', 'train.py tiny.py --work-dir good.pth', r'--work-dir: .*good\.pth is a file'),
    Row(
        'resume from a missing checkpoint',
        'train.py tiny.py --resume god.pth',
        r'--resume: no such checkpoint: god\.pth .*good\.pth',
    ),
    Row(
        'resume in a folder that was moved',
        'train.py tiny.py --resume',
        r'work/last_checkpoint names a missing file, old/epoch_1\.pth',
        lambda folder: [(folder / 'work').mkdir(), (folder / 'work/last_checkpoint').write_text('old/epoch_1.pth')],
    ),
    Row(
        'test of a missing checkpoint',
        'test.py tiny.py god.pth',
        r'CHECKPOINT: no such checkpoint: god\.pth .*good\.pth',
    ),
    Row(
        'results into a file of another kind',
        'test.py tiny.py good.pth --out a.json',
        r'--out: a\.json must end in \.pkl',
    ),
    Row(
        'pictures without the hook for them',
        'test.py child.py good.pth --show-dir a',
        r'--show-dir need default_hooks\.visualization',
        child("default_hooks = dict(_delete_=True, timer=dict(type='IterTimerHook'))"),
    ),
    Row(
        'prediction of no picture', 'predict.py tiny.py good.pth nowhere.jpg --out a', r'no such image, .*nowhere\.jpg'
    ),
    Row(
        'prediction of a folder without pictures',
        'predict.py tiny.py good.pth empty --out a',
        r'empty has no image or video in it, of \.jpg',
        lambda folder: (folder / 'empty').mkdir(),
    ),
    Row(
        'prediction into a folder with files',
        'predict.py tiny.py good.pth data/val --out data',
        r'--out: data must be a new or an empty folder',
    ),
    Row(
        'prediction of a broken picture',
        'predict.py tiny.py good.pth data/val --out a',
        r'cannot use data/val/cat/0\.png: failed to load image(.|\n)*error: 1 of 4 inputs cannot be used',
        write('data/val/cat/0.png', 'no image'),
        status=65,
    ),
    Row(
        'prediction by a broken checkpoint',
        'predict.py tiny.py bad.pth data/val --out a',
        r'bad\.pth is truncated or no checkpoint',
        both(changed(lambda content: None), cut('bad.pth', 1000)),
        status=66,
    ),
    Row(
        'prediction on a device that is not there',
        'predict.py tiny.py good.pth data/val --out a --device nowhere',
        r'--device nowhere: cannot be used .*expected cpu',
    ),
    Row(
        'prediction with a score above 1',
        'predict.py tiny.py good.pth data/val --out a --score-thr 50',
        r'--score-thr 50\.0: expected 0 to 1',
    ),
    Row(
        'prediction without pictures in a batch',
        'predict.py tiny.py good.pth data/val --out a --batch-size 0',
        r'--batch-size 0: expected at least 1',
    ),
    Row(
        'prediction without a test pipeline',
        'predict.py child.py good.pth data/val --out a',
        r'child\.py: no test_dataloader',
        child('test_dataloader = test_cfg = test_evaluator = None'),
    ),
    Row(
        'report over a file',
        'microscope.py tiny.py good.pth data/val/cat/0.png --out a.html',
        r'--out: a\.html exists and is not overwritten: choose another name',
        write('a.html', ''),
    ),
    Row(
        'report with another ending',
        'microscope.py tiny.py good.pth data/val/cat/0.png --out a.pdf',
        r'--out: a\.pdf must end in \.html',
    ),
    Row(
        'report of no images',
        'microscope.py tiny.py good.pth data/val --out a.html',
        r'IMAGE: data/val is a folder: name a few images in it',
    ),
    Row(
        'report of an image that is not there',
        'microscope.py tiny.py good.pth data/val/cat/7.png --out a.html',
        r'IMAGE: no such file: data/val/cat/7\.png',
    ),
    Row(
        'report of a file that is no image',
        'microscope.py tiny.py good.pth tiny.py --out a.html',
        r'IMAGE: tiny\.py is no image, of \.jpg',
    ),
    Row(
        'report of a broken image',
        'microscope.py tiny.py good.pth data/val/cat/0.png --out a.html --device cpu',
        r'data/val/cat/0\.png: ',
        cut('data/val/cat/0.png', 60),
    ),
    Row(
        'report without a baseline checkpoint',
        'microscope.py tiny.py good.pth data/val/cat/0.png --baseline tiny.py god.pth --out a.html',
        r'--baseline: no such checkpoint: god\.pth \(did you mean good\.pth\?\)',
    ),
    Row(
        'report against a baseline of another task',
        'microscope.py tiny.py good.pth data/val/cat/0.png --baseline mask.py good.pth --out a.html',
        r'--baseline: its task is detection and that of the model classification: expected one task',
    ),
    Row(
        'report against a baseline of another image size',
        'microscope.py tiny.py good.pth data/val/cat/0.png --baseline child.py good.pth --out a.html --device cpu '
        '--allow-changes',
        r'--baseline: .*0\.png becomes an image of 24x24 and 16x16 in the two test pipelines',
        child(f'test_dataloader = dict(dataset=dict(pipeline={PIPELINE.replace("(16, 16)", "(24, 24)")}))'),
    ),
    Row(
        'report of no size',
        'microscope.py tiny.py good.pth data/val/cat/0.png --max-mb inf --out a.html',
        r'--max-mb inf: expected a number above 0',
    ),
    Row(
        'report that cannot be so small',
        'microscope.py tiny.py good.pth data/val/cat/0.png --max-mb 0.03 --out a.html --device cpu',
        r'--max-mb leaves 0 bytes for maps, too few even for .*: name fewer images, or raise --max-mb',
    ),
    Row(
        'analysis by an unknown measure',
        'analyze.py tiny.py good.pth --out a --measures entropi',
        r"--measures entropi: there is no 'entropi': did you mean entropy\?",
    ),
    Row(
        'analysis by a measure that does not apply',
        'analyze.py tiny.py good.pth --out a --measures cka_baseline --device cpu',
        r'--measures cka_baseline: does not apply to the model: .* name one with --baseline',
    ),
    Row(
        'analysis by an unknown estimator of CKA',
        'analyze.py tiny.py good.pth --out a --cka paper',
        r"argument --cka: invalid choice: 'paper'",
    ),
    Row(
        "a paper's estimator of CKA without its images",
        'analyze.py tiny.py good.pth --out a --cka paper-bvit --device cpu',
        r'--cka paper-bvit: does not apply: it needs 1000 images of one size, there are \d+; --num sets how many',
    ),
    Row(
        'estimator of CKA without CKA',
        'analyze.py tiny.py good.pth --out a --measures entropy --cka paper-refiner',
        r'--cka paper-refiner: none of --measures entropy is of CKA: add one of cka, cka_baseline, evolving_speed',
    ),
    Row(
        'analysis of no images',
        'analyze.py tiny.py good.pth --out a --num 0',
        r'--num 0: expected at least 1',
    ),
    Row(
        'analysis of a folder without images',
        'analyze.py tiny.py good.pth --out a --images empty',
        r'--images: empty has no image in it, of \.jpg',
        lambda folder: (folder / 'empty').mkdir(),
    ),
    Row(
        'analysis of images that are not there',
        'analyze.py tiny.py good.pth --out a --images vall',
        r'--images: no such file or folder: vall; or name a split, val or test',
    ),
    Row(
        'analysis of a split that the config does not have',
        'analyze.py child.py good.pth --out a',
        r'--images val: child\.py has no val_dataloader; name a folder',
        child('val_dataloader = val_cfg = val_evaluator = None'),
    ),
    Row(
        'analysis of a broken image',
        'analyze.py tiny.py good.pth --out a --measures token_norms --device cpu',
        r'cannot use data/val/cat/0\.png: failed to load image(.|\n)*error: 1 of 4 images cannot be used',
        write('data/val/cat/0.png', 'no image'),
        status=65,
    ),
    Row(
        'analysis into a folder with files',
        'analyze.py tiny.py good.pth --out data',
        r'--out: data holds other files, or is one',
    ),
    Row(
        'analysis into the folder of another analysis',
        'analyze.py tiny.py good.pth --out a --measures token_norms --device cpu',
        r'--out: a is of another analysis \(vitplug: .*: choose another folder',
        both(lambda folder: (folder / 'a').mkdir(), write('a/study.json', '{"vitplug": "0"}')),
    ),
    Row(
        'analysis against a baseline without checkpoint',
        'analyze.py tiny.py good.pth --out a --baseline tiny.py nowhere.pth',
        r'--baseline: no such checkpoint: nowhere\.pth',
    ),
    Row(
        "analysis of another library's backbone",
        'analyze.py child.py good.pth --out a --allow-changes --device cpu',
        r"child\.py: model\.backbone is a VisionTransformer, .*: expected one of vitplug's",
        child("model = dict(backbone=dict(type='mmpretrain.VisionTransformer'))"),
    ),
    Row(
        'receptive field of no model',
        'erf.py --out a',
        r'no model: name CONFIG and CHECKPOINT, or a model of timm by --timm NAME',
    ),
    Row(
        'receptive field of two models',
        'erf.py tiny.py good.pth --timm test_vit --out a',
        r'--timm test_vit is the model: leave CONFIG and CHECKPOINT out',
    ),
    Row(
        'receptive field with a checkpoint for timm alone',
        'erf.py tiny.py good.pth --checkpoint good.pth --out a',
        r'--checkpoint is that of --timm',
    ),
    Row(
        'receptive field of an unknown model of timm',
        'erf.py --timm vit_smal_patch16_224 --images data/val --out a',
        r'--timm vit_smal_patch16_224: timm has no such model; close: .*vit_small_patch16_224',
    ),
    Row(
        'receptive field of a model of timm over a split',
        'erf.py --timm test_vit --out a',
        r'--images val: --timm has no data set: name a folder of images',
    ),
    Row(
        'receptive field of a model of timm with weights of another',
        'erf.py --timm test_vit --checkpoint good.pth --images data/val --out a',
        r'--checkpoint: good\.pth does not fit the model: ',
    ),
    Row(
        'receptive field without what the model does not have',
        'erf.py tiny.py good.pth --reset table --out a --device cpu',
        r"reset 'table': VisionTransformer has no parameters for it .*it has some for: ape, ape-random",
    ),
    Row(
        'receptive field over images of no size',
        'erf.py tiny.py good.pth --size 0 16 --out a',
        r'--size 0 16: expected height and width in pixels',
    ),
    Row(
        'receptive field over no images',
        'erf.py tiny.py good.pth --num 0 --out a',
        r'--num 0: expected at least 1',
    ),
    Row(
        'receptive field into a folder with files',
        'erf.py tiny.py good.pth --out data',
        r'--out: data holds other files, or is one',
    ),
    Row(
        'receptive field over a broken image',
        'erf.py tiny.py good.pth --out a --device cpu',
        r'cannot use data/val/cat/0\.png: failed to load image(.|\n)*error: 1 of 4 images cannot be used',
        write('data/val/cat/0.png', 'no image'),
        status=65,
    ),
    Row(
        'prediction by a model with other heads',
        'predict.py child.py good.pth data/val --out a',
        r'good\.pth was trained with other settings .*num_heads was 2, is 4',
        child('model = dict(backbone=dict(arch=dict(num_heads=4)))'),
        status=66,
    ),
    Row(
        'values of plugs where there are none',
        'plug_values.py good.pth',
        r'good\.pth has 0 backbones with plugs in its config',
    ),
    Row(
        'values of plugs that learn nothing',
        'plug_values.py good.pth --config child.py',
        r"its plugs, \['cb'\], have no learned alpha",
        child("model = dict(backbone=dict(plugs=[dict(type='ContextBroadcast')]))"),
    ),
    Row(
        'values of a plug that is not known',
        'plug_values.py bad.pth',
        r"type='os\.system'.*name its module|plugs\.0\.type = 'os\.system': no class of",
        trained_with(
            "type='vitplug.VisionTransformer'", "plugs=[dict(type='os.system')], type='vitplug.VisionTransformer'"
        ),
    ),
    Row(
        'plot of values over a file',
        'plug_values.py good.pth --out a.png',
        r'--out: a\.png exists and is not overwritten',
        write('a.png', 'precious'),
    ),
    Row(
        'residual attention on one block',
        'train.py child.py',
        r'ResidualAttention: layers=\[1\] changes nothing: no block of \[1\] has scores of an earlier one',
        child("model = dict(backbone=dict(plugs=[dict(type='ResidualAttention', layers=[1])]))"),
    ),
    Row('unknown keys to convert to', 'convert.py good.pth a.pth --to keras', r"--to: invalid choice: 'keras'"),
    Row(
        'conversion into a file that exists',
        'convert.py good.pth tiny.pth',
        r'tiny\.pth exists and is not overwritten',
        write('tiny.pth', 'precious'),
    ),
    Row(
        'conversion into a file of another kind',
        'convert.py good.pth a.npz',
        r"a\.npz: unknown suffix '\.npz'; choose from",
    ),
    Row('conversion into a missing folder', 'convert.py good.pth nowhere/a.pth', r'there is no folder nowhere'),
    Row(
        'conversion of keys that are not there',
        'convert.py good.pth a.pth --prefix nothing.',
        r"good\.pth: .*'?nothing\.",
    ),
    Row(
        'publishing into a file that exists',
        'publish_model.py good.pth a.pth',
        r'a\.pth exists and is not overwritten',
        write('a.pth', 'precious'),
    ),
    Row(
        'publishing plain weights that are not there',
        'publish_model.py good.pth a.pth --no-ema',
        r'good\.pth has no plain weights',
    ),
    Row(
        'report into a file that exists',
        f'{CLASSIFY} --report tiny.py',
        r'--report: tiny\.py exists and is not overwritten',
    ),
    Row('report into a missing folder', f'{CLASSIFY} --report nowhere/a', r'--report: .*no folder nowhere'),
    Row('check with no thread', f'{CLASSIFY} --workers 0', r'--workers 0: expected at least 1'),
    Row('check of an unknown split', 'check_dataset.py tiny.py --splits dev', r"--splits: invalid choice: 'dev'"),
    Row('images of size 0', 'get_flops.py tiny.py --shape 0', r'--shape 0: expected height and width'),
    Row('batch of 0', 'get_flops.py tiny.py --batch 0', r'--batch 0: expected at least 1'),
    Row('neither a config nor two to compare', 'print_config.py', r'expected a config file or --diff BASE CHILD'),
    Row('comparison with a missing config', 'print_config.py --diff tiny.py tinny.py', r'no such config: tinny\.py'),
    Row('config of an unknown library', 'get_flops.py mmpose::a/b.py', r"mmpose::a/b\.py: .*'mmpose' are not known"),
    Row('missing config of a library', 'train.py mmdet::swin/nothing.py', r'no such config: .*swin/nothing\.py'),
    Row(
        'costs of a detector with queries',
        'get_flops.py mmdet::detr/detr_r50_8xb2-150e_coco.py',
        r'the DETR cannot be run on images of 800x1333: .*; supported are classifiers',
    ),
    Row(
        'pictures of an augmented test',
        'test.py tiny.py good.pth --tta --show-dir pictures',
        r'--show-dir: mmpretrain cannot draw what --tta merges',
    ),
    Row(
        'augmented test of data that loads no image',
        'test.py child.py good.pth --tta',
        r'--tta: no step of the test pipeline loads an image \(PackInputs\): set tta_pipeline',
        child("test_dataloader = dict(dataset=dict(pipeline=[dict(type='PackInputs')]))"),
    ),
    Row(
        'table into another document',
        'model_table.py --out notes.md',
        r'notes\.md: exists and is not a table of models',
        write('notes.md', 'mine'),
    ),
    Row('demo of a misspelt task', 'demo.py --task detction', r"'detction' is no task: .*did you mean 'detection'\?"),
    Row('demo of no task', "demo.py --task ''", r"'' names no task: expected classification, segmentation, detection"),
    Row('measuring no rounds', 'benchmark.py --rounds 0', r'--rounds 0 .*expected positive numbers'),
    Row('digits with fewer images than classes', 'make_digit_scenes.py --out digits --num-cls-train 3', r'3'),
    Row('digits into a folder with other files', 'make_digit_scenes.py --out data', r'data.* must be new, empty or'),
    Row(
        "Fashion-MNIST's files in another folder",
        'fashion_mnist.py --source data --out fashion',
        r'no train-images-idx3-ubyte\.gz in .*data: they are in the package dataset-fashion-mnist',
        status=1,
    ),
    Row(
        'garments without photographs',
        'make_garment_scenes.py --fashion-mnist data --out garments',
        r'no train-images-idx3-ubyte\.gz, nor train-images-idx3-ubyte, in .*data',
        status=1,
    ),
    Row('garments with no scenes', 'make_garment_scenes.py --num-val 0', r'num_scenes \(val\) = 0: must be .* >= 1'),
    Row(
        'lists of a missing data set',
        'pooled_splits.py dogs nowhere',
        r'no such folder: .*nowhere/Images; unpack images',
        status=1,
    ),
    Row('lists of an unknown data set', 'pooled_splits.py birds nowhere', r"invalid choice: 'birds'"),
    Row(
        'experiment with a plug of another name',
        f'{NEW} --data data --plugs gap',
        r"--plugs: 'gap' in 'gap' is unknown: choose from none, broad, cb, gab, .*did you mean gab\?",
    ),
    Row('experiment with a plug twice', f'{NEW} --data data --plugs gab,gab', r'GaussianAttentionBias.*more than once'),
    Row('experiment of no epochs', f'{NEW} --data data --epochs 0', r'--epochs 0: expected at least 1'),
    Row(
        'experiment with a batch of all images and more',
        f'{NEW} --data data --batch-size 1000',
        r'--batch-size 1000: expected 1 to \d+, the number of training images',
    ),
    Row('experiment at no rate', f'{NEW} --data data --lr nan', r'--lr nan: expected a number above 0'),
    Row(
        'experiment with names for named classes', f'{NEW} --data data --classes a,b', r'only label maps have no names'
    ),
    Row(
        'experiment on weights that are missing',
        f'{NEW} --data data --pretrained god.pth',
        r'--pretrained: no such checkpoint: god\.pth \(did you mean good\.pth',
    ),
    Row(
        'experiment on a config that a library lacks',
        f'{NEW} --data data --base mmdet::swin/nothing.py',
        r'no such config: .*swin/nothing\.py',
    ),
    Row(
        'experiment on a config of an unknown library',
        f'{NEW} --data data --base nothing::swin/a.py',
        r"nothing::swin/a\.py: configs of 'nothing' are not known by name; known are mmpretrain, mmdet, mmseg, vitplug",
    ),
    Row(
        'experiment on a backbone without sockets',
        f'{NEW} --data data --base mmpretrain::resnet/resnet18_8xb32_in1k.py',
        r"its backbone 'ResNet' takes no plugs: choose a config with a ViT or Swin",
    ),
    Row(
        'experiment on a config of another task',
        f'{NEW} --data data --base mmdet::swin/retinanet_swin-t-p4-w7_fpn_1x_coco.py',
        r'is a config of mmdet; the task needs one of mmpretrain',
    ),
    Row(
        'experiment on a part of a config',
        f'{NEW} --data data --base vitplug::_base_/default_runtime_mmpretrain.py',
        r'has no model, train_dataloader, .*name the config of a whole training',
    ),
    Row(
        'experiment into a config that exists',
        f'{NEW} --data data',
        r'--out: my\.py exists and is not overwritten',
        write('my.py', 'precious'),
    ),
    Row('experiment into a missing folder', f'{NEW} --data data --out no/my.py', r'there is no folder no; make it'),
    Row('experiment into a file of another kind', f'{NEW} --data data --out my.yml', r'my\.yml must end in \.py'),
)


def copied(*names: str, source: str = 'good.pth') -> Make:
    """Puts copies of a file there, each newer than the one before."""

    def make(folder: Path) -> None:
        for second, name in enumerate(names):
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(folder / source, folder / name)
            os.utime(folder / name, (second, second))

    return make


def noted(name: str) -> Make:
    """Lets the work dir name its last checkpoint."""
    return lambda folder: (folder / 'work/last_checkpoint').write_text(name)


def linked(name: str, target: str = 'tiny.py') -> Make:
    """Puts a link into the work dir, to a file that is none of a training's."""

    def make(folder: Path) -> None:
        (folder / 'work').mkdir(exist_ok=True)
        (folder / 'work' / name).symlink_to(folder / target)

    return make


def recorded(**records) -> Make:
    """Lets the records in a checkpoint say otherwise."""
    return changed(lambda content: content['message_hub']['runtime_info'].update(records) and None)


SAVE_BEST = 'train_cfg.max_epochs=2 default_hooks.checkpoint.save_best=accuracy/top1'
RESUME = 'train.py tiny.py --resume'
RUN_FOLDERS = (
    Row(
        'resume from a checkpoint that names a folder as its best one',
        f'{RESUME} bad.pth --cfg-options {SAVE_BEST}',
        r"best_ckpt = 'data/train'.*left as it is",
        recorded(best_ckpt='data/train', best_score=-1.0),
        0,
    ),
    Row(
        'resume from a checkpoint that names a file outside as its best one',
        f'{RESUME} work/start.pth --cfg-options {SAVE_BEST}',
        r"best_ckpt = 'good\.pth'.*left as it is",
        both(recorded(best_ckpt='good.pth', best_score=-1.0), copied('work/start.pth', source='bad.pth')),
        0,
    ),
    Row(
        'resume without a note of the last checkpoint',
        RESUME,
        r'work/last_checkpoint is missing.*the newest good one is .*work/epoch_2\.pth: go on with --resume',
        copied('work/epoch_1.pth', 'work/epoch_2.pth'),
    ),
    Row(
        'resume from a last checkpoint that is cut short',
        RESUME,
        r'epoch_2\.pth is truncated.*the newest good one is .*work/epoch_1\.pth: go on with --resume',
        both(copied('work/epoch_1.pth', 'work/epoch_2.pth'), cut('work/epoch_2.pth', 2000), noted('work/epoch_2.pth')),
        66,
    ),
    Row(
        'resume from an only checkpoint that is cut short',
        RESUME,
        r'epoch_1\.pth is truncated.*no other checkpoint there can be resumed',
        both(copied('work/epoch_1.pth'), cut('work/epoch_1.pth', 2000), noted('work/epoch_1.pth')),
        66,
    ),
    Row(
        'note of the last checkpoint that is no text',
        RESUME,
        r'work/last_checkpoint names a missing file, .*the newest good one is .*work/epoch_1\.pth',
        both(copied('work/epoch_1.pth'), write('work/last_checkpoint', b'\xff\xfe\x00')),
    ),
    Row(
        'resume in the work dir of another training',
        f'{RESUME} good.pth',
        r'work already holds checkpoints',
        copied('work/epoch_1.pth'),
    ),
    Row(
        'folder of checkpoints that two work dirs share',
        _set('default_hooks.checkpoint.out_dir=shared', 'train.py tiny.py --work-dir other/run'),
        r'shared/run already holds checkpoints',
        copied('shared/run/epoch_1.pth'),
    ),
    Row(
        'records of bad samples behind a link', TRAIN, r'work/bad_samples\.jsonl is a link', linked('bad_samples.jsonl')
    ),
    Row('records of losses behind a link', TRAIN, r'work/non_finite\.jsonl is a link', linked('non_finite.jsonl')),
    Row('lock behind a link', TRAIN, r'work/\.training\.lock is a link', linked('.training.lock')),
    Row(
        'results into a file that exists',
        'test.py tiny.py good.pth --out a.pkl',
        r'--out: a\.pkl exists and is not overwritten',
        write('a.pkl', 'precious'),
    ),
    Row(
        'pictures into a folder with files',
        'test.py tiny.py good.pth --show-dir data',
        r'--show-dir: data must be a new or an empty folder',
    ),
    Row(
        'training whose last steps were skipped',
        _set('optim_wrapper.optimizer.lr=1e30', TRAIN),
        r'the last 1 iterations had no finite loss or gradients',
        status=70,
    ),
    Row(
        'checkpoint behind an address where nobody answers',
        _set('load_from=http://127.0.0.1:9/a.pth', TRAIN),
        r'http://127\.0\.0\.1:9/a\.pth cannot be downloaded: .*refused',
        status=66,
    ),
)


def categories(*names: str, name: str = 'coco/train.json') -> Make:
    """A COCO file with other categories."""
    content = coco_file() | dict(categories=[dict(id=number, name=name) for number, name in enumerate(names, 1)])
    return write(name, json.dumps(content))


def encoded(encoding: str) -> Make:
    """A sound COCO file in an encoding that its readers do not take."""
    return write('coco/train.json', json.dumps(coco_file()).encode(encoding))


def without_classes(folder: Path) -> None:
    """A config for data of one's own that names no classes, so that those of COCO count."""
    settings = 'train_dataloader = dict(dataset=dict(metainfo=dict(_delete_=True)))'
    (folder / 'child.py').write_text(f"_base_ = 'mask.py'\n{settings}\n")


COLOURS = both(*(picture(f'ade/maps/{number}.png', np.zeros((16, 20, 3), np.uint8)) for number in '01'))
EVALUATED = both(
    write(
        'evaluated.py',
        "_base_ = 'mask.py'\nval_evaluator = dict(_delete_=True, type='CocoMetric', ann_file='coco/val.json')\n"
        'val_dataloader = dict(_delete_=True, dataset={{_base_.train_dataloader.dataset}})\n',
    ),
    write('coco/val.json', json.dumps(coco_file())),
)
CLASSES = (
    Row(
        'head for other classes',
        _set('model.head.num_classes=80', TRAIN),
        r'model\.head\.num_classes = 80: set it to 2',
    ),
    Row(
        'head for other classes, in a test',
        _set('model.head.num_classes=80', 'test.py tiny.py good.pth'),
        r"2 classes \(test_dataloader\..*'cat', 'dog'\): model\.head\.num_classes = 80: set it to 2",
    ),
    Row(
        'head for other classes, checked',
        _set('model.head.num_classes=80', CLASSIFY),
        r'settings for other classes than the 2 of the data\n.*model\.head\.num_classes \(= 80: set it to 2',
        status=1,
    ),
    Row(
        'several counts left over from another data set',
        'train.py child.py',
        r'data_preprocessor\.num_classes = 1000: set it to 2; .*num_classes = 1000: set it to 2; val_evaluator\.topk',
        child(
            'model = dict(data_preprocessor=dict(num_classes=1000), head=dict(num_classes=1000))\n'
            "val_evaluator = dict(type='Accuracy', topk=(1, 5))"
        ),
    ),
    Row(
        'class weights of another data set',
        'train.py child.py',
        r'model\.head\.loss\.class_weight has 11 entries: give it 2',
        child("model = dict(head=dict(loss=dict(type='CrossEntropyLoss', class_weight=[1.0] * 11)))"),
    ),
    Row(
        'detection heads for other classes',
        _set('model.roi_head.bbox_head.num_classes=80', 'train.py mask.py'),
        r'model\.roi_head\.bbox_head\.num_classes = 80: set it to 2$',
    ),
    Row(
        'classes without a comma',
        'train.py child.py',
        r"metainfo\.classes = 'cat': expected a list of names.*\('cat',\)",
        child("train_dataloader = dict(dataset=dict(metainfo=dict(classes=('cat'))))"),
    ),
    Row(
        'folder that is none of a class',
        TRAIN,
        r"data/train has 3 folders for 2 classes .*no class for '\.ipynb_checkpoints'",
        lambda folder: (folder / 'data/train/.ipynb_checkpoints').mkdir(),
    ),
    Row(
        'validation folders of other classes',
        TRAIN,
        r"val_dataloader\.dataset has other classes: label 1 is 'eel' here and 'dog' in train_dataloader",
        lambda folder: (folder / 'data/val/dog').rename(folder / 'data/val/eel'),
    ),
    Row(
        'COCO file without metainfo',
        'train.py child.py',
        r"coco/train\.json has the categories 'cat', 'dog', .*set train_dataloader\.dataset\.metainfo = "
        r"dict\(classes=\('cat', 'dog'\)\)",
        without_classes,
    ),
    Row(
        'COCO file without metainfo, checked',
        'check_dataset.py child.py --splits train',
        r"has the categories 'cat', 'dog', and 78 of the 80 classes",
        without_classes,
        1,
    ),
    Row(
        'category with a slip in its name',
        'train.py mask.py',
        r"'dog' not among the categories of coco/train\.json: did you mean 'dgo'",
        categories('cat', 'dgo'),
    ),
    Row(
        'category with a slip in its name, checked',
        DETECT,
        r"did you mean 'dgo' in place of 'dog'",
        categories('cat', 'dgo'),
        1,
    ),
    Row(
        'categories in another order than the classes',
        'train.py mask.py',
        r"another order.*set train_dataloader\.dataset\.metainfo = dict\(classes=\('dog', 'cat'\)\)",
        categories('dog', 'cat'),
    ),
    Row(
        'categories that are left out on purpose',
        DETECT,
        r"1 x categories left out\n.*categories 'eel' are no classes of the data set and are left out",
        categories('cat', 'eel', 'dog'),
        0,
    ),
    Row(
        'categories that are left out on purpose, in a training',
        'train.py mask.py',
        r"categories 'eel' are no classes of the data set and are left out",
        categories('cat', 'eel', 'dog'),
        0,
    ),
    Row(
        'renamed categories in what a metric reads',
        'train.py evaluated.py',
        r"coco/val\.json has the categories 'katze', 'hund', and 2 of the 2 classes",
        both(EVALUATED, categories('katze', 'hund', name='coco/val.json')),
    ),
    Row(
        'category that is missing in what a metric reads',
        'train.py evaluated.py',
        r"'dog' not among the categories of coco/val\.json",
        both(EVALUATED, categories('cat', name='coco/val.json')),
    ),
    Row(
        'annotations behind an address where nobody answers',
        _set('train_dataloader.dataset.ann_file=http://127.0.0.1:9/a.txt', TRAIN),
        r'http://127\.0\.0\.1:9/a\.txt cannot be read: .*refused',
    ),
    Row(
        'annotations behind an address where nobody answers, checked',
        _set('train_dataloader.dataset.ann_file=http://127.0.0.1:9/a.json', DETECT),
        r'http://127\.0\.0\.1:9/a\.json cannot be read: .*refused',
        status=1,
    ),
    Row(
        'COCO file in UTF-16', DETECT, r'not valid JSON: .*coco/train\.json \(it is not in UTF-8', encoded('utf-16'), 1
    ),
    Row(
        'COCO file with a byte order mark',
        'train.py mask.py',
        r'not valid JSON: .*coco/train\.json \(it begins with a byte order mark',
        encoded('utf-8-sig'),
    ),
    Row('COCO file that is a number', DETECT, r'file holds a int, expected a dict', write('coco/train.json', '7'), 1),
    Row(
        'label maps of colours',
        SEGMENT,
        r'2 x label map of several channels: expected one channel .*\n.*3 channels',
        COLOURS,
        1,
    ),
    Row(
        'missing data of your own in a config that inherits the digits',
        'train.py mask.py',
        r'no such data folder: .*coco/train$',
        remove('coco/train'),
    ),
    Row(
        'schedule longer than the training',
        'train.py child.py',
        r'param_scheduler\.0 \(LinearLR\) ends after 20 epochs, the training after 1: set param_scheduler',
        child("param_scheduler = [dict(type='LinearLR', by_epoch=True, end=20)]"),
        0,
    ),
)

ABLATE = 'ablate.py tiny.py --plugs none cb --seeds 1 --out grid'


def grid(text: str, name: str = 'grid.py') -> Make:
    """Puts a grid file there that begins with the tiny classifier."""
    return write(name, f"base = 'tiny.py'\n{text}\n")


def grid_folder(**content) -> Make:
    """Puts the folder of a grid there whose `grid.json` has other entries."""
    entries = dict(base='tiny.py', metric='accuracy/top1', plugs=['none'], seeds=[0], labels=['none'], baseline='none')

    def make(folder: Path) -> None:
        (folder / 'grid').mkdir()
        (folder / 'grid/grid.json').write_text(json.dumps(entries | dict(greater_is_better=True) | content))

    return make


def trained_cell(folder: Path) -> None:
    """Puts the folder of a grid there with a cell of another config."""
    grid_folder()(folder)
    cell = folder / 'grid/cells/none_seed0_0123456789'
    cell.mkdir(parents=True)
    (cell / 'cell.json').write_text(json.dumps(dict(label='none', seed=0, hash='0123456789')))


ABLATION = (
    Row(
        'ablation of an unknown plug',
        'ablate.py tiny.py --plugs none gabb --out grid',
        r"--plugs: 'gabb' in 'gabb' is unknown: choose from none, .*broad, .*did you mean gab\?",
    ),
    Row(
        'ablation of plugs that cannot be read',
        "ablate.py tiny.py --plugs none 'gab+' --out grid",
        r"--plugs: 'gab\+' cannot be read: expected a text such as",
    ),
    Row(
        'ablation of a plug with an unknown argument',
        "ablate.py tiny.py --plugs none 'residual(alfa=0.25)' --out grid",
        r"--plugs: 'residual\(alfa=0\.25\)': plugs: ResidualAttention has no argument \['alfa'\]; it takes",
    ),
    Row(
        'ablation of a plug with a wrong value',
        "ablate.py tiny.py --plugs none 'residual(alpha=2)' --out grid",
        r"--plugs: 'residual\(alpha=2\)': plugs: ResidualAttention: alpha",
    ),
    Row(
        'ablation of a plug with a value that is no plain one',
        "ablate.py tiny.py --plugs none 'residual(layers=upper)' --out grid",
        r"--plugs: layers=upper in 'residual\(layers=upper\)': expected a plain value; put quotes around text",
    ),
    Row(
        'ablation of plugs that do not go together',
        'ablate.py tiny.py --plugs none residual+residual --out grid',
        r'residual\+residual: .*ResidualAttention occurs more than once',
    ),
    Row(
        'ablation of plugs that a host refuses',
        'ablate.py child.py --plugs none cb --out grid',
        r"child\.py: its backbone 'ResNet' takes no plugs: choose a config with one of vitplug",
        child("model = dict(backbone=dict(_delete_=True, type='ResNet', depth=18))"),
    ),
    Row(
        'ablation with a plug named twice',
        'ablate.py tiny.py --plugs none cb cb --out grid',
        r'plugs: cb occurs twice',
    ),
    Row(
        'ablation with a seed named twice', 'ablate.py tiny.py --plugs none --seeds 1,1 --out grid', r'seeds: 1 occurs'
    ),
    Row(
        'ablation with seeds that are no numbers',
        'ablate.py tiny.py --plugs none --seeds many --out grid',
        r"seeds: 'many': expected how many there are, such as 5",
    ),
    Row(
        'ablation by a metric that no validation gives',
        f'{ABLATE} --metric accuracy/top2',
        r"--metric: no validation gives 'accuracy/top2'; there are accuracy/top1, loss/cross_entropy; "
        r'did you mean accuracy/top1\?',
    ),
    Row(
        'ablation of a config without validation',
        'ablate.py child.py --plugs none cb --out grid',
        r'child\.py: has no validation',
        child('val_dataloader = val_cfg = val_evaluator = None'),
    ),
    Row(
        'ablation against an unknown baseline',
        f'{ABLATE} --baseline non',
        r"--baseline: 'non' is none of the variants none, cb; did you mean none\?",
    ),
    Row(
        'ablation of a config without hooks that make a training repeatable',
        'ablate.py child.py --plugs none cb --out grid',
        r'default_hooks\.randomness is no vitplug\.RandomnessHook',
        child('default_hooks = dict(_delete_=True)'),
    ),
    Row(
        'ablation into a folder with files',
        'ablate.py tiny.py --plugs none cb --out data',
        r'--out: data is no folder of a grid and not empty',
    ),
    Row(
        'ablation into the folder of another grid',
        ABLATE,
        r'--out: grid is the folder of another grid, with base other\.py: choose another one',
        grid_folder(base='other.py'),
    ),
    Row(
        'ablation into the folder of a grid by another metric',
        ABLATE,
        r'--out: grid is the folder of another grid, which compares by accuracy/top5, not accuracy/top1',
        grid_folder(metric='accuracy/top5'),
    ),
    Row(
        'ablation into a folder with cells of another config',
        ABLATE,
        r'grid/cells/none_seed0_0123456789 is of another grid: none with seed 0 had other settings there',
        trained_cell,
    ),
    Row(
        'ablation without the folder of a grid to report on',
        'ablate.py data --report',
        r'data has no grid\.json: name the folder of a grid',
    ),
    Row(
        'ablation of a folder without a grid',
        'ablate.py data',
        r'data has no grid\.json: name a config, a grid file or the folder of a grid',
    ),
    Row(
        'ablation of a broken folder of a grid',
        'ablate.py grid',
        r'grid/grid\.json cannot be read',
        both(grid_folder(), write('grid/grid.json', '{')),
    ),
    Row('ablation on no jobs', f'{ABLATE} --jobs 0', r'--jobs 0: expected at least 1'),
    Row(
        'ablation with an option of another engine',
        f'{ABLATE} --engine ray --partition gpu',
        r'--partition gpu: not an option of --engine ray; leave it away, or choose --engine slurm',
    ),
    Row(
        'ablation with GPUs for each cell on this machine',
        f'{ABLATE} --gpus 2',
        r'--gpus 2: not an option of --engine local; leave it away, or choose --engine slurm or ray',
    ),
    Row(
        'ablation on less than no GPU',
        f'{ABLATE} --engine slurm --gpus -1',
        r'--gpus -1: expected at least 0',
    ),
    Row(
        'ablation with a time limit that is none',
        f'{ABLATE} --engine slurm --time soon',
        r'--time soon: expected minutes, H:MM:SS or D-H:MM:SS, at least one minute',
    ),
    Row(
        'grid file with an unknown name',
        'ablate.py grid.py --out grid',
        r'grid\.py: seed is unknown: choose from base, axes, .*; did you mean seeds\?',
        grid('seed = 3'),
    ),
    Row(
        'grid file with an axis without values',
        'ablate.py grid.py --out grid',
        r'grid\.py: axes: optim_wrapper\.optimizer\.lr has no values',
        grid("axes = {'optim_wrapper.optimizer.lr': []}"),
    ),
    Row(
        'grid file with a key that the config does not have',
        'ablate.py grid.py --out grid',
        r"axes: optim_wrapper\.optimiser\.lr: .*tiny\.py has no 'optimiser' in optim_wrapper; did you mean 'optimizer'",
        grid("axes = {'optim_wrapper.optimiser.lr': [0.1]}"),
    ),
    Row(
        'grid file with an argument that the class does not take',
        'ablate.py grid.py --out grid',
        r"axes: model\.backbone\.drop_path: .*has no 'drop_path' in model\.backbone; did you mean 'drop_path_rate'",
        grid("axes = {'model.backbone.drop_path': [0.1]}"),
    ),
    Row(
        'grid file with a value that the model refuses',
        'ablate.py grid.py --out grid',
        r'patch_size=-8: img_size=16, patch size -8, .*expected positive integers',
        grid("axes = {'model.backbone.patch_size': [8, -8]}"),
    ),
    Row(
        'grid file with two variants alike',
        'ablate.py grid.py --out grid',
        r"the variants 'num_workers=0' and 'num_workers=2' are alike \(only train_dataloader\.num_workers differs",
        grid("axes = {'train_dataloader.num_workers': [0, 2]}"),
    ),
    Row(
        'grid file with seeds as an axis',
        'ablate.py grid.py --out grid',
        r'axes: randomness\.seed: write seeds = \[\.\.\.\] in its place',
        grid("axes = {'randomness.seed': [0, 1]}"),
    ),
    Row(
        'grid file and plugs on the command line',
        'ablate.py grid.py --plugs cb --out grid',
        r'--plugs: grid\.py says this itself; change it there',
        grid("plugs = ['none', 'cb']"),
    ),
    Row(
        'grid file that fails',
        'ablate.py grid.py --out grid',
        r'grid\.py is no grid \(ZeroDivisionError\)',
        grid('seeds = 1 / 0'),
    ),
)

ROWS = {
    'data': DATA,
    'class': CLASSES,
    'config': CONFIG,
    'checkpoint': CHECKPOINT,
    'argument': ARGUMENT,
    'run folder': RUN_FOLDERS,
    'ablation': ABLATION,
}

# --- the document ---

COMMAND = 'python tests/bad_inputs.py --out docs/bad_input.md'
PREAMBLE = f"""# Bad inputs and what they give

Written by

    {COMMAND}

which runs every command of the tables on tiny data and notes what it prints. The tools are in `tools/` and the
folders below it. *Status* is the exit status: 2 is a wrong setting; 1 bad data that `check_dataset.py` has found; 65
bad data, 66 an unreadable checkpoint, 69 a process that is gone, 70 a loss that is not finite, 71 a dead worker of a
loader, 74 that nothing can be written and 75 a signal in a training or a test; 0 means that the input is handled, and
counted in the log. Long lines are cut short here, and the names of log files, which hold the tracebacks, are left out.
`tests/test_bad_inputs.py` runs all of them as tests and also compares the files before and after: none is changed."""
LONGEST = 260


def said(row: Row, outcome: Outcome, folder: Path) -> str:
    """The lines of an outcome that the row is about, without the folder, on one line."""
    told = outcome.err if re.search(row.error, outcome.err) else outcome.out
    text = told.replace(f'{folder}/', '').replace(sys.prefix, '.venv').replace(f'{ROOT}/', '')
    found = re.search(row.error, text)
    start = text.rfind('\n', 0, found.start()) + 1
    end = text.find('\n', found.end())
    line = ' '.join(text[start : end if end >= 0 else None].split())
    line = re.sub(r'^(\S+: )?error: |^.* - mmengine - \w+ - | \(more in [^)]*\)', '', line)
    return line if len(line) <= LONGEST else f'{line[:LONGEST]} ...'


def _cell(text: str) -> str:
    return text.replace('|', '\\|').replace('<', '&lt;')


def document() -> str:
    """The tables, Markdown."""
    parts = [PREAMBLE]
    for kind, rows in ROWS.items():
        lines = [f'## {kind.capitalize()}', '', '| input | command | status | what is said |', '|---|---|---|---|']
        for row in rows:
            with tempfile.TemporaryDirectory() as name:
                folder = prepare(Path(name).resolve())
                row.make(folder)
                outcome = run(row.command, folder)
                cells = (row.title, f'`{row.command}`', str(outcome.status), said(row, outcome, folder))
                lines.append(f'| {" | ".join(map(_cell, cells))} |')
        parts.append('\n'.join(lines))
    return '\n\n'.join(parts) + '\n'


def main() -> None:
    parser = argparse.ArgumentParser(description='Write the table of bad inputs and what they give.')
    parser.add_argument('--out', type=Path, required=True, metavar='MD')
    args = parser.parse_args()
    torch.set_num_threads(1)
    try:
        args.out.write_text(document())
    finally:
        clean()


if __name__ == '__main__':
    main()
