"""mmengine's runner for a strategy that shards the model."""

import time
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path

import mmengine
from mmengine import dist
from mmengine.fileio import join_path
from mmengine.model import convert_sync_batchnorm
from mmengine.optim import BaseOptimWrapper
from mmengine.registry import STRATEGIES
from mmengine.runner import Runner
from mmengine.runner.checkpoint import _load_checkpoint, _load_checkpoint_to_model, save_checkpoint
from mmengine.utils import get_git_hash
from torch import nn
from torch.distributed import ProcessGroup, new_group
from torch.distributed.tensor import DTensor, empty

from vitplug.checkpoints.safe_loading import load_safely
from vitplug.checkpoints.shards import REST, read_shards
from vitplug.errors.stops import CheckpointNotRead
from vitplug.files.named import is_sharded

from .hooks.non_finite import optimizers
from .saving.shards import Unnamed, gathered, split, write_shards
from .sharding import FSDP2Strategy, first_values, reshard


class ShardedRunner(Runner):
    """mmengine's `Runner`, whose model, optimizer and checkpoints `cfg.strategy` shards.

    mmengine's own runner for strategies, `FlexibleRunner`, calls hooks in another order, so that checkpoints are loaded
    before EMA and vitplug's hooks are ready for them.
    """

    @cached_property
    def strategy(self) -> FSDP2Strategy:
        """The strategy of the config."""
        return STRATEGIES.build(self.cfg.strategy)

    def build_model(self, model: nn.Module | dict) -> nn.Module:
        """Builds the model."""
        return self.strategy.build(model) if isinstance(model, dict) else model

    def wrap_model(self, model_wrapper_cfg: dict | None, model: nn.Module) -> nn.Module:
        """Shards the model in place."""
        if self.cfg.get('sync_bn'):
            model = convert_sync_batchnorm(model, self.cfg.sync_bn)
        return self.strategy.shard(model)

    def _init_model_weights(self) -> None:
        with first_values():
            self.model.init_weights()

    def call_hook(self, fn_name: str, **kwargs) -> None:
        """Calls the hooks; after a batch of a validation they find sharded parameters."""
        if fn_name in ('after_val_iter', 'after_test_iter'):
            reshard(self.model)
        super().call_hook(fn_name, **kwargs)

    # --- checkpoints ---

    def load_checkpoint(
        self, filename: str, map_location='cpu', strict: bool = False, revise_keys=((r'^module\.', ''),)
    ):
        """Loads a checkpoint, sharded or whole, into the shards of this process; returns its content."""
        checkpoint = self._read(filename)
        self.call_hook('after_load_checkpoint', checkpoint=checkpoint)
        checkpoint = _load_checkpoint_to_model(self.model, checkpoint, strict, revise_keys=list(revise_keys))
        self._has_loaded = True
        self.logger.info(f'Load checkpoint from {filename}')
        return checkpoint

    def _read(self, filename: str) -> dict:
        if not is_sharded(filename):
            checkpoint = _load_checkpoint(filename, map_location='cpu')
            checkpoint = checkpoint if 'state_dict' in checkpoint else dict(state_dict=checkpoint)
            built = isinstance(self.optim_wrapper, BaseOptimWrapper)  # a test has none
            split(checkpoint, self.model, list(optimizers(self.optim_wrapper)) if built else [])
            return checkpoint
        shard = next(value for value in self.model.parameters() if isinstance(value, DTensor))

        def allocate(size, dtype):
            return empty(size, dtype=dtype, device_mesh=shard.device_mesh, placements=shard.placements)

        try:
            return read_shards(Path(filename), load_safely(str(Path(filename, REST))), allocate)
        except ValueError as error:
            raise CheckpointNotRead(str(error)) from error

    def save_checkpoint(self, *args, **kwargs) -> None:
        """Writes what mmengine's runner writes, with all processes: they call it together.

        Args:
            *args, **kwargs: As :meth:`start_checkpoint`.
        """
        if (unnamed := self.start_checkpoint(*args, **kwargs)) is not None:
            unnamed.name()

    def start_checkpoint(
        self,
        out_dir: str,
        filename: str,
        file_client_args: dict | None = None,
        save_optimizer: bool = True,
        save_param_scheduler: bool = True,
        meta: Mapping | None = None,
        by_epoch: bool = True,
        backend_args: dict | None = None,
    ) -> Unnamed | None:
        """Starts to write a checkpoint, with all processes: they call it together.

        Args:
            out_dir: Folder of the checkpoint.
            filename: Name of the checkpoint.
            file_client_args: Not used.
            save_optimizer: Whether to write the state of the optimizer.
            save_param_scheduler: Whether to write the states of schedulers.
            meta: Overwrites the position in the training.
            by_epoch: Whether the position is after an epoch, or after an iteration.
            backend_args: Where a single file is written.

        Returns:
            Shards that wait for their name; None for a single file, which is written.
        """
        position = (self.epoch + 1, self.iter) if by_epoch else (self.epoch, self.iter + 1)
        meta = dict(zip(('epoch', 'iter'), position, strict=True)) | dict(meta or {})
        meta.update(
            cfg=self.cfg.pretty_text,
            seed=self.seed,
            experiment_name=self.experiment_name,
            time=time.strftime('%Y%m%d_%H%M%S', time.localtime()),
            mmengine_version=mmengine.__version__ + get_git_hash(),
        )
        if hasattr(self.train_dataloader.dataset, 'metainfo'):
            meta.update(dataset_meta=self.train_dataloader.dataset.metainfo)
        checkpoint = dict(meta=meta, state_dict=self.model.state_dict(), message_hub=self.message_hub.state_dict())
        if save_optimizer:
            checkpoint['optimizer'] = self.optim_wrapper.state_dict()
        if save_param_scheduler and self.param_schedulers is not None:
            checkpoint['param_schedulers'] = _states(self.param_schedulers)
        self.call_hook('before_save_checkpoint', checkpoint=checkpoint)
        path = join_path(out_dir, filename, backend_args=backend_args)
        if self.strategy.checkpoints == 'shards':
            return write_shards(checkpoint, path, self._writers)
        checkpoint = gathered(checkpoint)
        if dist.is_main_process():
            save_checkpoint(checkpoint, path, backend_args=backend_args)
        return None

    @cached_property
    def _writers(self) -> ProcessGroup | None:
        """All processes, for shards that are written while the training goes on and uses its own group."""
        return new_group(backend='gloo') if self.strategy.async_checkpoints else None


def _states(schedulers: Mapping | list) -> dict | list:
    """States of schedulers, which several optimizers have by name."""
    if isinstance(schedulers, Mapping):
        return {name: [one.state_dict() for one in several] for name, several in schedulers.items()}
    return [one.state_dict() for one in schedulers]
