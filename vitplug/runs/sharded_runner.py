"""mmengine's runner for a strategy that shards the model; its checkpoints are files like those of any training."""

import copy
from collections.abc import Mapping
from typing import Any

from mmengine import dist
from mmengine.fileio import join_path
from mmengine.model import convert_sync_batchnorm
from mmengine.registry import STRATEGIES
from mmengine.runner import Runner
from mmengine.runner.checkpoint import _load_checkpoint, _load_checkpoint_to_model, save_checkpoint
from mmengine.utils import apply_to
from torch import Tensor, nn
from torch.distributed.tensor import DTensor, distribute_tensor

from .sharding import reshard


class ShardedRunner(Runner):
    """mmengine's `Runner`, whose model and optimizer `cfg.strategy` shards.

    mmengine's own runner for strategies, `FlexibleRunner`, calls hooks in another order, so that checkpoints are loaded
    before EMA and vitplug's hooks are ready for them.
    """

    def wrap_model(self, model_wrapper_cfg: dict | None, model: nn.Module) -> nn.Module:
        """Shards the model in place, and keeps a whole one whose weights are initialised."""
        if self.cfg.get('sync_bn'):
            model = convert_sync_batchnorm(model, self.cfg.sync_bn)
        self.whole = copy.deepcopy(model)
        return STRATEGIES.build(self.cfg.strategy).shard(model)

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
        """Loads a checkpoint into the shards of this process; returns its content."""
        checkpoint = self._split(_load_checkpoint(filename, map_location='cpu'))
        self.call_hook('after_load_checkpoint', checkpoint=checkpoint)
        checkpoint = _load_checkpoint_to_model(self.model, checkpoint, strict, revise_keys=list(revise_keys))
        self._has_loaded = True
        self.logger.info(f'Load checkpoint from {filename}')
        return checkpoint

    def _split(self, checkpoint: dict) -> dict:
        """The content of a file, with this process's shards where the model and its optimizer are sharded."""
        checkpoint = checkpoint if 'state_dict' in checkpoint else dict(state_dict=checkpoint)
        weights = self.model.state_dict()
        for part in (checkpoint['state_dict'], checkpoint.get('ema_state_dict', {})):
            part.update({key: in_shards_of(weights.get(key.removeprefix('module.')), part[key]) for key in part})
        if self._resume:
            parameters = [p for group in self.optim_wrapper.param_groups for p in group['params']]
            for index, state in checkpoint.get('optimizer', {}).get('state', {}).items():
                state.update({key: in_shards_of(parameters[index], state[key]) for key in state})
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
        """Writes what mmengine's runner writes; all processes call it together, and the first one gets whole tensors.

        `file_client_args` are not used.
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
        whole = apply_to(checkpoint, lambda value: isinstance(value, Tensor), whole_in_first)
        whole['state_dict']._metadata = checkpoint['state_dict']._metadata  # torch's versions of modules
        if dist.is_main_process():
            path = join_path(out_dir, filename, backend_args=backend_args)
            save_checkpoint(whole, path, backend_args=backend_args)
        dist.barrier()


def in_shards_of(sharded: Any, value: Any) -> Any:
    """A whole tensor in the shards of another one of its shape; anything else as it is."""
    if not isinstance(value, Tensor) or not isinstance(sharded, DTensor) or value.shape != sharded.shape:
        return value
    return distribute_tensor(value.to(sharded.device), sharded.device_mesh, sharded.placements, src_data_rank=None)


def whole_in_first(value: Tensor) -> Tensor | None:
    """A tensor on the CPU, put together if it is sharded, in the first process; None in the others, to spare memory."""
    whole = value.full_tensor() if isinstance(value, DTensor) else value
    return whole.cpu() if dist.is_main_process() else None
