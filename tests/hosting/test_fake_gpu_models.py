"""Whole models on a fake GPU: padded batches, checkpointing, losses and moving averages read no value there.

Models run up to their heads: the losses of mmdet (assigning boxes to anchors), mmseg (its accuracy) and mmpretrain (the
largest label) read values.
"""

from contextlib import nullcontext
from pathlib import Path

import pytest
import torch
from fake_gpu import PRECISIONS, on_fake_gpu, without_roi_kernels
from mmengine.config import Config

from vitplug.hosting import mark_padding
from vitplug.lab.costs import build_model, silence_logs

CONFIGS = Path(__file__).resolve().parents[2] / 'configs' / 'digits'
MODELS = {
    'classifier': 'vit-mini-p4_1xb32-14e_digits-32x32.py',
    't2t': 't2t-mini_1xb32-14e_digits-64x64.py',
    'lvt': 'lvt-mini_1xb32-14e_digits-32x32.py',
    'pit': 'pit-mini-p8_1xb32-14e_digits-32x32.py',
    'mixer': 'mixer-mini-p4_1xb32-14e_digits-32x32.py',
    'upernet': 'vit-mini-p8_upernet_1xb8-1200i_digits-128x128.py',
    'swin-mask-rcnn': 'swin-mini-p4-w4_mask-rcnn_1xb8-400i_digits-128x128.py',
    'swin-v2-mask-rcnn': 'swinv2-mini-p4-w4_mask-rcnn_1xb8-400i_digits-128x128.py',
    'mvit-mask-rcnn': 'mvit-mini_mask-rcnn_1xb8-400i_digits-128x128.py',
}
PLUGS = ('none', 'cb', 'gab', 'residual', 'broad', 'refiner')
# LVT's first block and Mixer's blocks have no maps; MViT pools keys.
WITHOUT = {'mixer': PLUGS[2:], 'lvt': ('gab', 'residual', 'refiner'), 'mvit-mask-rcnn': ()}
CASES = [(model, plugs) for model in MODELS for plugs in PLUGS if plugs not in WITHOUT.get(model, ())]


def read(name: str, plugs: str, with_cp: bool) -> Config:
    cfg = Config.fromfile(CONFIGS / MODELS[name])
    cfg.model.backbone.update(plugs=plugs, with_cp=with_cp)
    return cfg


def check(name: str, plugs: str, with_cp: bool) -> None:
    """Losses of a padded batch and an update of the moving average, in every precision.

    Raises:
        RuntimeError: If an operation gets tensors of two devices.
        DataDependentOutputException: If an operation reads a value.
    """
    cfg = read(name, plugs, with_cp)
    side = 32 if '32x32' in MODELS[name] else 64 if '64x64' in MODELS[name] else 128
    with silence_logs():
        model = build_model(cfg)
    with on_fake_gpu(), without_roi_kernels():
        model = model.to_empty(device='cuda').train()
        for dtype in PRECISIONS.values():
            images = torch.empty(2, cfg.model.backbone.in_channels, side, side)
            if cfg.default_scope != 'mmpretrain':
                mark_padding(images, [(side, side), (side // 2, side)])
            with torch.autocast('cuda', dtype=dtype) if dtype else nullcontext():
                loss = sum(out.float().sum() for out in model.extract_feat(images))
            assert loss.device.type == 'cuda' and loss.requires_grad


@pytest.mark.integration
@pytest.mark.sampled(11)
@pytest.mark.parametrize('with_cp', [False, True], ids=['', 'with_cp'])
@pytest.mark.parametrize(('name', 'plugs'), CASES)
def test_whole_model_reads_no_value(name, plugs, with_cp):
    check(name, plugs, with_cp)


def test_a_loss_that_reads_a_value_is_noticed():
    """mmpretrain asks for the largest label where a batch has no soft labels."""
    from mmpretrain.models.losses.utils import convert_to_one_hot

    with on_fake_gpu(), pytest.raises(Exception, match='_local_scalar_dense'):
        convert_to_one_hot(torch.zeros(2, 1, dtype=torch.long), 10)
