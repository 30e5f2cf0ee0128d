"""Keeps a batch that gives no finite loss from spoiling the weights, and stops where it is not just one batch."""

import json
import math
from collections.abc import Iterator
from pathlib import Path

import torch
from mmengine.dist import get_rank
from mmengine.hooks import Hook

from vitplug.registry import HOOKS

from ..stops import NonFiniteLoss

RECORDS = 'non_finite.jsonl'
SHOWN_IMAGES = 4

# What a sample is labelled with, under the names that mmpretrain, mmseg and mmdet give it.
LABELS = {
    'gt_label': lambda label: label.tolist(),
    'gt_sem_seg': lambda seg_map: seg_map.data.unique().tolist(),
    'gt_instances': lambda instances: instances.labels.tolist(),
}


@HOOKS.register_module()
class NonFiniteLossHook(Hook):
    """Skips steps whose gradients are not finite, and stops after several such iterations in a row.

    An iteration counts if a loss term is infinite or not a number, or if its step was skipped. For each, a line goes
    to `non_finite.jsonl` in the work dir with the iteration, the loss terms, the seed that its draws follow from, and
    path, shapes and labels of each image of the batch. Lines are added to a file that is there.

    In fp16 mmengine's loss scaler skips steps by itself while it looks for a scale; these do not count.

    Args:
        max_consecutive: After how many iterations in a row the training stops.

    Raises:
        ValueError: if `max_consecutive` is less than 1.
        NonFiniteLoss: when the training stops; names the iteration, the loss terms and the images.
    """

    # Before the logger and the checkpoint, so that no checkpoint is written behind the last of these iterations.
    priority = 'ABOVE_NORMAL'

    def __init__(self, max_consecutive: int = 5):
        if max_consecutive < 1:
            raise ValueError(f'max_consecutive = {max_consecutive!r}: must be at least 1')
        self.max_consecutive = max_consecutive
        self.skipped = False

    def before_train(self, runner) -> None:
        """Watches the steps of every optimizer."""
        for optimizer in _optimizers(runner.optim_wrapper):
            optimizer.register_step_pre_hook(self._skip_unless_finite)

    def after_train_iter(self, runner, batch_idx, data_batch=None, outputs=None) -> None:
        """Counts, records and stops."""
        losses = {name: torch.as_tensor(value).item() for name, value in (outputs or {}).items() if 'loss' in name}
        bad = self.skipped or not all(map(math.isfinite, losses.values()))
        self.skipped = False
        hub = runner.message_hub  # saved with the checkpoint
        count = hub.runtime_info.get('non_finite_in_a_row', 0) + 1 if bad else 0
        hub.update_info('non_finite_in_a_row', count)
        if not bad:
            return
        samples = list(describe_samples(data_batch))
        path = Path(runner.work_dir, RECORDS)
        position = dict(iteration=runner.iter + 1, epoch=runner.epoch, seed=runner.seed, rank=get_rank())
        with path.open('a') as file:
            file.write(json.dumps(position | dict(losses=losses, samples=samples), default=str) + '\n')
        message = (
            f'loss or gradients of iteration {runner.iter + 1} are not finite ({count} in a row): '
            f'{", ".join(f"{name} = {value:g}" for name, value in losses.items())}; images: {_names(samples)}; '
            f'all of it is in {path}'
        )
        if count < self.max_consecutive:
            runner.logger.warning(f'Step skipped: {message}')
            return
        raise NonFiniteLoss(
            f'{message}: look at these images and labels, lower the learning rate, clip gradients '
            '(optim_wrapper.clip_grad), or use bfloat16 instead of float16'
        )

    def _skip_unless_finite(self, optimizer: torch.optim.Optimizer, args, kwargs) -> None:
        parameters = [p for group in optimizer.param_groups for p in group['params'] if p.grad is not None]
        if not parameters:
            return
        # One number to wait for, however many parameters there are; the norm of a tensor is finite where the tensor
        # is, unless its squares leave float32, where no step should be taken either.
        if not torch.stack(torch._foreach_norm([p.grad for p in parameters])).sum().isfinite():
            self.skipped = True
            # Optimizers of torch leave parameters without a gradient, and their state, as they are.
            optimizer.zero_grad(set_to_none=True)


def describe_samples(data_batch) -> Iterator[dict]:
    """What is known of each sample of a batch: its meta information and its labels, or the shapes of plain tensors."""
    samples = data_batch.get('data_samples', []) if isinstance(data_batch, dict) else []
    for sample in samples:
        labels = {name: read(getattr(sample, name)) for name, read in LABELS.items() if name in sample}
        yield {**sample.metainfo, **labels}
    if not len(samples) and isinstance(data_batch, dict):
        yield {name: list(value.shape) for name, value in data_batch.items() if isinstance(value, torch.Tensor)}


def _names(samples: list[dict]) -> str:
    names = [str(sample['img_path']) for sample in samples if sample.get('img_path')]
    more = f' and {len(names) - SHOWN_IMAGES} more' if len(names) > SHOWN_IMAGES else ''
    return (', '.join(names[:SHOWN_IMAGES]) or 'without paths') + more


def _optimizers(optim_wrapper) -> Iterator[torch.optim.Optimizer]:
    # An OptimWrapperDict holds one wrapper for each part of the model.
    wrappers = optim_wrapper.optim_wrappers.values() if hasattr(optim_wrapper, 'optim_wrappers') else [optim_wrapper]
    for wrapper in wrappers:
        yield wrapper.optimizer
