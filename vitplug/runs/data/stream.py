"""The stream of data: which samples come in which order, the seed of each, and the replacement of broken ones."""

from collections.abc import Iterator, Sequence
from copy import copy
from functools import partial
from itertools import chain, count, islice

import numpy as np
import torch
from mmengine import dist
from mmengine.dataset import BaseDataset, InfiniteSampler
from torch.utils.data import DataLoader

from .bad_samples import BadSamples, check_evaluated_sample, check_sample, path_of
from .label_files import SampleFiles, WrongLabels
from .order import Share, SharedOrder
from .randomness import own_randomness
from .workers import InHand

# Settings that a loader keeps when its data set and its batches are replaced.
KEPT_SETTINGS = (
    'num_workers',
    'collate_fn',
    'pin_memory',
    'timeout',
    'worker_init_fn',
    'multiprocessing_context',
    'prefetch_factor',
    'persistent_workers',
)

Draw = tuple[int, int, int]
"""Index of a sample in the data set, epoch, position in the order that the processes share."""


class PositionedBatches:
    """A batch sampler whose samples know their position in the order of all processes, and that can start anywhere.

    Args:
        batch_sampler: Yields batches of indices; its `sampler` may have `set_epoch`.
        endless: Whether epoch follows epoch without end, as for a training by iterations.
    """

    def __init__(self, batch_sampler, endless: bool):
        self.batch_sampler = batch_sampler
        self.endless = endless
        self.order = SharedOrder(batch_sampler.sampler, batch_sampler)
        batch_sampler.sampler = self.order
        self.begin(epoch=0, skip=0)

    @property
    def sampler(self):
        """The sampler inside, where mmengine's hooks look for it."""
        return self.order.sampler

    def begin(self, epoch: int, skip: int, earlier: Sequence[Share] = ()) -> None:
        """Says where the next pass starts.

        Args:
            epoch: Epoch of the pass, counted from 0.
            skip: Number of batches of this pass before the first one that is handed out. Only their indices are drawn;
                nothing is loaded.
            earlier: Batches of this pass that other numbers of processes drew before these.
        """
        self.epoch, self.skip, self.order.earlier = epoch, skip, tuple(earlier)

    def __len__(self) -> int:
        return len(self.batch_sampler)

    def __iter__(self) -> Iterator[list[Draw]]:
        epochs = count(self.epoch) if self.endless else (self.epoch,)
        return islice(chain.from_iterable(map(self._batches, epochs)), self.skip, None)

    def _batches(self, epoch: int) -> Iterator[list[Draw]]:
        if hasattr(self.sampler, 'set_epoch'):
            self.sampler.set_epoch(epoch)
        batches = ([(int(index), epoch, index.position) for index in batch] for batch in self.batch_sampler)
        first = next(batches, None)
        if first is not None:
            yield first
            yield from batches
        elif self.endless:  # epoch would follow epoch for ever
            raise ValueError(
                f'train_dataloader: its sampler, {type(self.sampler).__name__}, gives no batch: use a data set of more '
                'samples, a smaller batch_size, or drop_last=False'
            )


class DatasetProxy:
    """A data set that changes how samples are fetched, and nothing else.

    Reading and setting of attributes goes to the data set inside: hooks look at its meta information and switch its
    pipeline.

    Args:
        dataset: The data set inside.
        **own: Attributes of the proxy itself.
    """

    def __init__(self, dataset, **own):
        self.__dict__.update(dataset=dataset, **own)

    def __getattr__(self, name: str):
        if name.startswith('__') or 'dataset' not in self.__dict__:
            raise AttributeError(name)
        return getattr(self.dataset, name)

    def __setattr__(self, name: str, value) -> None:
        setattr(self.dataset, name, value)

    def __len__(self) -> int:
        return len(self.dataset)


class SeededDataset(DatasetProxy):
    """A data set whose samples draw random numbers that depend on epoch and position only.

    Args:
        dataset: The data set.
        key: Integers >= 0 that go into every seed, before the position.
    """

    def __init__(self, dataset, key: tuple[int, ...]):
        super().__init__(dataset, key=key)

    def __getitem__(self, draw: Draw):
        index, *position = draw
        with own_randomness(*self.key, *position):
            return self.dataset[index]


class TolerantDataset(DatasetProxy):
    """A data set in which a sample that cannot be used is noted, and replaced by another one drawn at random.

    Args:
        dataset: The data set.
        bad_samples: Where they are noted.
        num_workers: Number of workers of the loader.
    """

    check = staticmethod(check_sample)

    def __init__(self, dataset, bad_samples: BadSamples, num_workers: int = 0):
        super().__init__(dataset, bad_samples=bad_samples, in_hand=InHand(num_workers))

    def __getitem__(self, index: int):
        for _ in range(self.bad_samples.max_in_a_row):
            sample = self._sample(index)
            if sample is not None:
                return sample
            index = int(np.random.randint(len(self.dataset)))
        raise self.bad_samples.too_many()

    def held_by(self, pid: int) -> str | None:
        """Path of the image that a worker had in hand when it died, None if it had none."""
        index = self.in_hand.index_of(pid)
        return None if index is None else path_of(self.dataset, index)

    def _sample(self, index: int):
        try:
            with self.in_hand.holding(index):
                sample = self.dataset[index]
            self.check(sample, _num_classes(self.dataset))
        except WrongLabels:
            raise
        # Any file may pass through any transform. A mistake in the code or the config makes every sample fail, and
        # shows itself after `max_in_a_row`.
        except Exception as error:
            self.bad_samples.note(self.dataset, index, error)
            return None
        return sample


