"""Makes every iteration and every sample depend on its position only, so that a resumed training is exact."""

from mmengine.dataset import InfiniteSampler
from mmengine.dist import get_rank, get_world_size
from mmengine.hooks import Hook
from mmengine.runner import IterBasedTrainLoop

from vitplug.registry import HOOKS

from ..data.order import Share, check_order
from ..data.randomness import MODEL_STREAM, SAMPLE_STREAM, VALIDATION_STREAM, seed_generators
from ..data.stream import EndlessBatches, PositionedBatches, SeededDataset, rebuilt_loader
from ..saving.checkpoint_checks import SHARES


@HOOKS.register_module()
class RandomnessHook(Hook):
    """Seeds the model's draws by iteration and a sample's by its place in the order of training data.

    What the model draws (dropout, stochastic depth, proposals) then depends on the run's seed, the process's rank and
    the iteration, and what the pipeline draws for a sample on seed, epoch and its place in the order that all processes
    share: not on which process or worker makes it, nor on when a training was resumed. A resumed loader starts at the
    right sample without loading what came before it. Every validation draws the same.

    A training goes on with another number of processes or another batch size at the sample where it stopped: no image
    of the epoch is left out or comes twice. If the batch of all processes together has the size that it had, the
    batches are the same as well.

    Beyond its reach are transforms that keep images from earlier samples (mmdet's `CachedMosaic`) or bring generators
    of their own (albumentations).

    Raises:
        ValueError: if a training goes on with another number of processes, and the order of its sampler is unknown.
    """

    # Before every hook that may draw.
    priority = 'HIGHEST'

    def before_run(self, runner) -> None:
        """Notes the seed that the samplers were built with."""
        self.sampler_seed = runner.seed

    def before_train(self, runner) -> None:
        """Gives the training loop a loader whose samples know their position."""
        loop = runner.train_loop
        self.key = (runner.seed, get_rank())
        self.endless = isinstance(loop, IterBasedTrainLoop)
        self.batches = PositionedBatches(loop.dataloader.batch_sampler, endless=self.endless)
        # Where the config gives no seed, mmengine draws one, and takes over the checkpoint's after the sampler's birth.
        sampler = self.batches.sampler
        if getattr(sampler, 'seed', None) == self.sampler_seed:
            sampler.seed = runner.seed
        dataset = SeededDataset(loop.dataloader.dataset, (SAMPLE_STREAM, runner.seed))
        loop.dataloader = rebuilt_loader(loop.dataloader, dataset, self.batches)
        if self.endless:
            skips = hasattr(loop.dataloader_iterator, 'skip_iter')
            loop.dataloader_iterator = EndlessBatches(loop.dataloader, thrown_away=0 if skips else runner.iter)
            self._begin(runner, epoch=0, begin=0)
        if runner.val_loop is not None:
            _make_repeatable(runner.val_loop, (VALIDATION_STREAM, runner.seed))

    def before_train_epoch(self, runner) -> None:
        """Puts the stream of an epoch where the training stands."""
        if self.endless:
            return
        epoch, begin = runner.message_hub.runtime_info.get('epoch_begin', (None, None))
        if epoch != runner.epoch:
            begin = runner.iter
            runner.message_hub.update_info('epoch_begin', (runner.epoch, begin))
        self._begin(runner, runner.epoch, begin)

    def before_train_iter(self, runner, batch_idx, data_batch=None) -> None:
        """Seeds what the model draws in this iteration."""
        seed_generators(MODEL_STREAM, *self.key, runner.iter)

    def _begin(self, runner, epoch: int, begin: int) -> None:
        """Puts the batches where the training stands in a pass over the data that began at iteration `begin`."""
        size = getattr(self.batches.batch_sampler, 'batch_size', 1)
        now = [get_world_size(), size]
        noted = _shares(runner.message_hub.runtime_info.get(SHARES), begin, runner.iter) or [[*now, begin]]
        if noted[-1][:2] != now:
            self._check_change(runner, noted[-1][:2], now)
            noted.append([*now, runner.iter])
        runner.message_hub.update_info(SHARES, noted)
        ends = [first for _, _, first in noted[1:]]
        earlier = [Share(*who, end - first) for (*who, first), end in zip(noted, ends, strict=False)]
        self.batches.begin(
            epoch, skip=runner.iter - noted[-1][2], earlier=[share for share in earlier if share.batches]
        )

    def _check_change(self, runner, before: list[int], now: list[int]) -> None:
        sampler = self.batches.sampler
        check_order(sampler)
        if self.endless and not isinstance(sampler, InfiniteSampler):
            raise ValueError(
                f'train_dataloader.sampler.type = {type(sampler).__name__!r}: a training by iterations goes on with '
                'another number of processes or another batch size only with InfiniteSampler; resume with '
                f'{before[0]} processes and batch_size = {before[1]}'
            )
        if before[0] * before[1] != now[0] * now[1]:
            runner.logger.warning(
                f'The batch of all processes has {now[0] * now[1]} samples, and had {before[0] * before[1]}: no sample '
                'is left out or comes twice, but learning rate and schedules by iteration were set for the earlier size'
            )


def _shares(noted: object, begin: int, now: int) -> list[list[int]]:
    """The record of a checkpoint, which may come from anybody; empty where it is not that of this pass."""
    fits = isinstance(noted, list | tuple) and all(
        isinstance(one, list | tuple) and len(one) == 3 and all(type(number) is int and number >= 0 for number in one)
        for one in noted
    )
    if not fits or not noted or noted[0][2] != begin or [one[2] for one in noted] != sorted(one[2] for one in noted):
        return []
    return [list(one) for one in noted] if noted[-1][2] <= now else []


def _make_repeatable(loop, key: tuple[int, ...]) -> None:
    """Gives a validation loop a loader that draws the same in every validation."""
    loader = loop.dataloader
    dataset, batches = SeededDataset(loader.dataset, key), PositionedBatches(loader.batch_sampler, endless=False)
    loop.dataloader = rebuilt_loader(loader, dataset, batches, kind=type(loader))
