"""Random numbers as a function of the position in a training: a resumed one draws what an uninterrupted one draws.

The model's draws follow from seed, process and iteration, those of a sample from seed, epoch and the place of the
sample in the order that the processes share. So they depend neither on earlier draws nor on the workers of a loader,
and a training that goes on inside an epoch skips its first batches without loading them.
"""

import random
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import count, islice

import numpy as np
import torch
from mmengine.dist import get_rank, get_world_size
from mmengine.hooks import Hook
from mmengine.runner import IterBasedTrainLoop

from vitplug.registry import HOOKS

# First number of a key, so that no two kinds of draws share a seed.
MODEL, SAMPLE = 0, 1
# The present epoch and the iteration at which it began, in the message hub.
EPOCH_BEGAN = 'epoch_began'


@HOOKS.register_module()
class RandomnessHook(Hook):
    """Seeds the model's draws by iteration and a sample's by its place; starts the loader where the training stands.

    On a CPU in one process, a resumed training ends bit-equal to one that was never stopped, if `randomness.seed` is
    set, and a training by iterations has mmengine's `InfiniteSampler`. Beyond its reach are transforms that keep
    earlier images (mmdet's `CachedMosaic`) or have generators of their own (albumentations).
    """

    priority = 'HIGHEST'  # before every hook that may draw

    def before_train(self, runner) -> None:
        """Gives the training's loader samples that know their place."""
        loop, loader = runner.train_loop, runner.train_loop.dataloader
        self.batches = PlacedBatches(loader.batch_sampler)
        loader.dataset.__getitems__ = partial(seeded_samples, loader.dataset, runner.seed)  # what torch's loaders call
        # torch refuses other batches for a loader that is built, but this one has no iterator yet.
        vars(loader)['batch_sampler'] = self.batches
        if isinstance(loop, IterBasedTrainLoop):
            skips = hasattr(loop, 'fast_forward_on_resume')  # mmengine 0.10 draws the batches itself
            loop.fast_forward_on_resume, self.batches.skip = skips, runner.iter if skips else 0
            vars(loader)['_iterator'] = None
            loop.dataloader_iterator = type(loop.dataloader_iterator)(loader)

    def before_train_epoch(self, runner) -> None:
        """Puts the batches of a training by epochs where it stands in its epoch."""
        if not isinstance(runner.train_loop, IterBasedTrainLoop):
            began = runner.message_hub.runtime_info.get(EPOCH_BEGAN, {}).get(runner.epoch, runner.iter)
            runner.message_hub.update_info(EPOCH_BEGAN, {runner.epoch: began})
            self.batches.epoch, self.batches.skip = runner.epoch, runner.iter - began

    def before_train_iter(self, runner, batch_idx, data_batch=None) -> None:
        """Seeds what the model draws in this iteration."""
        seed_generators(torch.manual_seed, MODEL, runner.seed, get_rank(), runner.iter)


def is_inside_epoch(runner) -> bool:
    """Whether a resumed training by epochs stands between the first and the last iteration of one."""
    return runner.epoch in runner.message_hub.runtime_info.get(EPOCH_BEGAN, {})


class PlacedBatches:
    """Batches of samples that know their place: index, epoch, and place in the order of all processes.

    Args:
        batch_sampler: Yields batches of indices; mmengine's hooks look for the sampler inside of it.

    Attributes:
        epoch: Epoch of the next pass, counted from 0.
        skip: Number of batches of the next pass that are drawn and not handed out.
    """

    def __init__(self, batch_sampler):
        self.batch_sampler, self.sampler = batch_sampler, batch_sampler.sampler
        self.epoch = self.skip = 0

    def __len__(self) -> int:
        return len(self.batch_sampler)

    def __iter__(self) -> Iterator[list[tuple[int, int, int]]]:
        epoch, skip = self.epoch, self.skip  # when the first batch is asked for: torch makes two iterators for a pass
        self.epoch, self.skip = epoch + 1, 0
        place = count(get_rank(), get_world_size())
        placed = ([(int(index), epoch, next(place)) for index in batch] for batch in self.batch_sampler)
        yield from islice(placed, skip, None)


def seeded_samples(dataset, seed: int, placed: Sequence[tuple[int, int, int]]) -> list:
    """The samples of a batch of :class:`PlacedBatches`, each of which draws numbers that depend on its place alone."""
    samples = []
    for index, *place in placed:
        seed_generators(torch.default_generator.manual_seed, SAMPLE, seed, *place)
        samples.append(dataset[index])
    return samples


def seed_generators(seed_torch: Callable, *key: int) -> None:
    """Seeds the generators of Python, NumPy and torch from a key of integers >= 0."""
    for_python, for_numpy, for_torch = np.random.SeedSequence(key).generate_state(3).tolist()
    random.seed(for_python)
    np.random.seed(for_numpy)
    seed_torch(for_torch)
