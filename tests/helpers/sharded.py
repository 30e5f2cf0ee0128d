"""What each of some processes runs in a test of sharded training: a module of its own, for processes import it anew."""

import os
from pathlib import Path

import cases
import torch
import torch.distributed as dist
from cases import images, mvit, randomize, swin, vit
from mmengine.config import Config
from mmengine.model import BaseModel
from mmengine.registry import DATASETS, MODELS
from mmengine.runner import Runner
from torch import nn
from torch.distributed.tensor import DTensor
from two_processes import TOGETHER

from vitplug.checkpoints.safe_loading import refuse_pickled_code
from vitplug.hosting import mark_padding
from vitplug.plugs import PlugModules
from vitplug.runs.sharding import FSDP2Strategy, first_values
from vitplug.runs.training_commands import runner_class

BATCH = 4
PLUGS_OF_MVIT = [dict(type='GaussianAttentionBias'), dict(type='ContextBroadcast', scaled=True), dict(type='Refiner')]
# These keep what they learn in a range; it starts outside.
PROJECTED = [dict(type='ResidualAttention'), dict(type='EntmaxAttention', learnable=True)]
HOSTS = {'vit': (vit, TOGETHER), 'swin': (swin, TOGETHER), 'mvit': (mvit, PLUGS_OF_MVIT), 'projected': (vit, PROJECTED)}


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


def step(rank, processes, port, host, settings, path):
    """One process's part of a batch; the first writes the mean loss, the gradients, their norm and the new values."""
    join(rank, processes, port)
    model = FSDP2Strategy(**settings).shard(build(host))
    share = BATCH // processes
    loss = model(images(32, 40, batch=BATCH)[rank * share : (rank + 1) * share])
    loss.backward()
    assert all(isinstance(p, DTensor) for p in model.parameters())
    grads = {name: p.grad.full_tensor() for name, p in model.named_parameters()}
    norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0).full_tensor()
    dist.all_reduce(loss.data)
    torch.optim.SGD(model.parameters(), lr=0.1).step()
    values = {name: p.full_tensor() for name, p in model.named_parameters()}
    if rank == 0:
        torch.save((loss.data / processes, grads, norm, values), path)
    dist.barrier()
    os._exit(0)


# --- mixed precision ---


class Normed(nn.Module):
    """A backbone and a batch norm of its last map."""

    def __init__(self, backbone):
        super().__init__()
        self.backbone, self.norm = backbone, nn.LazyBatchNorm2d()

    def forward(self, x):
        return self.norm(self.backbone(x)[-1])


MIXED = {
    'vit': (vit, TOGETHER),
    'swin': (swin, TOGETHER),
    'lvt': (cases.lvt, [dict(type='ContextBroadcast')]),
    't2t': (cases.t2t, [dict(type='ContextBroadcast')]),
}


def mixed_precision(rank, processes, port, path):
    """Outputs of hosts for padded images, in float32 with and without their sizes, and sharded with bfloat16."""
    join(rank, processes, port)
    found = {}
    for host, (make, plugs) in MIXED.items():
        torch.manual_seed(0)
        model = Normed(make(plugs=[dict(plug) for plug in plugs])).float()
        x = images(32, 48, dtype=torch.float32)
        model.eval()(x)
        randomize(model).train()
        marked = mark_padding(x.clone(), [(8, 16), (16, 8)])
        whole = model(marked), model(x)
        policy = dict(param_dtype='bfloat16', reduce_dtype='float32')
        sharded = FSDP2Strategy(mixed_precision=policy, activation_checkpointing=True).shard(model)
        out = sharded(marked)
        out.square().sum().backward()
        grads = {p.grad.dtype for p in sharded.parameters() if p.grad is not None}
        found[host] = [one.detach() for one in (*whole, out)], grads
    torch.save(found, path)
    os._exit(0)


# --- first values ---


def first_values_of(host, make, plugs):
    """The names of a host's first values that differ from those of the whole model."""
    torch.manual_seed(5)
    plain = make(plugs=plugs)
    torch.manual_seed(6)
    plain.init_weights()
    expected = plain.state_dict()
    torch.manual_seed(5)
    model = FSDP2Strategy().shard(make(plugs=plugs))
    torch.manual_seed(6)
    with first_values():
        model.init_weights()
    for name, value in model.state_dict().items():
        whole = value.full_tensor() if isinstance(value, DTensor) else value
        if not torch.equal(whole, expected[name]):
            yield f'{host}.{name}'


