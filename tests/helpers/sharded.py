"""What each of some processes runs in a test: a module of its own, for processes import it anew."""

import json
import os
from pathlib import Path
from types import SimpleNamespace

import torch
import torch.distributed as dist
from cases import images, randomize, swin, vit
from mmengine.config import Config
from mmengine.model import BaseModel
from mmengine.registry import DATASETS, MODELS
from mmengine.runner import Runner
from torch import nn
from torch.distributed.tensor import DTensor
from torch.nn.parallel import DistributedDataParallel
from toy_training import toy_config

from vitplug.checkpoints.through_mmengine import refuse_pickled_code
from vitplug.hosting import mark_padding
from vitplug.plugs import PlugModules
from vitplug.runs.hooks import NonFiniteLossHook
from vitplug.runs.hooks.interruption import _any_process
from vitplug.runs.sharding import FSDP2Strategy
from vitplug.runs.training_commands import runner_class

BATCH = 4
PLUGS = [
    dict(type='ContextBroadcast', scaled=True, scale_init_value=0.3),
    dict(type='RelPosMlp', hidden_dims=8, drop_rate=0.0),
    dict(type='GaussianAttentionBias'),
    dict(type='ResidualAttention'),
    dict(type='BroadAttention'),
    dict(type='Refiner'),
]
# These keep what they learn in a range; it starts outside.
PROJECTED = [dict(type='ResidualAttention'), dict(type='EntmaxAttention', learnable=True)]
HOSTS = {'vit': (vit, PLUGS), 'swin': (swin, PLUGS), 'projected': (vit, PROJECTED)}


def join(rank, processes, port):
    os.environ.update(MASTER_ADDR='127.0.0.1', MASTER_PORT=str(port), LOCAL_WORLD_SIZE=str(processes))
    os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(processes))
    torch.set_num_threads(1)
    dist.init_process_group('gloo', rank=rank, world_size=processes)


# --- one step ---


class Classifier(nn.Module):
    """A backbone and a head, whose forward gives the loss."""

    def __init__(self, backbone):
        super().__init__()
        self.backbone = backbone
        self.head = nn.LazyLinear(5)

    def forward(self, x):
        outs = self.backbone(x)
        return self.head(outs[-1].flatten(1)).square().mean() + sum(out.square().mean() for out in outs)


def build(host):
    make, plugs = HOSTS[host]
    torch.manual_seed(0)
    model = Classifier(make(plugs=[dict(plug) for plug in plugs])).double()
    model.eval()(images(32, 40, batch=BATCH))
    model = randomize(model).train()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.endswith(('residual_alpha', 'entmax_alpha')):
                parameter.fill_(2.5)
    return model


def step(rank, processes, port, host, sharded, path):
    """One process's part of a batch; the first writes the mean loss, the gradients, their norm and the new values."""
    join(rank, processes, port)
    # Every parameter must take part: unused ones would make DistributedDataParallel fail.
    wrapped = FSDP2Strategy().shard(build(host)) if sharded else DistributedDataParallel(build(host))
    share = BATCH // processes
    loss = wrapped(padded(images(32, 40, batch=BATCH)[rank * share : (rank + 1) * share]))
    loss.backward()
    model = wrapped if sharded else wrapped.module
    assert all(isinstance(p, DTensor) is sharded for p in model.parameters())
    grads = {name: whole(p.grad) for name, p in model.named_parameters()}
    norm = whole(nn.utils.clip_grad_norm_(model.parameters(), 1.0))
    dist.all_reduce(loss.data)
    torch.optim.SGD(model.parameters(), lr=0.1).step()
    values = {name: whole(p) for name, p in model.named_parameters()}
    if rank == 0:
        torch.save((loss.data / processes, grads, norm, values), path)
    dist.barrier()
    # Torch can wait for ever where a wrapper in use until now is freed.
    os._exit(0)


def padded(batch):
    """Images that are padded at the bottom."""
    return mark_padding(batch, [(24, 40)] * len(batch))


def whole(value):
    return value.full_tensor() if isinstance(value, DTensor) else value.clone()


