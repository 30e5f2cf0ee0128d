"""Sharded training: parameters, gradients and optimizer states spread over processes by torch's fully_shard (FSDP2)."""

import copy
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import torch
from mmengine import dist
from mmengine.device import get_device
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.utils._python_dispatch import TorchDispatchMode

from vitplug.hosting import PluggedModel, keep_padding
from vitplug.registry import STRATEGIES


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
        mixed_precision: Arguments of torch's `MixedPrecisionPolicy` for backbones of vitplug, types by name, such as
            ``dict(param_dtype='bfloat16', reduce_dtype='float32')``. Their outputs are float32 by default. Batch norms,
            necks, heads and losses keep the type of their parameters. None computes in that type everywhere.
        activation_checkpointing: Whether blocks compute their activations again in backward (`with_cp`).

    Raises:
        ValueError: If a type has no such name.
        ImportError: If torch has no `fully_shard`: it has from 2.6 on.
    """

    def __init__(self, mixed_precision: Mapping[str, Any] | None = None, activation_checkpointing: bool = False):
        self.policy = _policy(mixed_precision)
        self.activation_checkpointing = activation_checkpointing

    def shard(self, model: nn.Module) -> nn.Module:
        """Shards a model in place.

        `copy.deepcopy` of the result, as EMA makes it, holds this process's shards, and is no model that runs.
        """
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import fully_shard

        plain = copy.deepcopy(model, {id(p): nn.Parameter(p.to('meta'), p.requires_grad) for p in model.parameters()})
        backbones = [module for module in model.modules() if isinstance(module, PluggedModel)]
        if self.policy.param_dtype is not None and not backbones:
            raise ValueError(
                f'strategy.mixed_precision is for backbones of vitplug, and {type(model).__name__} has none: leave it '
                'out, and set optim_wrapper.type = AmpOptimWrapper'
            )
        model.to(get_device())  # tells mmengine's data preprocessor as well
        mesh = init_device_mesh(get_device(), (dist.get_world_size(),))
        for backbone in backbones:
            self._shard_backbone(backbone, mesh)
        if model not in backbones:
            fully_shard(model, mesh=mesh)
        model.__deepcopy__ = lambda memo: _copy_of_shards(model, plain)
        return model

    def _shard_backbone(self, backbone: PluggedModel, mesh) -> None:
        from torch.distributed.fsdp import fully_shard

        for norm in [module for module in backbone.modules() if isinstance(module, _BatchNorm)]:
            fully_shard(norm, mesh=mesh)  # in the type of its running statistics
        blocks = list(backbone.plugged_blocks())
        plugs = [block.plugs for block in blocks]
        for block in blocks:
            block.with_cp = block.with_cp or self.activation_checkpointing
            # Plugs of a block also act before and after it, and share modules with other blocks.
            block.plugs = nn.Module()
            fully_shard(block, mesh=mesh, mp_policy=replace(self.policy, output_dtype=None))
        backbone.plugs_of_blocks = nn.ModuleList(plugs)
        fully_shard(backbone, mesh=mesh, mp_policy=self.policy)
        del backbone.plugs_of_blocks
        for block, modules in zip(blocks, plugs, strict=True):
            block.plugs = modules
        # Before the parameters are gathered, of which a change would be lost.
        backbone.register_forward_pre_hook(_project, prepend=True)
        if self.policy.param_dtype is not None:
            # Before the cast of fully_shard, which forgets the sizes of images in a padded batch.
            backbone.register_forward_pre_hook(_cast_images(self.policy.param_dtype), prepend=True)


def _project(backbone: nn.Module, args: tuple) -> None:
    """Brings the shards of learned numbers back into the range that their plugs keep them in."""
    for module in backbone.modules() if backbone.training else ():
        if hasattr(module, 'project_parameters'):
            module.project_parameters()


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
        from torch.distributed.tensor import DTensor

        kwargs = kwargs or {}
        drawn = args[0] if args else None
        draws = torch.Tag.nondeterministic_seeded in func.tags and func._schema.is_mutable
        if not draws or not isinstance(drawn, DTensor):
            return func(*args, **kwargs)
        whole = torch.empty(drawn.shape, dtype=drawn.dtype, device=drawn.device)
        func(whole, *args[1:], **kwargs)
        return drawn.copy_(in_shards_of(drawn, whole))


def in_shards_of(sharded: Any, value: Any) -> Any:
    """A whole tensor in the shards of another one of its shape; anything else as it is."""
    from torch.distributed.tensor import DTensor, distribute_tensor

    if not isinstance(value, Tensor) or not isinstance(sharded, DTensor) or value.shape != sharded.shape:
        return value
    return distribute_tensor(value.to(sharded.device), sharded.device_mesh, sharded.placements, src_data_rank=None)


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
    return MixedPrecisionPolicy(**chosen)
