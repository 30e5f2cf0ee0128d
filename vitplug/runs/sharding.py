"""Sharded training: parameters, gradients and optimizer states spread over processes by torch's fully_shard (FSDP2)."""

import copy
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import torch
from mmengine import dist
from mmengine.device import get_device
from mmengine.registry import MODELS
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.utils._python_dispatch import TorchDispatchMode

from vitplug.hosting import PluggedModel, keep_padding
from vitplug.hosting.materialise import allocate, check_resettable, reset_parameters
from vitplug.registry import STRATEGIES

# Ways to write checkpoints.
CHECKPOINTS = ('shards', 'whole')


@STRATEGIES.register_module()
class FSDP2Strategy:
    """Trains a model whose parameters, gradients and optimizer states are sharded over the processes.

    A block of a backbone of vitplug is whole while it runs, in forward and in backward. What else the backbone has
    (embedding, and the modules of plugs, which blocks may share) is one more part, and neck and head are another, whole
    during the step. Losses and gradients are those of DistributedDataParallel, and so are the names of parameters:
    layer-wise decay, EMA, gradient clipping and `vitplug.NonFiniteLossHook` work as without it. In a config, for a
    training of several processes::

        strategy = dict(type='vitplug.FSDP2Strategy')

    Args:
        shard_over: How many processes share one copy of the model: ``'all'``; ``'node'`` for those of one machine,
            with a copy on each machine (HSDP); or a number, of which the number of processes is a multiple.
        mixed_precision: Arguments of torch's `MixedPrecisionPolicy` for backbones of vitplug, types by name, such as
            ``dict(param_dtype='bfloat16', reduce_dtype='float32')``. Their outputs are float32 by default. Batch norms,
            necks, heads and losses keep the type of their parameters. None computes in that type everywhere.
        activation_checkpointing: Whether blocks compute their activations again in backward (`with_cp`).
        reshard_after_forward: Whether a part is freed between forward and backward. False needs more memory and less
            communication; a number keeps it over so many processes.
        meta_start: Whether backbones of vitplug are built without memory, and their weights drawn one tensor at a
            time, so that no process ever holds all of them. Other parts are built whole.
        checkpoints: ``'shards'`` for folders, into which every process writes its part, or ``'whole'`` for single
            files, gathered by the first process, which every tool reads.
        async_checkpoints: Whether shards are copied to the memory of the CPU and written while the training goes on. A
            checkpoint gets its name when all processes have written it, at the latest before the next one.

    Raises:
        ValueError: If an argument has none of these values.
        ImportError: If torch has no `fully_shard`.
    """

    def __init__(
        self,
        shard_over: str | int = 'all',
        mixed_precision: Mapping[str, Any] | None = None,
        activation_checkpointing: bool = False,
        reshard_after_forward: bool | int = True,
        meta_start: bool = False,
        checkpoints: str = 'shards',
        async_checkpoints: bool = False,
    ):
        _check_torch()
        if checkpoints not in CHECKPOINTS:
            raise ValueError(f'strategy.checkpoints = {checkpoints!r}: expected one of {list(CHECKPOINTS)}')
        if async_checkpoints and checkpoints != 'shards':
            raise ValueError(
                f"strategy.async_checkpoints = {async_checkpoints!r} with checkpoints = {checkpoints!r}: only 'shards' "
                'are written while the training goes on'
            )
        self.group_size = _group_size(shard_over)
        self.policy = _policy(mixed_precision)
        self.activation_checkpointing = activation_checkpointing
        self.reshard_after_forward = reshard_after_forward
        self.meta_start = meta_start
        self.checkpoints = checkpoints
        self.async_checkpoints = async_checkpoints

    # --- the model ---

    def build(self, settings: dict) -> nn.Module:
        """Builds a model of a config; backbones of vitplug without memory if `meta_start` says so."""
        return MODELS.build(_backbones_on_meta(settings) if self.meta_start else settings)

    def shard(self, model: nn.Module) -> nn.Module:
        """Shards a model in place, and gives what was built without memory its first values.

        `copy.deepcopy` of the result, as EMA makes it, holds this process's shards, and is no model that runs.
        """
        plain = _on_meta(model)
        backbones = [module for module in model.modules() if isinstance(module, PluggedModel)]
        empty = [backbone for backbone in backbones if any(p.is_meta for p in backbone.parameters())]
        for backbone in empty:
            check_resettable(backbone)
        self._shard(model, backbones)
        with first_values():
            allocate(model, get_device())
            for backbone in empty:
                reset_parameters(backbone, around=_whole_parameters)
        model.to(get_device())  # tells mmengine's data preprocessor; the shards are there already
        model.__deepcopy__ = lambda memo: _copy_of_shards(model, plain)
        return model

    def _shard(self, model: nn.Module, backbones: list[PluggedModel]) -> None:
        from torch.distributed.fsdp import fully_shard

        if self.policy.param_dtype is not None and not backbones:
            raise ValueError(
                f'strategy.mixed_precision is for backbones of vitplug, and {type(model).__name__} has none: leave it '
                'out, and set optim_wrapper.type = AmpOptimWrapper'
            )
        settings = dict(mesh=self.mesh(), reshard_after_forward=self.reshard_after_forward)
        for backbone in backbones:
            self._shard_backbone(backbone, settings)
        if model not in backbones:
            fully_shard(model, **settings)

    def _shard_backbone(self, backbone: PluggedModel, settings: dict) -> None:
        from torch.distributed.fsdp import fully_shard

        for norm in [module for module in backbone.modules() if isinstance(module, _BatchNorm)]:
            fully_shard(norm, **settings)  # in the type of its running statistics
        blocks = list(backbone.plugged_blocks())
        plugs = [block.plugs for block in blocks]
        inside = replace(self.policy, output_dtype=None)
        for block in blocks:
            block.with_cp = block.with_cp or self.activation_checkpointing
            # Plugs of a block also act before and after it, and share modules with other blocks.
            block.plugs = nn.Module()
            fully_shard(block, mp_policy=inside, **settings)
        backbone.plugs_of_blocks = nn.ModuleList(plugs)
        fully_shard(backbone, mp_policy=self.policy, **settings)
        del backbone.plugs_of_blocks
        for block, modules in zip(blocks, plugs, strict=True):
            block.plugs = modules
        if self.policy.param_dtype is not None:
            # Before the cast of fully_shard, which forgets the sizes of images in a padded batch.
            backbone.register_forward_pre_hook(_cast_images(self.policy.param_dtype), prepend=True)

    def mesh(self):
        """The mesh of processes: copies of the model, if there are several, by the shards of one."""
        from torch.distributed.device_mesh import init_device_mesh

        copies, device = dist.get_world_size() // self.group_size, get_device()
        if copies == 1:
            return init_device_mesh(device, (self.group_size,))
        return init_device_mesh(device, (copies, self.group_size), mesh_dim_names=('copy', 'shard'))


