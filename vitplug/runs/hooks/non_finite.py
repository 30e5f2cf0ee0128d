"""Skips batches without a finite loss, which would spoil the weights, and stops after several in a row."""

import json
import math
from collections.abc import Iterator
from itertools import chain
from pathlib import Path

import torch
from mmengine.dist import get_rank
from mmengine.hooks import Hook

from vitplug.compat import register_step_pre_hook
from vitplug.errors.stops import NonFiniteLoss
from vitplug.files.atomic import add_line, check_record_file
from vitplug.registry import HOOKS
from vitplug.tasks import LABELS

from ..processes import any_process
from ..saving.checkpoint_checks import IN_A_ROW
from ..saving.folders import last_checkpoint

RECORDS = 'non_finite.jsonl'
SHOWN_IMAGES = 4
STATISTICS = ('.running_mean', '.running_var')


@HOOKS.register_module()
class NonFiniteLossHook(Hook):
    """Skips steps whose gradients are not finite, and stops after several such iterations in a row.

    An iteration counts if a loss term is infinite or not a number, or if its step was skipped. For each, a line goes
    to `non_finite.jsonl` in the work dir with the iteration, the loss terms, the seed that its draws follow from, and
    path, shapes and labels of each image of the batch. Lines are added to an existing file.

    In fp16 mmengine's loss scaler skips steps by itself while it looks for a scale; these do not count.

    Running statistics, such as those of batch norm, are set back to their values before the batch.

    Of several processes all skip a step if one has to: with sharded gradients each sees its own part of them.

    Args:
        max_consecutive: After how many iterations in a row the training stops.

    Raises:
        ValueError: if `max_consecutive` is less than 1.
        FileExistsError: if the file of records is a link or no regular file.
        NonFiniteLoss: when the training stops; names the iteration, the loss terms and the images. Also at the end of
            a training whose last iteration was such a one, since its weights may give no finite loss any more.
    """

    # Before the logger and the checkpoint, so that no checkpoint is written behind the last of these iterations.
    priority = 'ABOVE_NORMAL'

    def __init__(self, max_consecutive: int = 5):
        if max_consecutive < 1:
            raise ValueError(f'max_consecutive = {max_consecutive!r}: must be at least 1')
        self.max_consecutive = max_consecutive
        self.skipped = False
        self.statistics: list[torch.Tensor] = []
        self.before: list[torch.Tensor] = []

    def before_train(self, runner) -> None:
        """Watches the steps of every optimizer, and finds the running statistics."""
        check_record_file(Path(runner.work_dir, RECORDS))
        for optimizer in optimizers(runner.optim_wrapper):
            register_step_pre_hook(optimizer, self._skip_unless_finite)
        buffers = runner.model.named_buffers()
        self.statistics = [buffer for name, buffer in buffers if name.endswith(STATISTICS)]
        self.before = [buffer.clone() for buffer in self.statistics]

    def before_train_iter(self, runner, batch_idx, data_batch=None) -> None:
        """Keeps the running statistics as they are before the batch."""
        if self.statistics:
            torch._foreach_copy_(self.before, self.statistics)

    def after_train_iter(self, runner, batch_idx, data_batch=None, outputs=None) -> None:
        """Counts, records and stops."""
        losses = {name: torch.as_tensor(value).item() for name, value in (outputs or {}).items() if 'loss' in name}
        bad = any_process(self.skipped or not all(map(math.isfinite, losses.values())))
        self.skipped = False
        count = non_finite_in_a_row(runner) + 1 if bad else 0
        runner.message_hub.update_info(IN_A_ROW, count)  # saved with the checkpoint
        if not bad:
            return
        if self.statistics:
            torch._foreach_copy_(self.statistics, self.before)
        samples = list(describe_samples(data_batch))
        path = Path(runner.work_dir, RECORDS)
        position = dict(iteration=runner.iter + 1, epoch=runner.epoch, seed=runner.seed, rank=get_rank())
        add_line(path, json.dumps(position | dict(losses=losses, samples=samples), default=str))
        message = (
            f'loss or gradients of iteration {runner.iter + 1} are not finite ({count} in a row): '
            f'{", ".join(f"{name} = {value:g}" for name, value in losses.items())}; images: {_names(samples)}; '
            f'all of it is in {path}'
        )
        if count < self.max_consecutive:
            runner.logger.warning(f'Step skipped: {message}')
            return
        raise NonFiniteLoss(f'{message}{_advice(runner)}')

    def after_train(self, runner) -> None:
        """Refuses to call a training successful that ended on skipped steps."""
        count = non_finite_in_a_row(runner)
        if count:
            path = Path(runner.work_dir, RECORDS)
            raise NonFiniteLoss(f'the last {count} iterations had no finite loss or gradients: {path}{_advice(runner)}')

    def _skip_unless_finite(self, optimizer: torch.optim.Optimizer, args, kwargs) -> None:
        grads = [local(p.grad) for group in optimizer.param_groups for p in group['params'] if p.grad is not None]
        # One number to wait for, however many parameters there are; the norm of a tensor is finite where the tensor
        # is, unless its squares leave float32, where no step should be taken either.
        finite = not grads or bool(torch.stack(torch._foreach_norm(grads)).sum().isfinite())
        if any_process(not finite):
            self.skipped = True
            # Optimizers of torch leave parameters without a gradient, and their state, as they are.
            optimizer.zero_grad(set_to_none=True)


