"""What a process holds and whether that grows: what the soak tests measure, and how they judge it."""

import functools
import gc
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np
import psutil
import torch

MB = 1 << 20


def resident(process: psutil.Process) -> float:
    """Resident memory in MB; pages shared with other processes count in each."""
    return process.memory_info().rss / MB


@dataclass(frozen=True)
class Trend:
    """Resident memory after warm-up, in MB, and its slope in KB a step.

    Start and end are medians of a tenth of the samples: the allocator returns large blocks when it pleases.
    """

    steps: int
    warm: float
    end: float
    most: float
    slope: float

    @property
    def growth(self) -> float:
        """MB: what the fitted line rises, or what the end lies above the start, whichever is more."""
        return max(self.end - self.warm, self.slope * self.steps / 1024)

    def __str__(self) -> str:
        return (
            f'{self.warm:7.1f} MB after warm-up, {self.end:7.1f} at the end, {self.most:7.1f} at most, '
            f'{self.slope:+7.3f} KB a step, growth {self.growth:+6.1f} MB over {self.steps} steps'
        )


def trend(samples: Sequence[tuple[int, float]], warm_up: int) -> Trend | None:
    """The trend of (step, MB) after so many steps; None of fewer than three samples."""
    steps, sizes = np.array([sample for sample in samples if sample[0] > warm_up]).reshape(-1, 2).T
    if len(steps) < 3:
        return None
    tenth = -(-len(steps) // 10)
    return Trend(
        steps=int(steps[-1] - steps[0]),
        warm=float(np.median(sizes[:tenth])),
        end=float(np.median(sizes[-tenth:])),
        most=float(sizes.max()),
        slope=float(np.polyfit(steps, sizes * 1024, 1)[0]),
    )


# --- caches: whatever holds more and more ---


def containers() -> dict[int, tuple[object, int]]:
    """Every container of the process that can grow, with its length; whoever holds this keeps them alive.

    Those of a cache are among them, be it a dict in a module or on a model or that inside an `lru_cache`.
    """
    gc.collect()
    tracked = gc.get_objects()
    # A container of nothing but numbers and strings is not tracked itself.
    reached = chain(tracked, gc.get_referents(*tracked))
    # Not isinstance, which asks proxies for what they stand for.
    return {id(each): (each, len(each)) for each in reached if issubclass(type(each), (dict, list, set, deque))}


def grown(before: dict[int, tuple[object, int]], least: int) -> list[str]:
    """What has at least so many entries more than before: its name and its numbers of entries."""
    more = [(each, size) for each, size in before.values() if len(each) >= size + least]
    return [f'{_name(each)}: {size} -> {len(each)} entries' for each, size in more]


def _name(container: object) -> str:
    """The function whose cache it is, or the variable or attribute that holds it."""
    return ' = '.join(dict.fromkeys(_names(container))) or f'a {type(container).__name__}'


def _names(container: object) -> Iterator[str]:
    for holder in gc.get_referrers(container):
        if type(holder) is functools._lru_cache_wrapper:
            yield f'{holder.__module__}.{holder.__qualname__}'
        elif type(holder) is dict:
            owner = holder.get('__name__') or holder.get('__module__') or f'a {type(container).__name__} at '
            yield from (f'{owner}.{key}' for key, value in holder.items() if value is container)


def function_caches(package: str) -> dict[str, functools._CacheInfo]:
    """The `lru_cache`s of a package by name."""
    found = (each for each in gc.get_objects() if type(each) is functools._lru_cache_wrapper)
    return {
        f'{each.__module__}.{each.__qualname__}': each.cache_info()
        for each in found
        if (each.__module__ or '').split('.')[0] == package
    }


def tensors() -> int:
    """How many tensors there are."""
    return sum(issubclass(type(each), torch.Tensor) for each in gc.get_objects())
