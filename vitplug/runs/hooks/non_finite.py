"""Skips steps whose gradients are not finite, which would spoil the weights, and stops after several in a row."""

import torch
from mmengine import dist
from mmengine.hooks import Hook
from mmengine.optim import AmpOptimWrapper

from vitplug.errors import TrainingStopped
from vitplug.registry import HOOKS

SHOWN_IMAGES = 4
STATISTICS = ('.running_mean', '.running_var')


@HOOKS.register_module()
class NonFiniteLossHook(Hook):
    """Skips steps whose gradients are not finite, names the images, and stops after several such steps in a row.

    All processes skip a step if one has to. A step asks the device for one number, however many losses there are. In
    mixed precision mmengine's loss scaler skips them; those of a dynamic scale above 1, which it halves each time, do
    not count. Running statistics, such as those of batch norm, are set back to the last finite step.

    Args:
        max_consecutive: After how many skipped steps in a row the training stops.

    Raises:
        TrainingStopped: When the training stops; names the iteration, the loss terms and the images.
    """

    # Before the logger and the checkpoint: no checkpoint is written behind the last of these steps.
    priority = 'ABOVE_NORMAL'

    def __init__(self, max_consecutive: int = 5):
        self.max_consecutive = max_consecutive
        self.in_a_row, self.asked, self.skipped = 0, False, False
        self.statistics: list[torch.Tensor] = []
        self.before: list[torch.Tensor] = []

    def before_train(self, runner) -> None:
        """Watches the steps of the optimizer, and finds the running statistics."""
        self.wrapper = runner.optim_wrapper
        self.wrapper.optimizer.register_step_pre_hook(self.skip_unless_finite)
        self.statistics = [buffer for name, buffer in runner.model.named_buffers() if name.endswith(STATISTICS)]
        self.before = [buffer.clone() for buffer in self.statistics]

    def skip_unless_finite(self, optimizer: torch.optim.Optimizer, args, kwargs) -> None:
        """Takes the gradients away, before a step, if one of them is not finite in any process."""
        self.asked = True
        grads = [p.grad for group in optimizer.param_groups for p in group['params'] if p.grad is not None]
        shards = [grad.to_local() if hasattr(grad, 'to_local') else grad for grad in grads]
        # The norm of a tensor is finite where the tensor is, unless its squares leave float32, where no step should be
        # taken either. A process without gradients asks, too: the others would wait for it.
        norm = torch.stack(torch._foreach_norm(shards)).sum() if shards else torch.zeros(())
        finite = norm.isfinite().to(torch.int32)
        dist.all_reduce(finite, op='min')  # does nothing for a single process
        if finite:
            self.in_a_row = 0
            _copy(self.before, self.statistics)
            return
        self._skip()
        # Optimizers of torch leave parameters without a gradient, and their state, as they are.
        optimizer.zero_grad(set_to_none=True)

    def _skip(self) -> None:
        amp = self.wrapper if isinstance(self.wrapper, AmpOptimWrapper) else None
        counts = not amp or amp._scale_update_param is not None or amp.loss_scaler.get_scale() < 1
        self.in_a_row, self.skipped = self.in_a_row + counts, counts
        _copy(self.statistics, self.before)

    def after_train_iter(self, runner, batch_idx, data_batch=None, outputs=None) -> None:
        """Says that a step was skipped, and stops after several in a row."""
        if not self.asked and isinstance(self.wrapper, AmpOptimWrapper) and self.wrapper.should_update():
            # The scaler has not called the optimizer.
            self._skip()
        self.asked = False
        if not self.skipped:
            return
        self.skipped = False
        losses = {name: torch.as_tensor(value).item() for name, value in (outputs or {}).items() if 'loss' in name}
        message = (
            f'the gradients of iteration {runner.iter + 1} are not finite ({self.in_a_row} in a row): '
            f'{", ".join(f"{name} = {value:g}" for name, value in losses.items())}; images of this process in the last '
            f'batch: {_images(data_batch)}'
        )
        if self.in_a_row < self.max_consecutive:
            runner.logger.warning(f'Step skipped: {message}')
            return
        raise TrainingStopped(
            f'{message}: look at these images and labels, lower the learning rate, clip gradients '
            '(optim_wrapper.clip_grad), or use bfloat16 instead of float16; --resume goes on from the last checkpoint'
        )


def _copy(targets: list[torch.Tensor], sources: list[torch.Tensor]) -> None:
    if targets:
        torch._foreach_copy_(targets, sources)


def _images(data_batch) -> str:
    samples = data_batch.get('data_samples', ()) if isinstance(data_batch, dict) else ()
    names = [str(sample.get('img_path')) for sample in samples if sample.get('img_path')]
    return ', '.join([*names[:SHOWN_IMAGES], *(['...'] if len(names) > SHOWN_IMAGES else [])]) or 'without paths'
