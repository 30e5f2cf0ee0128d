"""Small data, and checkpoints of models that nobody has trained."""

import copy
from collections.abc import Callable
from pathlib import Path

import torch
from mmengine.config import Config
from mmengine.registry import MODELS, DefaultScope
from torch import nn

from vitplug.datasets.digit_scenes import make_digit_scenes

DIGITS = Path(__file__).parents[2] / 'configs' / 'digits'
DETECTION = DIGITS / 'swin-mini-p4-w4-gab_mask-rcnn_1xb8-400i_digits-128x128.py'
SEGMENTATION = DIGITS / 'vit-mini-p8-cb_upernet_1xb8-1200i_digits-128x128.py'


def small_digits(folders, images: tuple[int, int], scenes: tuple[int, int]) -> Path:
    """A digits data set: numbers of images for classification, of training and validation, and of scenes."""
    root = folders.mktemp('data') / 'digits'
    return make_digit_scenes(root, counts=dict(imagenet=images, ade=scenes, coco=scenes))


def save_untrained(config: Path, path: Path, change: Callable[[nn.Module], object] = lambda module: None) -> None:
    """A checkpoint of a config's model with its initial weights, which ``change`` may change module by module."""
    cfg = Config.fromfile(config)
    torch.manual_seed(0)
    with DefaultScope.overwrite_default_scope(cfg.default_scope):
        model = MODELS.build(copy.deepcopy(cfg.model))
    model.init_weights()
    with torch.no_grad():
        model.apply(change)
    meta = dict(cfg=cfg.pretty_text)
    if 'metainfo' in cfg:
        meta |= dict(dataset_meta=dict(classes=cfg.metainfo.classes, palette=cfg.metainfo.palette))
    torch.save(dict(meta=meta, state_dict=model.state_dict()), path)
