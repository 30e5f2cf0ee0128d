"""The schedule of an experiment on one's own data: batches, learning rate, warm-up and what is kept."""

import math
from collections.abc import Iterator
from dataclasses import dataclass

from mmengine.config import Config

from vitplug.config.text import Code

# A batch has at most this part of an epoch's images, so that small data is trained in many steps, and never one image
# alone, which batch norms of one value cannot train on.
STEPS_OF_AN_EPOCH = 10
SMALLEST_BATCH = 2
# A training starts with a tenth of its iterations, or this many, at a rising learning rate.
LONGEST_WARM_UP = 1000
VALIDATIONS = 10  # of a training that is counted in iterations
# Beside the best one; the checkpoints of all epochs would fill a disk.
KEPT = dict(max_keep_ckpts=2, save_best='auto')
# Optimizers whose steps grow with the gradient; those of all others (Adam, LAMB ...) do not.
LINEAR = ('SGD',)


@dataclass(frozen=True)
class Rate:
    """A learning rate.

    Attributes:
        value: The rate; None where the base has none for the whole model.
        base_batch: The batch that the base's rate is for, in all processes together; None if the base does not say.
        reason: Where it comes from.
    """

    value: float | None
    base_batch: int | None
    reason: str


@dataclass(frozen=True)
class Schedule:
    """A training of some epochs, counted as its base counts: a warm-up, then half a cosine.

    Attributes:
        images: Number of training images.
        batch: Number of images in a batch.
        epochs: Length of the training.
        by_epoch: Whether the base counts epochs, and not iterations.
        rate: The learning rate.
    """

    images: int
    batch: int
    epochs: int
    by_epoch: bool
    rate: Rate

    @classmethod
    def of(cls, cfg: Config, images: int, epochs: int, batch: int | None = None, lr: float | None = None) -> 'Schedule':
        """The schedule for a base.

        Args:
            cfg: The base.
            images: Number of training images.
            epochs: Length of the training.
            batch: Images of a batch; None for the base's, but less for small data.
            lr: Learning rate; None for the base's, scaled to the batch.

        Raises:
            ValueError: if an option is out of its range, or the base has no learning rate to change.
        """
        if epochs < 1:
            raise ValueError(f'--epochs {epochs}: expected at least 1')
        if batch is not None and not 1 <= batch <= images:
            raise ValueError(f'--batch-size {batch}: expected 1 to {images}, the number of training images')
        batch = batch or _fitting_batch(cfg.train_dataloader.batch_size, images)
        return cls(images, batch, epochs, 'max_iters' not in cfg.train_cfg, _rate(cfg, batch, lr))

    @property
    def steps(self) -> int:
        """Iterations of an epoch."""
        return math.ceil(self.images / self.batch)

    @property
    def total(self) -> int:
        """Iterations of the training."""
        return self.epochs * self.steps

    @property
    def warm_up(self) -> int:
        """Iterations at a rising learning rate; none where it would be one, over which mmengine's never ends."""
        steps = min(LONGEST_WARM_UP, self.total // 10)
        return steps if steps > 1 else 0

    @property
    def val_interval(self) -> int:
        """Iterations from one validation to the next."""
        return self.steps if self.by_epoch else max(1, self.total // VALIDATIONS)

    def settings(self) -> Iterator[tuple[str, object]]:
        """The settings of a config; they name `batch_size`, which is a variable of it."""
        if self.by_epoch:
            yield 'max_epochs', self.epochs
            loop = dict(type='EpochBasedTrainLoop', max_epochs=Code('max_epochs'), val_interval=1)
            end = dict(by_epoch=True, begin=0, end=Code('max_epochs'), convert_to_iter_based=True)
        else:
            yield 'max_iters', self.total
            yield 'val_interval', self.val_interval
            loop = dict(type='IterBasedTrainLoop', max_iters=Code('max_iters'), val_interval=Code('val_interval'))
            end = dict(by_epoch=False, begin=0, end=Code('max_iters'))
        yield 'train_cfg', dict(_delete_=True, **loop)
        rising = dict(type='LinearLR', start_factor=0.01, by_epoch=False, begin=0, end=self.warm_up)
        falling = dict(type='CosineAnnealingLR', eta_min=0.0, **end)
        yield 'param_scheduler', [*([rising] if self.warm_up else []), falling]
        if self.rate.value is not None:
            yield 'optim_wrapper', dict(optimizer=dict(lr=self.rate.value))
        if self.rate.base_batch is not None:
            # In one process the rate stays as it is; mmengine raises it for more of them.
            yield 'auto_scale_lr', dict(enable=True, base_batch_size=Code('batch_size'))

    def checkpoints(self) -> dict:
        """Changes to the hook that saves them."""
        return KEPT | ({} if self.by_epoch else dict(interval=Code('val_interval')))

    def lines(self) -> Iterator[str]:
        """The schedule in words."""
        yield f'batches of {self.batch} of {self.images} images: {_count(self.steps, "step")} an epoch (--batch-size)'
        rising = f'a warm-up of {self.warm_up}, then ' if self.warm_up else ''
        length = f'{_count(self.total, "step")} in {_count(self.epochs, "epoch")}'
        yield f'{length}: {rising}a cosine; validated every {self.val_interval}'
        value = '' if self.rate.value is None else f' {self.rate.value:g}'
        yield f'learning rate{value}: {self.rate.reason} (--lr)'
        yield f'keeps the last {KEPT["max_keep_ckpts"]} checkpoints, and the best one of the validations'


def _count(number: int, what: str) -> str:
    return f'{number} {what}{"s" * (number != 1)}'


def _fitting_batch(batch: int, images: int) -> int:
    """The base's batch, or so much less that an epoch has enough steps."""
    return min(batch, images, max(SMALLEST_BATCH, images // STEPS_OF_AN_EPOCH))


def _rate(cfg: Config, batch: int, lr: float | None) -> Rate:
    """The learning rate of a batch.

    Raises:
        ValueError: if the given rate is no positive number, or the base has none for the whole model.
    """
    optimizer = cfg.optim_wrapper.get('optimizer') or {}
    before = optimizer.get('lr')
    of_batch = (cfg.get('auto_scale_lr') or {}).get('base_batch_size')
    if lr is not None:
        if not 0 < lr < math.inf:
            raise ValueError(f'--lr {lr:g}: expected a number above 0')
        if before is None:
            raise ValueError(f'--lr {lr:g}: the base has no optim_wrapper.optimizer.lr to set: leave it out')
        return Rate(lr, of_batch, 'as given')
    if before is None:
        return Rate(None, of_batch, 'as in the base')
    if of_batch is None:
        return Rate(before, None, "the base's, which names no batch size that it is for")
    kind = str(optimizer.get('type')).rpartition('.')[2]
    linear = kind in LINEAR
    scale = batch / of_batch if linear else math.sqrt(batch / of_batch)
    by = f'{batch}/{of_batch}' if linear else f'the root of {batch}/{of_batch}'
    return Rate(float(f'{before * scale:.3g}'), of_batch, f"the base's {before:g} times {by}, as {kind} takes it")
