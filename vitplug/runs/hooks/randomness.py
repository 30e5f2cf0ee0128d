"""Random numbers as a function of the position in a training: a resumed one draws what an uninterrupted one draws.

The model's draws follow from seed, process and iteration, those of a sample from seed, epoch and the place of the
sample in the order that the processes share. So they depend neither on earlier draws nor on the workers of a loader,
and a training that goes on inside an epoch skips its first batches without loading them.
"""

import random
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import chain, count, islice

import numpy as np
import torch
from mmengine.dataset import InfiniteSampler
from mmengine.dist import get_rank, get_world_size
from mmengine.hooks import Hook
from mmengine.runner import IterBasedTrainLoop

from vitplug.registry import HOOKS

# First number of a key, so that no two kinds of draws share a seed.
MODEL, SAMPLE, VALIDATION = 0, 1, 2
# Epoch and iteration at which the present epoch began, in the message hub.
EPOCH_BEGIN = 'epoch_begin'


@HOOKS.register_module()
class RandomnessHook(Hook):
    """Seeds the model's draws by iteration and a sample's by its place; starts the loader where the training stands.

    On a CPU in one process, a resumed training ends bit-equal to one that was never stopped. Beyond its reach are
    transforms that keep earlier images (mmdet's `CachedMosaic`) or have generators of their own (albumentations).
    """

    priority = 'HIGHEST'  # before every hook that may draw

    def before_run(self, runner) -> None:
        """Notes the seed that the samplers were built with."""
        self.sampler_seed = runner.seed

    def before_train(self, runner) -> None:
        """Gives the training's loader samples that know their place."""
        loop, loader = runner.train_loop, runner.train_loop.dataloader
        self.endless = isinstance(loop, IterBasedTrainLoop)
        self.batches = _place(loader, (SAMPLE, runner.seed), self.endless)
        if runner.val_loop is not None:  # every validation draws the same
            _place(runner.val_loop.dataloader, (VALIDATION, runner.seed))
        # Without a seed in the config, mmengine draws one, and takes that of the checkpoint after the sampler's birth.
        sampler = self.batches.sampler
        if getattr(sampler, 'seed', None) == self.sampler_seed:
            sampler.seed = runner.seed
        if not self.endless:
            return
        if isinstance(sampler, InfiniteSampler):
            sampler.indices = sampler._indices_of_rank()
        if hasattr(loop, 'fast_forward_on_resume'):  # older loops load what they skip, and throw it away
            loop.fast_forward_on_resume = True
            self.batches.skip = runner.iter
        vars(loader)['_iterator'] = None
        loop.dataloader_iterator = type(loop.dataloader_iterator)(loader)

    def before_train_epoch(self, runner) -> None:
        """Puts the batches where the training stands in its epoch."""
        if self.endless:
            return
        epoch, begin = runner.message_hub.runtime_info.get(EPOCH_BEGIN, (None, None))
        if epoch != runner.epoch:
            begin = runner.iter
            runner.message_hub.update_info(EPOCH_BEGIN, [runner.epoch, begin])
        self.batches.epoch, self.batches.skip = runner.epoch, runner.iter - begin

    def before_train_iter(self, runner, batch_idx, data_batch=None) -> None:
        """Seeds what the model draws in this iteration."""
        seed_generators(torch.manual_seed, MODEL, runner.seed, get_rank(), runner.iter)


def inside_epoch(runner) -> bool:
    """Whether a resumed training by epochs stands between the first and the last iteration of one."""
    return runner.message_hub.runtime_info.get(EPOCH_BEGIN, (None,))[0] == runner.epoch


def _place(loader, key: tuple[int, ...], endless: bool = False) -> 'PlacedBatches':
    """Gives a loader samples that know their place."""
    batches = PlacedBatches(loader.batch_sampler, endless)
    # torch refuses other batches for a loader that is built, but this one has no iterator yet.
    vars(loader).update(dataset=SeededDataset(loader.dataset, key), batch_sampler=batches)
    return batches


class PlacedBatches:
    """Batches of samples that know their place: index, epoch, and place in the order of all processes.

    Args:
        batch_sampler: Yields batches of indices.
        endless: Whether epoch follows epoch without end, as for a training by iterations.

    Attributes:
        epoch: Epoch of the next pass, counted from 0.
        skip: Number of batches of the next pass that are drawn and not handed out.
    """

    def __init__(self, batch_sampler, endless: bool):
        self.batch_sampler, self.endless = batch_sampler, endless
        self.epoch = self.skip = 0

    @property
    def sampler(self):
        """The sampler inside, where mmengine's hooks look for it."""
        return self.batch_sampler.sampler

    def __len__(self) -> int:
        return len(self.batch_sampler)

    def __iter__(self) -> Iterator[list[tuple[int, int, int]]]:
        epochs = count(self.epoch) if self.endless else (self.epoch,)
        return islice(chain.from_iterable(map(self._of_epoch, epochs)), self.skip, None)

    def _of_epoch(self, epoch: int) -> Iterator[list[tuple[int, int, int]]]:
        if hasattr(self.sampler, 'set_epoch'):
            self.sampler.set_epoch(epoch)
        place = count(get_rank(), get_world_size())
        for batch in self.batch_sampler:
            yield [(int(index), epoch, next(place)) for index in batch]
        if self.endless and next(place) == get_rank():  # epoch would follow epoch for ever
            raise ValueError(
                f'train_dataloader: its sampler, {type(self.sampler).__name__}, gives no batch: use a data set of more '
                'samples, a smaller batch_size, or drop_last=False'
            )


class SeededDataset:
    """A data set whose samples draw numbers that depend on their place alone; else it is the one inside.

    Args:
        dataset: The data set inside.
        key: Integers >= 0 that go into every seed.
    """

    def __init__(self, dataset, key: tuple[int, ...]):
        vars(self).update(dataset=dataset, key=key)

    def __getattr__(self, name: str):
        if name.startswith('__') or 'dataset' not in vars(self):
            raise AttributeError(name)
        return getattr(self.dataset, name)

    def __setattr__(self, name: str, value) -> None:
        setattr(self.dataset, name, value)  # hooks switch its pipeline

    def __len__(self) -> int:
        return len(self.dataset)

    def __getitem__(self, draw: tuple[int, int, int]):
        index, *place = draw
        with own_randomness(*self.key, *place):
            return self.dataset[index]


def seed_generators(seed_torch, *key: int) -> None:
    """Seeds the generators of Python, NumPy and torch from a key of integers >= 0."""
    for_python, for_numpy, for_torch = np.random.SeedSequence(key).generate_state(3).tolist()
    random.seed(for_python)
    np.random.seed(for_numpy)
    seed_torch(for_torch)


@contextmanager
def own_randomness(*key: int) -> Iterator[None]:
    """Seeds the generators of Python, NumPy and torch's CPU for a while, and puts them back where they were."""
    states = random.getstate(), np.random.get_state(), torch.get_rng_state()
    seed_generators(torch.default_generator.manual_seed, *key)
    try:
        yield
    finally:
        random.setstate(states[0])
        np.random.set_state(states[1])
        torch.set_rng_state(states[2])