def compare_first_values(rank, processes, port, path):
    """Writes what differs over all hosts."""
    join(rank, processes, port)
    plugs = {host: 'cb(scaled=True)' for host in (*cases.HOSTS, *cases.TOKEN_HOSTS)}
    plugs |= dict.fromkeys(cases.ONE_GRID_HOSTS, 'gab+residual+refiner(init="default")+rel-pos-mlp')
    makers = {**cases.HOSTS, **cases.TOKEN_HOSTS}
    differing = [line for host, make in makers.items() for line in first_values_of(host, make, plugs[host])]
    if rank == 0:
        Path(path).write_text('\n'.join(differing))
    dist.barrier()
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
    """A ViT with plugs and a head; the loss of one process is broken in one iteration."""

    def __init__(self, backbone, nan_at=None, nan_in=0, data_preprocessor=None):
        super().__init__(data_preprocessor)
        self.backbone = MODELS.build(backbone)
        self.head = nn.Linear(24, 2)
        self.nan_at, self.nan_in, self.iteration = nan_at, nan_in, 0
        self.double()

    def forward(self, inputs, label, mode='tensor'):
        scores = self.head(self.backbone(inputs)[-1])
        if mode == 'predict':
            return [dict(score=score, label=one) for score, one in zip(scores, label, strict=True)]
        self.iteration += 1
        broken = self.iteration == self.nan_at and int(os.environ.get('RANK', 0)) == self.nan_in
        return dict(loss=nn.functional.cross_entropy(scores, label) * (float('nan') if broken else 1.0))


def config(work_dir, processes, strategy=None, resume=None, options=None) -> Config:
    """A training by iterations, with the whole batch of any number of processes."""
    backbone = dict(type='vitplug.VisionTransformer', img_size=(32, 40), patch_size=8)
    backbone |= dict(arch=dict(embed_dims=24, num_layers=3, num_heads=3, feedforward_channels=40))
    base = Config.fromfile(Path(__file__).parents[2] / 'configs' / '_base_' / 'default_runtime_mmpretrain.py')
    hooks = {name: hook for name, hook in base.default_hooks.items() if name != 'visualization'}
    cfg = dict(
        default_scope='mmengine',
        work_dir=str(work_dir),
        launcher='pytorch' if processes else 'none',
        model=dict(type='ShardedToy', backbone=dict(backbone, plugs=[dict(plug) for plug in TOGETHER])),
        train_dataloader=dict(
            batch_size=TOGETHER_AT_ONCE // (processes or 1),
            num_workers=0,
            dataset=dict(type='NoisyImages'),
            sampler=dict(type='InfiniteSampler', shuffle=True),
            collate_fn=dict(type='default_collate'),
        ),
        train_cfg=dict(by_epoch=False, max_iters=12),
        optim_wrapper=dict(
            constructor='vitplug.LayerDecayOptimWrapperConstructor',
            optimizer=dict(type='AdamW', lr=0.01, weight_decay=0.05),
            paramwise_cfg=dict(layer_decay_rate=0.7),
            clip_grad=dict(max_norm=0.5),
        ),
        param_scheduler=[dict(type='CosineAnnealingLR', by_epoch=False, T_max=12)],
        default_hooks={
            **hooks,
            'checkpoint': dict(type='vitplug.CheckpointHook', by_epoch=False, interval=2, max_keep_ckpts=-1),
            'plug_values': dict(type='vitplug.PlugValuesHook', interval=5),
            'ema': dict(type='EMAHook', momentum=0.1),
            'logger': dict(type='LoggerHook', interval=1, log_metric_by_epoch=False),
        },
        log_processor=dict(by_epoch=False, window_size=1),
        log_level='ERROR',
        randomness=dict(seed=3),
        resume=resume is not None,
        load_from=resume and str(resume),
    )
    if strategy is not None:
        cfg['strategy'] = dict(type='vitplug.FSDP2Strategy', **strategy)
    cfg = Config(cfg)
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
