"""Means and their 95 % intervals over images."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy import stats

LEVEL = 0.95
# Groups of images that are left out of statistics that are slow: Student's t is then near 2.
GROUPS = 16

Arrays = Mapping[str, np.ndarray]

# What an interval is over.
IMAGES, GROUPS_OF_IMAGES, ALONE = 'images', 'images, in groups', 'the model alone'


@dataclass(frozen=True)
class Estimate:
    """An array of numbers, each with its interval.

    Attributes:
        mean: The numbers; NaN where there is none, such as heads that a block does not have.
        low: Lower ends of the intervals; NaN where there are too few images for one.
        high: Upper ends.
        n: How many images each number is of; 0 for numbers of the model alone.
        over: What the intervals are over.
        samples: What each image gave, ``(images, ...)``; over groups of images what comes out without each of them.
    """

    mean: np.ndarray
    low: np.ndarray
    high: np.ndarray
    n: np.ndarray
    over: str
    samples: np.ndarray | None = None


def evenly_spaced(count: int, most: int) -> list[int]:
    """At most ``most`` of ``count`` indices, the first and the last among them."""
    return np.linspace(0, count - 1, min(most, count)).round().astype(int).tolist()


def student(values: np.ndarray, over: str = IMAGES) -> Estimate:
    """The mean over images, with the interval of Student's t at :data:`LEVEL`.

    Args:
        values: ``(images, ...)``; NaN where an image has no value.
        over: What the first axis is, in place of images.

    Returns:
        An estimate of shape ``(...)``. One image gives a mean without an interval.
    """
    values = np.asarray(values, dtype=np.float64)
    there = np.isfinite(values)
    n = there.sum(0)
    with np.errstate(invalid='ignore', divide='ignore'):
        mean = np.where(there, values, 0).sum(0) / n
        variance = (np.where(there, values - mean, 0) ** 2).sum(0) / (n - 1)
        half = stats.t.ppf((1 + LEVEL) / 2, np.maximum(n - 1, 1)) * np.sqrt(variance / n)
    half = np.where(n > 1, half, np.nan)
    return Estimate(mean, mean - half, mean + half, n, over, values)


def jackknife(values: Callable[[Sequence], Arrays], units: Sequence) -> dict[str, Estimate]:
    """Statistics of all images together, such as ratios of sums or fits, with the intervals of the jackknife.

    The spread of what comes out without each image, or without each group of images, gives the standard error;
    Student's t with one degree of freedom less gives the factor. For a mean and images left out one by one this is
    :func:`student`.

    Args:
        values: Gives the statistics of some of the images, by name.
        units: What there is of each image; a single one gives no interval.
    """
    whole, left_out = values(units), [values(some) for some in without_groups(units)]
    return {name: _jackknifed(mean, [part[name] for part in left_out], len(units)) for name, mean in whole.items()}


def _jackknifed(mean: np.ndarray, left_out: Sequence[np.ndarray], images: int) -> Estimate:
    mean, left, count = np.asarray(mean, np.float64), np.array(left_out, np.float64), len(left_out)
    half = np.full(mean.shape, np.nan)
    if count > 1:
        error = np.sqrt((count - 1) / count * ((left - left.mean(0)) ** 2).sum(0))
        half = stats.t.ppf((1 + LEVEL) / 2, count - 1) * error
    n = np.where(np.isfinite(mean), images, 0)
    return Estimate(mean, mean - half, mean + half, n, GROUPS_OF_IMAGES, left)


def combined(estimates: Sequence[Estimate], weights: Sequence[float] | None = None) -> Estimate | None:
    """The mean, or a weighted sum, of numbers of the same images in the same order, with its interval.

    Sums are taken image by image: what an image adds to all cancels in a difference. None if the numbers of blocks,
    heads or images differ, so that nothing corresponds.
    """
    shapes = {(one.over, one.mean.shape, one.samples is None or one.samples.shape) for one in estimates}
    counts = {one.n.max() for one in estimates if one.over == GROUPS_OF_IMAGES} - {0}  # NaN is of no image
    if len(shapes) > 1 or len(counts) > 1:
        return None
    weights = weights or [1 / len(estimates)] * len(estimates)
    pairs, first = [*zip(weights, estimates, strict=True)], estimates[0]
    whole = np.sum([weight * one.mean for weight, one in pairs], axis=0)
    if first.samples is None:
        return exact(whole)
    samples = np.sum([weight * one.samples for weight, one in pairs if one.samples is not None], axis=0)
    if first.over == GROUPS_OF_IMAGES:
        return _jackknifed(whole, list(samples), int(first.n.max()))
    return student(samples, first.over)


def paired(model: Estimate, baseline: Estimate) -> Estimate | None:
    """The difference model - baseline on the same images; None if nothing corresponds."""
    return combined([model, baseline], [1, -1])


def without_groups(units: Sequence) -> list[list]:
    """The units without each of at most 16 groups of neighbours in turn; nothing of a single unit."""
    groups = np.array_split(np.arange(len(units)), min(GROUPS, len(units)))
    return [[units[i] for i in range(len(units)) if i not in group] for group in groups if len(group) < len(units)]


def exact(value: np.ndarray) -> Estimate:
    """A number of the model alone, which depends on no image."""
    value = np.asarray(value, dtype=np.float64)
    nothing = np.full(value.shape, np.nan)
    return Estimate(value, nothing, nothing, np.zeros(value.shape, int), ALONE)