def _cast_images(dtype: torch.dtype):
    """A hook that casts the images of a backbone and keeps their sizes."""

    def cast(backbone: nn.Module, args: tuple) -> tuple:
        images, *others = args
        return keep_padding(images.to(dtype), images), *others

    return cast


def reshard(model: nn.Module) -> None:
    """Frees the parts of a sharded model that are whole after a forward without a backward."""
    for module in model.modules():
        if hasattr(module, 'reshard'):
            module.reshard()


@contextmanager
def whole_plugs(model: nn.Module) -> Iterator[None]:
    """Inside, the parameters of plugs are whole; every process has to enter. Does nothing for a model that is whole."""
    sharded = [module for module in model.modules() if isinstance(module, PluggedModel) and hasattr(module, 'unshard')]
    for backbone in sharded:
        backbone.unshard()
    try:
        yield
    finally:
        for backbone in sharded:
            backbone.reshard()


# --- first values ---


@contextmanager
def first_values() -> Iterator[None]:
    """Lets code that initialises whole tensors initialise sharded ones, to the same values in any number of processes.

    All processes have to start with the same seed. One tensor at a time is whole.
    """
    from torch.distributed.tensor.experimental import implicit_replication

    with torch.no_grad(), implicit_replication(), _WholeDraws():
        yield