def non_finite_in_a_row(runner) -> int:
    """How many of the last iterations had no finite loss or gradients."""
    return runner.message_hub.runtime_info.get(IN_A_ROW, 0)


def is_finite(runner) -> bool:
    """Whether the last iteration, the weights and the optimizer's state are finite, and no buffer is NaN.

    Buffers may be masks, which hold infinities. All processes get the same answer, and all have to ask.
    """
    states = (state for optimizer in optimizers(runner.optim_wrapper) for state in optimizer.state.values())
    moments = (value for state in states for value in state.values() if torch.is_tensor(value))
    finite = (
        not non_finite_in_a_row(runner)
        and all(local(tensor).isfinite().all() for tensor in chain(runner.model.parameters(), moments))
        and not any(local(buffer).isnan().any() for buffer in runner.model.buffers())
    )
    return not any_process(not finite)


def local(tensor: torch.Tensor) -> torch.Tensor:
    """The part of a tensor that this process has: its shard of a DTensor, all of another."""
    return tensor.to_local() if hasattr(tensor, 'to_local') else tensor


def _advice(runner) -> str:
    last = last_checkpoint(runner.work_dir)
    return (
        ': look at these images and labels, lower the learning rate, clip gradients (optim_wrapper.clip_grad), or use '
        'bfloat16 instead of float16' + (f'; --resume goes on from {last}' if last else '')
    )


def describe_samples(data_batch) -> Iterator[dict]:
    """Meta information and labels of each sample of a batch, or the shapes of plain tensors."""
    samples = data_batch.get('data_samples', []) if isinstance(data_batch, dict) else []
    recorded = {name: label for name, label in LABELS.items() if label.values}
    for sample in samples:
        labels = {name: label.values(getattr(sample, name)) for name, label in recorded.items() if name in sample}
        yield {**sample.metainfo, **labels}
    if not len(samples) and isinstance(data_batch, dict):
        yield {name: list(value.shape) for name, value in data_batch.items() if isinstance(value, torch.Tensor)}


def _names(samples: list[dict]) -> str:
    names = [str(sample['img_path']) for sample in samples if sample.get('img_path')]
    more = f' and {len(names) - SHOWN_IMAGES} more' if len(names) > SHOWN_IMAGES else ''
    return (', '.join(names[:SHOWN_IMAGES]) or 'without paths') + more


def optimizers(optim_wrapper) -> Iterator[torch.optim.Optimizer]:
    """The optimizers of a training."""
    # An OptimWrapperDict holds one wrapper for each part of the model.
    wrappers = optim_wrapper.optim_wrappers.values() if hasattr(optim_wrapper, 'optim_wrappers') else [optim_wrapper]
    for wrapper in wrappers:
        yield wrapper.optimizer