def steps_on_shards(rank, processes, port, folder):
    """Each process has gradients of its own, as of a shard; at the third step those of the second are not finite.

    It writes its weight after each step, and how many steps in a row were skipped.
    """
    join(rank, processes, port)
    model = nn.Linear(1, 1, bias=False)
    nn.init.zeros_(model.weight)
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    runner = SimpleNamespace(model=model, optim_wrapper=SimpleNamespace(optimizer=optimizer), iter=0)
    runner.logger = SimpleNamespace(warning=print)
    hook, told = NonFiniteLossHook(), []
    hook.before_train(runner)
    for number in range(4):
        model.weight.grad = torch.full((1, 1), float('nan') if (number, rank) == (2, 1) else -1.0)
        optimizer.step()
        hook.after_train_iter(runner, number, outputs=dict(loss=torch.tensor(0.5)))
        told.append((model.weight.item(), hook.in_a_row))
    assert _any_process(rank == 1) and not _any_process(False)
    Path(folder, f'told{rank}.json').write_text(json.dumps(told))
    os._exit(0)


# --- a training ---

SAMPLES = 40
TOGETHER_AT_ONCE = 8


@DATASETS.register_module()
class NoisyImages:
    """Images with noise of the pipeline's generator."""

    metainfo = dict(classes=('a', 'b'))

    def __len__(self):
        return SAMPLES

    def __getitem__(self, index):
        image = torch.full((3, 32, 40), index / SAMPLES, dtype=torch.float64)
        return dict(inputs=image + torch.rand(3, 32, 40, dtype=torch.float64), label=torch.tensor(index % 2))


@MODELS.register_module()
class ShardedToy(BaseModel):
    """A ViT with plugs and a head."""

    def __init__(self, backbone, data_preprocessor=None):
        super().__init__(data_preprocessor)
        self.backbone = MODELS.build(backbone)
        self.head = nn.Linear(24, 2)
        self.double()

    def forward(self, inputs, label, mode='tensor'):
        scores = self.head(self.backbone(inputs)[-1])
        if mode == 'predict':
            return [dict(score=score, label=one) for score, one in zip(scores, label, strict=True)]
        return dict(loss=nn.functional.cross_entropy(scores, label))


def config(work_dir, processes, sharded=False, resume=None, options=None) -> Config:
    """A training by iterations, with the whole batch of any number of processes."""
    backbone = dict(type='vitplug.VisionTransformer', img_size=(32, 40), patch_size=8)
    backbone |= dict(arch=dict(embed_dims=24, num_layers=3, num_heads=3, feedforward_channels=40))
    cfg = toy_config(work_dir, 'iterations')
    cfg.model = dict(type='ShardedToy', backbone=dict(backbone, plugs=[dict(plug) for plug in PLUGS]))
    batch_size = TOGETHER_AT_ONCE // (processes or 1)
    cfg.train_dataloader.update(batch_size=batch_size, num_workers=0, persistent_workers=False)
    cfg.train_dataloader.dataset = dict(type='NoisyImages')
    cfg.val_dataloader = cfg.val_evaluator = cfg.val_cfg = None
    cfg.train_cfg = dict(by_epoch=False, max_iters=12)
    cfg.optim_wrapper = dict(
        constructor='vitplug.LayerDecayOptimWrapperConstructor',
        optimizer=dict(type='AdamW', lr=0.01, weight_decay=0.05),
        paramwise_cfg=dict(layer_decay_rate=0.7),
        clip_grad=dict(max_norm=0.5),
    )
    cfg.default_hooks.checkpoint.update(interval=2, max_keep_ckpts=-1, save_best=None)
    cfg.default_hooks.plug_values.interval = 5
    cfg.default_hooks.logger.interval = 1
    cfg.log_processor.window_size = 1
    cfg.launcher = 'pytorch' if processes else 'none'
    cfg.resume, cfg.load_from = resume is not None, resume and str(resume)
    if sharded:
        cfg.strategy = dict(type='vitplug.FSDP2Strategy')
    cfg.merge_from_dict(options or {})
    return cfg


def train(rank, processes, port, settings):
    """A training, or one process of it; no processes are one without a process group."""
    if processes:
        join(rank, processes, port)
    torch.set_num_threads(1)
    refuse_pickled_code()
    cfg = config(processes=processes, **settings)
    if processes and 'strategy' not in cfg:
        cfg.model_wrapper_cfg = dict(type='MMDistributedDataParallel', device_ids=None, broadcast_buffers=False)
    runner = runner_class(cfg).from_cfg(cfg)
    runner.train()
    if processes:
        if runner_class(cfg) is not Runner:
            plugs = [
                p for module in runner.model.modules() if isinstance(module, PlugModules) for p in module.parameters()
            ]
            assert all(isinstance(p, DTensor) for p in [*plugs, *runner.model.parameters()])
        dist.barrier()
    os._exit(0)
