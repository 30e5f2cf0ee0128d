"""Makes every iteration and every sample depend on its position only, so that a resumed training is exact."""

from mmengine.dist import get_rank
from mmengine.hooks import Hook
from mmengine.runner import IterBasedTrainLoop

from vitplug.registry import HOOKS

from ..data.randomness import MODEL_STREAM, SAMPLE_STREAM, VALIDATION_STREAM, seed_generators
from ..data.stream import EndlessBatches, PositionedBatches, SeededDataset, rebuilt_loader


@HOOKS.register_module()
class RandomnessHook(Hook):
    """Seeds the model's draws by iteration and a sample's by its place in the stream of training data.

    What the model draws (dropout, stochastic depth, proposals) then depends on the run's seed, the process's rank and
    the iteration, and what the pipeline draws for a sample on seed, rank, iteration and place in the batch: not on
    which worker makes it, nor on when a training was resumed. A resumed loader starts at the right batch without
    loading what came before it. Every validation draws the same.

    Beyond its reach are transforms that keep images from earlier samples (mmdet's `CachedMosaic`) or bring generators
    of their own (albumentations), and a resume with another number of processes or another batch size.
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
        dataset = SeededDataset(loop.dataloader.dataset, (SAMPLE_STREAM, *self.key))
        loop.dataloader = rebuilt_loader(loop.dataloader, dataset, self.batches)
        if self.endless:
            skips = hasattr(loop.dataloader_iterator, 'skip_iter')
            loop.dataloader_iterator = EndlessBatches(loop.dataloader, thrown_away=0 if skips else runner.iter)
        if runner.val_loop is not None:
            _make_repeatable(runner.val_loop, (VALIDATION_STREAM, *self.key))

    def before_train_epoch(self, runner) -> None:
        """Puts the stream of an epoch where the training stands."""
        if self.endless:
            return  # mmengine's loop itself says how far to skip
        epoch, begin = runner.message_hub.runtime_info.get('epoch_begin', (None, None))
        if epoch != runner.epoch:
            begin = runner.iter
            runner.message_hub.update_info('epoch_begin', (runner.epoch, begin))
        self.batches.begin(runner.epoch, runner.iter, skip=runner.iter - begin)

    def before_train_iter(self, runner, batch_idx, data_batch=None) -> None:
        """Seeds what the model draws in this iteration."""
        seed_generators(MODEL_STREAM, *self.key, runner.iter)


def _make_repeatable(loop, key: tuple[int, ...]) -> None:
    """Gives a validation loop a loader that draws the same in every validation."""
    loader = loop.dataloader
    dataset, batches = SeededDataset(loader.dataset, key), PositionedBatches(loader.batch_sampler, endless=False)
    loop.dataloader = rebuilt_loader(loader, dataset, batches, kind=type(loader))
