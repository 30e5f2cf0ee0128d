"""The order of samples that processes share, and what is left of it for another number of processes."""

import copy
from collections.abc import Callable, Iterable, Iterator
from itertools import cycle, islice
from typing import NamedTuple

from mmengine import dist
from mmengine.dataset import DefaultSampler, InfiniteSampler
from torch.utils.data import BatchSampler


class Share(NamedTuple):
    """Batches of an order that some processes have drawn.

    Args:
        processes: Their number.
        batch_size: Samples in a batch of one process.
        batches: Batches that each process has drawn.
    """

    processes: int
    batch_size: int
    batches: int


class Placed(int):
    """The index of a sample that knows its position in the order."""

    position: int

    def __new__(cls, index: int, position: int):
        placed = super().__new__(cls, index)
        placed.position = position
        return placed


class SharedOrder:
    """A sampler whose indices know their position in the order of all processes.

    After a resume with another number of processes it gives out what the earlier ones have left of the order.

    Args:
        sampler: The sampler of this process.
        batch_sampler: What makes batches of it.
    """

    def __init__(self, sampler, batch_sampler):
        self.sampler, self.batch_sampler = sampler, batch_sampler
        self.earlier: tuple[Share, ...] = ()

    def __getattr__(self, name: str):
        if name.startswith('__') or 'sampler' not in self.__dict__:
            raise AttributeError(name)
        return getattr(self.sampler, name)

    def __len__(self) -> int:
        return len(self.sampler)

    def __iter__(self) -> Iterator[Placed]:
        """The indices of this process."""
        processes, rank = dist.get_world_size(), dist.get_rank()
        if not self.earlier:
            return (Placed(index, number * processes + rank) for number, index in enumerate(self.sampler))

        def order() -> Iterator[Placed]:
            return _whole(self.sampler)

        for share in self.earlier:
            order = _rest(order, share, self.batch_sampler)
        rest = order() if isinstance(self.sampler, InfiniteSampler) else _filled_up(list(order()), processes)
        return islice(rest, rank, None, processes)


def check_order(sampler) -> None:
    """Checks that the order of a sampler is known for any number of processes.

    Raises:
        ValueError: If it is not.
    """
    if type(sampler) not in (DefaultSampler, InfiniteSampler):
        raise ValueError(
            f'train_dataloader.sampler.type = {type(sampler).__name__!r}: only with DefaultSampler and InfiniteSampler '
            'a training goes on inside of an epoch with another number of processes or another batch size; resume with '
            'the earlier ones'
        )


def _whole(sampler) -> Iterator[Placed]:
    """The order of all samples, as one process would draw it."""
    check_order(sampler)
    whole = copy.copy(sampler)
    whole.rank, whole.world_size = 0, 1
    if isinstance(whole, InfiniteSampler):
        whole.indices = whole._indices_of_rank()
    else:
        whole.num_samples = whole.total_size = len(whole.dataset)
    return (Placed(index, position) for position, index in enumerate(whole))


def _rest(order: Callable[[], Iterator[Placed]], share: Share, batch_sampler) -> Callable[[], Iterator[Placed]]:
    """What some processes leave of an order."""
    if type(batch_sampler) is BatchSampler:
        return lambda: islice(order(), share.processes * share.batch_size * share.batches, None)
    # Batches of images of one shape, say, leave images out that have no partners yet.
    drawn = {index.position for rank in range(share.processes) for index in _drawn(order(), rank, share, batch_sampler)}
    return lambda: (index for index in order() if index.position not in drawn)


def _drawn(order: Iterator[Placed], rank: int, share: Share, batch_sampler) -> Iterator[Placed]:
    """The samples that one process has drawn."""
    sampler = _Indices(islice(order, rank, None, share.processes), batch_sampler.sampler)
    batches = copy.deepcopy(batch_sampler, {id(batch_sampler.sampler): sampler})
    batches.batch_size = share.batch_size
    return (index for batch in islice(batches, share.batches) for index in batch)


class _Indices:
    """A sampler of some indices, with the attributes of another one."""

    def __init__(self, indices: Iterable[Placed], sampler):
        self.indices, self.sampler = indices, sampler

    def __getattr__(self, name: str):
        return getattr(self.__dict__['sampler'], name)

    def __iter__(self) -> Iterator[Placed]:
        return iter(self.indices)


def _filled_up(order: list[Placed], processes: int) -> list[Placed]:
    """An order of as many samples for each process; the first ones come once more to fill it up."""
    last = max((index.position for index in order), default=0)
    missing = -len(order) % processes
    return order + [Placed(index, last + 1 + n) for n, index in enumerate(islice(cycle(order), missing))]
