"""A training that takes a second and draws random numbers wherever a real one does."""

import random
import socket
import time
from pathlib import Path

import numpy as np
import torch
from mmengine.config import Config
from mmengine.evaluator import BaseMetric
from mmengine.model import BaseModel
from mmengine.registry import DATASETS, METRICS, MODELS
from mmengine.runner.base_loop import BaseLoop

SAMPLES, BATCH = 22, 4  # the last batch of an epoch is a short one


@DATASETS.register_module()
class ToyDataset:
    """Points, with noise from all three generators in a training."""

    metainfo = dict(classes=('a', 'b'))

    def __init__(self, noisy=False):
        self.noisy = noisy

    def __len__(self):
        return SAMPLES

    def __getitem__(self, index):
        noise = random.random() + np.random.rand() + torch.rand(()).item() if self.noisy else 1.0
        return dict(inputs=torch.tensor([index / SAMPLES, noise, 1.0]), label=torch.tensor(index % 2), index=index)


@MODELS.register_module()
class ToyModel(BaseModel):
    """Two layers with dropout and batch norm; the loss is broken at the iterations in `nan_at`."""

    def __init__(self, nan_at=()):
        super().__init__()
        self.layers = torch.nn.Sequential(
            torch.nn.Linear(3, 8), torch.nn.BatchNorm1d(8), torch.nn.Dropout(0.5), torch.nn.Linear(8, 2)
        )
        # A tuple: torch 2.1's compiler knows no `in` of a set.
        self.nan_at, self.iteration = tuple(nan_at), 0

    def forward(self, inputs, label, index, mode='tensor'):
        scores = self.layers(inputs)
        if mode == 'predict':
            return [dict(score=score, label=one) for score, one in zip(scores, label, strict=True)]
        loss = torch.nn.functional.cross_entropy(scores, label)
        self.iteration += 1
        return dict(loss_ce=loss * (float('nan') if self.iteration in self.nan_at else 1.0))


@METRICS.register_module()
class ToyMetric(BaseMetric):
    """The mean loss over the points."""

    def process(self, data_batch, data_samples):
        self.results += [float(sample['score'][sample['label']]) for sample in data_samples]

    def compute_metrics(self, results):
        return dict(score=float(np.mean(results)), count=len(results))


def free_port():
    with socket.socket() as free:
        free.bind(('127.0.0.1', 0))
        return free.getsockname()[1]


class ToyLoop(BaseLoop):
    """A loop with some parts, such as a loader, alone."""

    def __init__(self, **parts):
        vars(self).update(parts)

    def run(self):
        raise NotImplementedError


def toy_config(work_dir, kind: str) -> Config:
    """A training of 4 epochs or 22 iterations, `kind` being 'epochs' or 'iterations'."""
    by_epoch = kind == 'epochs'
    loader = dict(batch_size=BATCH, num_workers=2, persistent_workers=True, collate_fn=dict(type='default_collate'))
    sampler = dict(type='DefaultSampler' if by_epoch else 'InfiniteSampler', shuffle=True)
    loop = dict(max_epochs=4, val_interval=2) if by_epoch else dict(max_iters=22, val_interval=8)
    base = Config.fromfile(Path(__file__).parents[2] / 'configs' / '_base_' / 'default_runtime_mmpretrain.py')
    return Config(
        dict(
            default_scope='mmengine',
            experiment_name=f'toy_{time.monotonic_ns()}',
            work_dir=str(work_dir),
            model=dict(type='ToyModel'),
            train_dataloader=dict(**loader, sampler=sampler, dataset=dict(type='ToyDataset', noisy=True)),
            val_dataloader=dict(
                **loader, sampler=dict(type='DefaultSampler', shuffle=False), dataset=dict(type='ToyDataset')
            ),
            train_cfg=dict(by_epoch=by_epoch, **loop),
            val_cfg=dict(),
            val_evaluator=dict(type='ToyMetric'),
            optim_wrapper=dict(optimizer=dict(type='AdamW', lr=0.01), clip_grad=dict(max_norm=1.0)),
            param_scheduler=[dict(type='CosineAnnealingLR', by_epoch=by_epoch, T_max=22)],
            default_hooks={
                **{name: hook for name, hook in base.default_hooks.items() if name != 'visualization'},
                'checkpoint': dict(
                    type='vitplug.CheckpointHook',
                    by_epoch=by_epoch,
                    interval=1 if by_epoch else 5,
                    max_keep_ckpts=2,
                    save_best='score',
                    rule='greater',
                ),
                'ema': dict(type='EMAHook', momentum=0.1),
                'logger': dict(type='LoggerHook', interval=20, log_metric_by_epoch=by_epoch),
            },
            env_cfg=dict(mp_cfg=dict(mp_start_method='fork', opencv_num_threads=0)),
            log_processor=dict(by_epoch=by_epoch),
            log_level='ERROR',
            randomness=dict(seed=3),
        )
    )


def final_state(work_dir) -> dict:
    """Everything that a training ends with: weights, averaged weights, optimizer, schedules, records."""
    path = Path(work_dir, 'last_checkpoint').read_text()
    state = torch.load(path, weights_only=False)
    return {name: state[name] for name in ('state_dict', 'ema_state_dict', 'optimizer', 'param_schedulers')} | {
        'position': (state['meta']['epoch'], state['meta']['iter']),
        'best': state['message_hub']['runtime_info'].get('best_score'),
        'loss': state['message_hub']['log_scalars']['train/loss'].data[0].tolist(),
    }
