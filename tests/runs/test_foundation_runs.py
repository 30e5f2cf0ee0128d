"""A training on frozen foundation features, on a few pictures in ADE20K's layout, from weights by Meta's keys."""

from pathlib import Path

import cv2
import meta_dino
import numpy as np
import pytest
import torch
from mmengine.config import Config

from vitplug.backbones.foundation import network_settings
from vitplug.checkpoints import read_checkpoint
from vitplug.runs import training_commands

CONFIGS = Path(__file__).resolve().parents[2] / 'configs' / 'foundation'
DEPTH = 12


@pytest.fixture(scope='module')
def data(tmp_path_factory) -> Path:
    """Four pictures for training and two for validation, with label maps of two of the 150 classes."""
    root = tmp_path_factory.mktemp('ade')
    generator = np.random.default_rng(0)
    for split, count in (('training', 4), ('validation', 2)):
        for folder in ('images', 'annotations'):
            (root / folder / split).mkdir(parents=True)
        for index in range(count):
            labels = np.ones((96, 128), np.uint8)
            labels[:, 64:] = 2
            image = generator.integers(0, 60, (96, 128, 3), dtype=np.uint8)
            image[:, 64:] += 150
            cv2.imwrite(str(root / 'images' / split / f'{index}.jpg'), image)
            cv2.imwrite(str(root / 'annotations' / split / f'{index}.png'), labels)
    return root


@pytest.mark.slow
@pytest.mark.parametrize('name', ['dinov3-b-p16_linear', 'dinov3-b-p16-gab_linear', 'dinov3-b-p16-gab_upernet'])
def test_ade20k(name, data, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    weights = meta_dino.random_state(48, 12, 96, DEPTH, 4, 16, version=3, registers=4)
    torch.save(weights, 'weights.pth')
    cfg = Config.fromfile(CONFIGS / f'{name}_8xb2-40k_ade20k-512x512.py')
    arch = dict(embed_dims=48, num_layers=DEPTH, num_heads=12, feedforward_channels=96)
    backbone = {**network_settings('dinov3-b'), **cfg.model.backbone, 'arch': arch, 'type': 'vitplug.VisionTransformer'}
    backbone['init_cfg'] = dict(type='vitplug.Pretrained', checkpoint='weights.pth')
    cfg.model.backbone = backbone
    if 'neck' in cfg.model:
        cfg.model.neck.embed_dim = 48
        cfg.model.decode_head.update(in_channels=[48] * 4, channels=8)
    else:
        cfg.model.decode_head.in_channels = [48]
    cfg.model.data_preprocessor.size = cfg.data_preprocessor.size = (64, 64)
    cfg.model.test_cfg.update(crop_size=(64, 64), stride=(43, 43))
    for split in ('train', 'val', 'test'):
        loader = cfg[f'{split}_dataloader']
        loader.update(num_workers=0, persistent_workers=False)
        loader.dataset.data_root = str(data)
        for step in loader.dataset.pipeline:
            if 'scale' in step:
                step.scale = (256, 96)
            if 'crop_size' in step:
                step.crop_size = (64, 64)
    cfg.train_cfg.update(max_iters=6, val_interval=6)
    cfg.param_scheduler = []
    cfg.optim_wrapper.optimizer.lr = 0.05
    cfg.dump('run.py')
    training_commands.train(['run.py', '--work-dir', 'out'])
    trained = read_checkpoint('out/iter_6.pth')['state_dict']
    assert torch.equal(trained['backbone.layers.3.attn.proj.weight'], weights['blocks.3.attn.proj.weight'].float())
    assert torch.equal(trained['backbone.rotary.periods'], weights['rope_embed.periods'].float())
    plugs = [key for key in trained if key.endswith('gab_amplitude')]
    assert all((trained[key] != 2).all() for key in plugs) and bool(plugs) == ('gab' in name)
    training_commands.test(['run.py', 'out/iter_6.pth'])