class SkippingDataset(TolerantDataset):
    """A data set for validation, in which a sample that cannot be read is noted and None: nothing can replace it."""

    check = staticmethod(check_evaluated_sample)

    def __getitem__(self, index: int):
        return self._sample(index)


class SkippingLoader(DataLoader):
    """A loader over a `SkippingDataset`: leaves missing samples out of batches, and skips empty batches.

    Raises:
        BadSample: at the end, if no process has read any image.
    """

    def __init__(self, *args, collate_fn, **kwargs):
        super().__init__(*args, collate_fn=partial(_collate_rest, collate_fn), **kwargs)

    def __iter__(self):
        number = 0
        for batch in super().__iter__():
            if batch is not None:
                number += 1
                yield batch
        if not sum_over_processes(number):
            raise self.dataset.bad_samples.none_left(len(self.dataset))


class EachOnce:
    """The indices of a sampler without repeated ones, which another process draws as well.

    mmengine fills the shares of the processes up to one length with samples from the start. It cuts results to the size
    of the data set, which takes the repeated ones off the end; where samples are left out, they would stay.

    Args:
        sampler: Has the number of its process as `rank`, and otherwise draws the same in every process.
    """

    def __init__(self, sampler):
        self.sampler = sampler

    def __iter__(self) -> Iterator[int]:
        earlier = {index for rank in range(self.sampler.rank) for index in _of_process(self.sampler, rank)}
        return (index for index in dict.fromkeys(self.sampler) if index not in earlier)

    def __len__(self) -> int:
        return sum(1 for _ in self)


def _of_process(sampler, rank: int):
    other = copy(sampler)
    other.rank = rank
    return other


def sum_over_processes(number: int) -> int:
    """Sum of a number over all processes; every one has to call this."""
    total = torch.tensor(number, device=dist.get_comm_device())
    dist.all_reduce(total)
    return int(total)


def check_sources(dataset, max_pixels: int) -> None:
    """Makes a data set, and all inside it, check what a sample is made of before the pipeline reads it.

    Args:
        dataset: mmengine's `BaseDataset`, or a wrapper with such as `dataset` or `datasets`; others are left alone.
        max_pixels: Largest image.
    """
    inner = getattr(dataset, 'dataset', None)
    for child in (*getattr(dataset, 'datasets', ()), *([] if inner is None else [inner])):
        check_sources(child, max_pixels)
    if isinstance(dataset, BaseDataset):
        dataset.prepare_data = partial(_prepare_checked, dataset, SampleFiles(dataset, max_pixels))


def _prepare_checked(dataset: BaseDataset, files: SampleFiles, index: int):
    files.check(index)
    return type(dataset).prepare_data(dataset, index)


def _collate_rest(collate_fn, samples: list):
    rest = [sample for sample in samples if sample is not None]
    return collate_fn(rest) if rest else None


def _num_classes(dataset) -> int | None:
    classes = (getattr(dataset, 'metainfo', None) or {}).get('classes')
    return len(classes) if classes else None


class EndlessBatches:
    """Endless batches for `IterBasedTrainLoop`, which skip without loading.

    Args:
        loader: A loader over endless `PositionedBatches`.
        thrown_away: Number of batches that the loop of a resumed training takes and throws away, as upstream's mmengine
            does: it is given None for each. A loop that calls `skip_iter` takes none.
    """

    def __init__(self, loader: DataLoader, thrown_away: int = 0):
        self.loader = loader
        self.thrown_away = thrown_away
        self.iterator = None

    def __iter__(self) -> 'EndlessBatches':
        return self

    def __next__(self):
        if self.thrown_away:
            self.thrown_away -= 1
            return None
        if self.iterator is None:
            self.iterator = iter(self.loader)
        return next(self.iterator)

    def skip_iter(self, num_iters: int) -> None:
        """mmengine's loop calls this when it resumes; the loader's batches already begin behind the first ones."""


def rebuilt_loader(loader: DataLoader, dataset, batch_sampler, kind: type[DataLoader] | None = None) -> DataLoader:
    """A loader with the settings of another one, for another data set and other batches.

    Its generator is its own: a loader that takes its base seed from the global one shifts the model's draws.
    """
    sampler = getattr(batch_sampler, 'sampler', None)
    if isinstance(sampler, InfiniteSampler):
        # Its indices are one generator; upstream's mmengine has begun it for the other loader, with which it ends.
        sampler.indices = sampler._indices_of_rank()
    settings = {name: getattr(loader, name) for name in KEPT_SETTINGS}
    return (kind or DataLoader)(dataset, batch_sampler=batch_sampler, generator=torch.Generator(), **settings)
