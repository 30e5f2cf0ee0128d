"""How the files of a case are made bad: each function returns one that changes a folder."""

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from mmengine.config import Config
from mmengine.registry import MODELS, DefaultScope
from PIL import Image

from bad_inputs.folder import coco_file
from bad_inputs.running import own_process

Make = Callable[[Path], object]


def write(name: str, content: str | bytes) -> Make:
    """Puts a file there."""
    data = content.encode() if isinstance(content, str) else content

    def make(folder: Path) -> None:
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_bytes(data)

    return make


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


def backbone(settings: str) -> Make:
    """Puts a config there with other settings of the tiny classifier's backbone."""
    return child(f'model = dict(backbone=dict({settings}))')


def plugs(settings: str) -> Make:
    return backbone(f'plugs=[{settings}]')


def host(settings: str) -> Make:
    """Puts a config there with another host in the tiny classifier."""
    return backbone(f'_delete_=True, {settings}')


def swin_v2(settings: str) -> Make:
    arch = 'arch=dict(embed_dims=8, depths=[1, 1], num_heads=[2, 2]), out_indices=1'
    return host(f"type='vitplug.SwinTransformerV2', **dict({arch}) | dict({settings})")


def t2t(settings: str) -> Make:
    return host(f"type='vitplug.T2T_ViT', embed_dims=8, num_layers=2, {settings}")


def mvit(settings: str) -> Make:
    arch = '' if 'arch' in settings else 'arch=dict(embed_dims=8, num_layers=2, num_heads=1, downscale_indices=[1]), '
    return host(f"type='vitplug.MViT', {arch}{settings}")
