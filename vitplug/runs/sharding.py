"""Sharded training: parameters, gradients and optimizer states spread over processes by torch's fully_shard (FSDP2)."""

import copy
from collections.abc import Iterator
from contextlib import contextmanager

from mmengine import dist
from mmengine.device import get_device
from torch import nn

from vitplug.hosting import PluggedModel
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

    Raises:
        ImportError: If torch has no `fully_shard`: it has from 2.6 on.
    """

    def shard(self, model: nn.Module) -> nn.Module:
        """Shards a model in place.

        `copy.deepcopy` of the result, as EMA makes it, holds this process's shards, and is no model that runs.
        """
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import fully_shard

        plain = copy.deepcopy(model, {id(p): nn.Parameter(p.to('meta'), p.requires_grad) for p in model.parameters()})
        model.to(get_device())  # tells mmengine's data preprocessor as well
        mesh = init_device_mesh(get_device(), (dist.get_world_size(),))
        for backbone in [module for module in model.modules() if isinstance(module, PluggedModel)]:
            _shard_backbone(backbone, mesh)
        if not isinstance(model, PluggedModel):
            fully_shard(model, mesh=mesh)
        model.__deepcopy__ = lambda memo: _copy_of_shards(model, plain)
        return model


def _shard_backbone(backbone: PluggedModel, mesh) -> None:
    from torch.distributed.fsdp import fully_shard

    blocks = list(backbone.plugged_blocks())
    plugs = [block.plugs for block in blocks]
    for block in blocks:
        # Plugs of a block also act before and after it, and share modules with other blocks.
        block.plugs = nn.Module()
        fully_shard(block, mesh=mesh)
    backbone.plugs_of_blocks = nn.ModuleList(plugs)
    fully_shard(backbone, mesh=mesh)
    del backbone.plugs_of_blocks
    for block, modules in zip(blocks, plugs, strict=True):
        block.plugs = modules
    # Before the parameters are gathered, of which a change would be lost.
    backbone.register_forward_pre_hook(_project, prepend=True)


def _project(backbone: nn.Module, args: tuple) -> None:
    """Brings the shards of learned numbers back into the range that their plugs keep them in."""
    for module in backbone.modules() if backbone.training else ():
        if hasattr(module, 'project_parameters'):
            module.project_parameters()


def _copy_of_shards(model: nn.Module, plain: nn.Module) -> nn.Module:
    """A model of the original classes with copies of a sharded model's shards and buffers."""
    copied = copy.deepcopy(plain)
    copied.load_state_dict({name: copy.deepcopy(value) for name, value in model.state_dict().items()}, assign=True)
    return copied


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
