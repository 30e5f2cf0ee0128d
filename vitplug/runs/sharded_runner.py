"""mmengine's runner for a strategy that shards the model, and its checkpoints: :mod:`vitplug.checkpoints.shards`."""

import copy
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
import torch.distributed.checkpoint as dcp
from mmengine import dist
from mmengine.model import convert_sync_batchnorm
from mmengine.optim import BaseOptimWrapper
from mmengine.registry import STRATEGIES
from mmengine.runner import Runner
from mmengine.runner.checkpoint import _load_checkpoint, _load_checkpoint_to_model
from torch import Tensor, nn
from torch.distributed.tensor import DTensor, distribute_tensor, empty

from vitplug.checkpoints.shards import REST, read_shards, sharded_parts
from vitplug.checkpoints.through_mmengine import bare_model, load_from_file
from vitplug.files.named import is_sharded

from .hooks.checkpoint import discard, make_way
from .sharding import reshard


class ShardedRunner(Runner):
    """mmengine's `Runner`, whose model, optimizer and checkpoints `cfg.strategy` shards.

    mmengine's own runner for strategies, `FlexibleRunner`, calls hooks in another order, so that checkpoints are loaded
    before EMA and vitplug's hooks are ready for them.
    """

    def wrap_model(self, model_wrapper_cfg: dict | None, model: nn.Module) -> nn.Module:
        """Shards the model in place, and keeps a whole one whose weights are initialised."""
        if self.cfg.get('sync_bn'):
            model = convert_sync_batchnorm(model, self.cfg.sync_bn)
        self.whole = copy.deepcopy(model)
        STRATEGIES.build(self.cfg.strategy).shard(bare_model(model))  # in what merges its predictions in a test
        return model

    def _init_model_weights(self) -> None:
        """Draws what one process draws; all have the same seed."""
        self.whole.init_weights()
        weights = self.model.state_dict()
        for name, value in self.whole.state_dict().items():
            weights[name].copy_(in_shards_of(weights[name], value))

    def load_or_resume(self) -> None:
        """Loads the checkpoint, in tests, too, and frees the whole model, which a training has initialised by then."""
        self.whole = None
        super().load_or_resume()

    def call_hook(self, fn_name: str, **kwargs) -> None:
        """Calls the hooks; after a batch of a validation they find sharded parameters."""
        if fn_name in ('after_val_iter', 'after_test_iter'):
            reshard(self.model)
        super().call_hook(fn_name, **kwargs)

    def load_checkpoint(
        self, filename: str, map_location='cpu', strict: bool = False, revise_keys=((r'^module\.', ''),)
    ):
        """Loads a checkpoint, sharded or whole, into the shards of this process; returns its content."""
        checkpoint = self._read_shards(filename) if is_sharded(filename) else self._split(filename)
        self.call_hook('after_load_checkpoint', checkpoint=checkpoint)
        checkpoint = _load_checkpoint_to_model(self.model, checkpoint, strict, revise_keys=list(revise_keys))
        self._has_loaded = True
        self.logger.info(f'Load checkpoint from {filename}')
        return checkpoint

    def _read_shards(self, folder: str) -> dict:
        shard = next(value for value in self.model.parameters() if isinstance(value, DTensor))

        def allocate(size, dtype):
            return empty(size, dtype=dtype, device_mesh=shard.device_mesh, placements=shard.placements)

        return read_shards(Path(folder), load_from_file(str(Path(folder, REST))), allocate)

    def _split(self, filename: str) -> dict:
        """The content of a file, with this process's shards where the model and its optimizer are sharded."""
        checkpoint = _load_checkpoint(filename, map_location='cpu')
        checkpoint = checkpoint if 'state_dict' in checkpoint else dict(state_dict=checkpoint)
        weights, parameters = bare_model(self.model).state_dict(), []
        if isinstance(self.optim_wrapper, BaseOptimWrapper):  # a test has none
            parameters = [p for group in self.optim_wrapper.param_groups for p in group['params']]
        for place, part in sharded_parts(checkpoint):
            index = place.removeprefix('optimizer/state/')
            if index == place:
                part.update({key: in_shards_of(weights.get(key.removeprefix('module.')), part[key]) for key in part})
            elif parameters:
                part.update({key: in_shards_of(parameters[int(index)], part[key]) for key in part})
        return checkpoint

    def save_checkpoint(
        self,
        out_dir: str,
        filename: str,
        file_client_args: dict | None = None,
        save_optimizer: bool = True,
        save_param_scheduler: bool = True,
        meta: Mapping | None = None,
        by_epoch: bool = True,
        backend_args: dict | None = None,
    ) -> None:
        """Writes what mmengine's runner writes, as a folder of shards; all processes call it together.

        `file_client_args` and `backend_args` are not used: all processes write to a folder that they share.
        """
        position = (self.epoch + 1, self.iter) if by_epoch else (self.epoch, self.iter + 1)
        meta = dict(zip(('epoch', 'iter'), position, strict=True)) | dict(meta or {})
        meta.update(cfg=self.cfg.pretty_text, seed=self.seed, experiment_name=self.experiment_name)
        meta['dataset_meta'] = getattr(self.train_dataloader.dataset, 'metainfo', None)
        checkpoint = dict(meta=meta, state_dict=self.model.state_dict(), message_hub=self.message_hub.state_dict())
        if save_optimizer:
            checkpoint['optimizer'] = self.optim_wrapper.state_dict()
        if save_param_scheduler and self.param_schedulers is not None:
            checkpoint['param_schedulers'] = [one.state_dict() for one in self.param_schedulers]
        self.call_hook('before_save_checkpoint', checkpoint=checkpoint)
        _write_shards(checkpoint, Path(out_dir, filename))


def in_shards_of(sharded: Any, value: Any) -> Any:
    """A whole tensor in the shards of another one of its shape; anything else as it is."""
    if not isinstance(value, Tensor) or not isinstance(sharded, DTensor) or value.shape != sharded.shape:
        return value
    return distribute_tensor(value.to(sharded.device), sharded.device_mesh, sharded.placements, src_data_rank=None)


def _write_shards(checkpoint: dict[str, Any], folder: Path) -> None:
    """Writes a checkpoint as a folder, which counts as one when torch writes its metadata, at the end."""
    tensors, part = {}, folder.with_name(f'{folder.name}.part')
    if optimizer := checkpoint.get('optimizer'):  # in dicts of its own: these are the optimizer's
        states = {index: dict(state) for index, state in optimizer['state'].items()}
        checkpoint['optimizer'] = dict(optimizer, state=states)
    for place, held in sharded_parts(checkpoint):
        for name in [name for name, value in held.items() if isinstance(value, DTensor)]:
            tensors[f'{place}/{name}'] = held.pop(name).detach()
    if dist.is_main_process():
        shutil.rmtree(part, ignore_errors=True)
        part.mkdir(parents=True)
        torch.save(checkpoint, part / REST)
    dist.barrier()
    dcp.save(tensors, storage_writer=dcp.FileSystemWriter(part))
    dist.barrier()
    if dist.is_main_process():
        # What has the name already, such as an earlier interruption's file or folder, goes when the new one is whole.
        before = make_way(folder)
        part.rename(folder)
        discard(before)
    dist.barrier()
