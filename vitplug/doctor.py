"""Checks the installed packages and vitplug, and prints how to repair them. Nothing is downloaded or written."""

import importlib
import os
import sys
import time
import warnings
from collections.abc import Callable, Sequence
from functools import partial

from vitplug.commands import command_parser
from vitplug.files.config_paths import config_file

MODULES = ('torch', 'torchvision', 'mmengine', 'mmcv', 'mmdet', 'mmseg', 'mmpretrain', 'vitplug.backbones')
STEPS = {
    'mmpretrain': 'vit-mini-p4-cb_1xb32-7e_digits-32x32.py',
    'mmseg': 'vit-mini-p8-cb_upernet_1xb8-1000i_digits-128x128.py',
    'mmdet': 'swin-mini-p4-w4-cb_mask-rcnn_1xb8-250i_digits-128x128.py',
}


def version_of(module: str) -> str:
    """Imports a module; returns its version, '' if it has none."""
    return getattr(importlib.import_module(module), '__version__', '')


def kind_of_ops() -> str:
    """Imports mmcv's ops, which the training steps run."""
    compiled = not importlib.import_module('mmcv._ext').__file__.endswith('.py')
    return '' if compiled else "not compiled: torchvision's, by vitplug.ops"


def training_step(scope: str) -> str:
    """Trains the model of a config of a task for one step on noise; its weights must stay finite."""
    import torch
    from mmengine.config import Config
    from mmengine.dataset import pseudo_collate
    from mmengine.device import get_device
    from mmengine.logging import MMLogger
    from mmengine.optim import OptimWrapper
    from mmengine.registry import MODELS, TRANSFORMS, init_default_scope

    MMLogger.get_current_instance().setLevel('ERROR')
    init_default_scope(scope)
    cfg = Config.fromfile(config_file(f'vitplug::digits/{STEPS[scope]}'))
    torch.manual_seed(0)
    model = MODELS.build(dict(data_preprocessor=cfg.get('data_preprocessor')) | cfg.model).to(get_device())
    pack = TRANSFORMS.build(cfg.test_dataloader.dataset.pipeline[-1])
    batch = [pack(made_sample(cfg.model.backbone.img_size, cfg.model.backbone.in_channels)) for _ in range(2)]
    optimizer = OptimWrapper(torch.optim.AdamW(model.parameters(), lr=1e-3))
    losses = model.train_step(pseudo_collate(batch), optimizer)
    if not all(parameter.isfinite().all() for parameter in model.parameters()):
        raise FloatingPointError('the step leaves weights that are not finite')
    return f'loss {losses["loss"].item():.3f}'


def made_sample(size: int, channels: int) -> dict:
    """An image of noise and its annotations for all tasks, as a pipeline has them before it packs them."""
    import numpy as np
    from mmdet.structures.mask import BitmapMasks

    left, right = size // 8, size // 2
    masks = np.zeros((1, size, size), np.uint8)
    masks[:, left:right, left:right] = 1
    return dict(
        img=np.random.default_rng(0).integers(0, 255, (size, size, channels), np.uint8),
        img_shape=(size, size),
        gt_label=0,
        gt_seg_map=masks[0],
        gt_bboxes=np.array([[left, left, right, right]], np.float32),
        gt_bboxes_labels=np.zeros(1, int),
        gt_masks=BitmapMasks(masks, size, size),
        gt_ignore_flags=np.zeros(1, bool),
    )


def all_processes() -> str:
    """Adds up a number of each process that torchrun has started, on their GPUs if there are some."""
    import torch
    from torch import distributed as dist

    on_gpu = torch.cuda.is_available()
    dist.init_process_group('nccl' if on_gpu else 'gloo')
    ones = torch.ones(10**6, device=f'cuda:{os.environ["LOCAL_RANK"]}' if on_gpu else 'cpu')
    begin = time.monotonic()
    dist.all_reduce(ones)
    total, size = int(ones[-1]), dist.get_world_size()
    dist.destroy_process_group()
    if total != size:
        raise RuntimeError(f'the sum of {size} ones is {total}')
    return f'{size}; the sum of a million numbers took {time.monotonic() - begin:.3f} s'


# A check returns the text beside its name, and raises any error of a broken package.
IMPORTS: dict[str, Callable[[], str]] = {name: partial(version_of, name) for name in MODULES}
IMPORTS["mmcv's ops"] = kind_of_ops
TRAINING = {f'a step of {scope}': partial(training_step, scope) for scope in STEPS}
REMEDY = """Repair the first one, then run this again:
  a missing package   pip install -e .  (in the folder of vitplug)
  mmcv's ops          make setup OPS=compiled
  others              see docs/stacks.md"""


def main(argv: Sequence[str] = ()) -> int:
    """Prints one line for each check and returns the exit status: 1 if a check fails."""
    command_parser('doctor', 'Check the installed packages and vitplug; print how to repair them.').parse_args(argv)
    warnings.simplefilter('ignore')  # import warnings of the packages are misleading; the report has the errors
    checks, failed, out = {**IMPORTS, **TRAINING}, 0, sys.stdout
    if 'RANK' in os.environ:  # torchrun's
        checks = {**IMPORTS, 'processes': all_processes}
        if os.environ['RANK'] != '0':  # one speaks for all, but of what is broken
            sys.stdout = open(os.devnull, 'w')  # noqa: SIM115
    for name, check in checks.items():
        try:
            print(f'  ok      {name:26} {check()}'.rstrip(), flush=True)
        except Exception as error:  # a broken binary package can raise anything
            where = f'{name} (process {os.environ["RANK"]})' if 'RANK' in os.environ else name
            said = f'{type(error).__name__}: {" ".join(str(error).split())}'
            print(f'  BROKEN  {where:26} {said}', file=out, flush=True)
            failed += 1
    print(f'{failed} failed. {REMEDY}' if failed else 'all is in order')
    return int(failed > 0)