class _WholeDraws(TorchDispatchMode):
    """Draws a sharded tensor whole, as one process would, and keeps the shard."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        from torch.distributed.tensor import DTensor, distribute_tensor

        kwargs = kwargs or {}
        drawn = args[0] if args else None
        draws = torch.Tag.nondeterministic_seeded in func.tags and func._schema.is_mutable
        if not draws or not isinstance(drawn, DTensor):
            return func(*args, **kwargs)
        whole = torch.empty(drawn.shape, dtype=drawn.dtype, device=drawn.device)
        func(whole, *args[1:], **kwargs)
        return drawn.copy_(distribute_tensor(whole, drawn.device_mesh, drawn.placements, src_data_rank=None))


@contextmanager
def _whole_parameters(module: nn.Module) -> Iterator[None]:
    """Inside, a module's own parameters are whole, without values; then each process keeps its shards of them."""
    from torch.distributed.tensor import DTensor, distribute_tensor

    shards = {name: p for name, p in module._parameters.items() if isinstance(p, DTensor)}
    for name, p in shards.items():
        module._parameters[name] = nn.Parameter(torch.empty(p.shape, dtype=p.dtype, device=p.device), p.requires_grad)
    yield
    for name, p in shards.items():
        whole = module._parameters[name].detach()
        p.copy_(distribute_tensor(whole, p.device_mesh, p.placements, src_data_rank=None))
        module._parameters[name] = p


def _backbones_on_meta(node: Any) -> Any:
    """Settings of a model whose backbones of vitplug are built on the meta device."""
    if isinstance(node, list | tuple):
        return type(node)(map(_backbones_on_meta, node))
    if not isinstance(node, Mapping):
        return node
    kind = node.get('type')
    part_type = MODELS.get(kind) if isinstance(kind, str) else kind
    if not (isinstance(part_type, type) and issubclass(part_type, PluggedModel)):
        return type(node)({key: _backbones_on_meta(value) for key, value in node.items()})

    def build_on_meta(**settings: Any) -> nn.Module:
        with torch.device('meta'):
            return MODELS.build(dict(settings, type=kind))

    return type(node)({**node, 'type': build_on_meta})


# --- copies ---


def _on_meta(model: nn.Module) -> nn.Module:
    """A copy of a model without memory for its parameters."""
    return copy.deepcopy(model, {id(p): nn.Parameter(p.to('meta'), p.requires_grad) for p in model.parameters()})


def _copy_of_shards(model: nn.Module, plain: nn.Module) -> nn.Module:
    """A model of the original classes with copies of a sharded model's shards and buffers."""
    copied = copy.deepcopy(plain)
    values = {
        **dict(model.named_parameters(remove_duplicate=False)),
        **dict(model.named_buffers(remove_duplicate=False)),
    }
    memo: dict[int, Tensor] = {}
    for prefix, module in copied.named_modules():
        for tensors in (module._parameters, module._buffers):
            for name in [name for name, tensor in tensors.items() if tensor is not None]:
                value = values[f'{prefix}.{name}' if prefix else name]
                tensors[name] = memo.setdefault(id(value), copy.deepcopy(value))
    return copied


# --- arguments ---


def _check_torch() -> None:
    try:
        from torch.distributed.fsdp import fully_shard  # noqa: F401
    except ImportError as error:
        raise ImportError(
            f'vitplug.FSDP2Strategy needs torch.distributed.fsdp.fully_shard, which torch {torch.__version__} has not '
            "(from 2.6 on): use a later torch (docs/stacks.md), or mmengine's FSDPStrategy with "
            "runner_type = 'FlexibleRunner', or leave out `strategy`"
        ) from error


def _group_size(shard_over: str | int) -> int:
    """How many processes share one copy of the model."""
    processes = dist.get_world_size()
    named = dict(all=processes, node=int(os.environ.get('LOCAL_WORLD_SIZE', processes)))
    size = named.get(shard_over, shard_over) if isinstance(shard_over, str) else shard_over
    if not isinstance(size, int) or isinstance(size, bool) or size < 1 or processes % size:
        raise ValueError(
            f"strategy.shard_over = {shard_over!r}: expected 'all', 'node' or a number that divides the {processes} "
            'processes'
        )
    return size


def _policy(settings: Mapping[str, Any] | None):
    """torch's policy of mixed precision, with types by name."""
    from torch.distributed.fsdp import MixedPrecisionPolicy

    chosen = dict(settings or {})
    for name in ('param_dtype', 'reduce_dtype', 'output_dtype'):
        kind = chosen.get(name)
        chosen[name] = getattr(torch, kind, None) if isinstance(kind, str) else kind
        if kind is not None and not isinstance(chosen[name], torch.dtype):
            raise ValueError(
                f'strategy.mixed_precision.{name} = {kind!r}: expected the name of a type of torch, such as bfloat16'
            )
    if chosen['param_dtype'] is not None:
        chosen['output_dtype'] = chosen['output_dtype'] or torch.float32
    try:
        return MixedPrecisionPolicy(**chosen)
    except TypeError as error:
        raise ValueError(f'strategy.mixed_precision = {dict(settings)!r}: {error}') from error
