"""How CKA is estimated: without bias by default, or as a paper does, to be compared with its figures."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from vitplug.analysis.measures.cka import LEAST_EXAMPLES, BiasedCKA, MinibatchCKA, centred_gram
from vitplug.statistics.images import Arrays

# Images whose features are compared at a time; the fewest, one of which is left out in turn.
GROUP, LEAST = 32, LEAST_EXAMPLES + 1
# Numbers that a group holds until its last image, 1 GiB of them; large images make smaller groups.
MOST_FEATURES = 2**28
# Names of the arrays of the model, and of the baseline.
SIDES = ('model', 'baseline')


class Estimator(Protocol):
    """From features of groups of images to CKA between blocks.

    Attributes:
        name: Name on the command line.
        words: What it does, after "by".
        source: Where it comes from.
        least: Fewest images.
    """

    name: str
    words: str
    source: str
    least: int

    def groups(self, images: Sequence[int], an_image: int) -> list[list[int]]:
        """The images of each group, where one has ``an_image`` numbers."""

    def join(self, sides: Sequence[Sequence[Tensor]]) -> Arrays:
        """What is kept of a group; takes the features ``(m, p)`` of each block, of the model and of a baseline."""

    def whole_and_left_out(self, units: Sequence[Arrays]) -> tuple[np.ndarray, Iterator[np.ndarray]]:
        """CKA of all groups, blocks x blocks, and without each image in turn."""


class Unbiased:
    """HSIC_1, summed over groups of images.

    A group is kept as few numbers that have its inner products, so that each image can be left out for the jackknife.
    """

    name = 'unbiased'
    words = f'unbiased HSIC summed over groups of up to {GROUP} images'
    source = 'Nguyen et al. 2021, Eq. 3'
    least = LEAST

    def groups(self, images: Sequence[int], an_image: int) -> list[list[int]]:
        size = min(max(MOST_FEATURES // an_image, 2 * LEAST), GROUP)
        return [part.tolist() for part in np.array_split(images, -(-len(images) // size))]

    def join(self, sides: Sequence[Sequence[Tensor]]) -> Arrays:
        return {side: np.stack(list(map(_coordinates, blocks))) for side, blocks in zip(SIDES, sides, strict=False)}

    def whole_and_left_out(self, units: Sequence[Arrays]) -> tuple[np.ndarray, Iterator[np.ndarray]]:
        groups = [_sums(unit) for unit in units]
        left_out = (
            MinibatchCKA.of_sums([*groups[:number], _sums(unit, image), *groups[number + 1 :]])
            for number, unit in enumerate(units)
            for image in range(unit[SIDES[0]].shape[1])
        )
        return MinibatchCKA.of_sums(groups), left_out


def _coordinates(x_mp: Tensor) -> np.ndarray:
    """Features ``(m, m)`` with the centred inner products of features ``(m, p)``, on which alone CKA depends."""
    values, vectors = torch.linalg.eigh(centred_gram(x_mp))
    return (vectors * values.clamp(min=0).sqrt()).cpu().numpy()


def _sums(unit: Arrays, left_out: int | None = None) -> dict[str, np.ndarray]:
    """Sums of HSIC over the images of a group, but one."""
    kept = [image for image in range(unit[SIDES[0]].shape[1]) if image != left_out]
    first, last = (torch.from_numpy(unit[side][:, kept]).unbind() for side in (SIDES[0], [*unit][-1]))
    sums = MinibatchCKA(len(first), len(last))
    sums.update(first, last)
    return sums.sums()


@dataclass(frozen=True)
class OfBatches:
    """Plain, biased CKA of each batch of images, and the mean over the batches.

    Its bias depends on the number of images in a batch, so batches are never smaller. Images are drawn at random, the
    same ones in every call.

    Args:
        name: Name on the command line.
        source: Where it comes from.
        batch: Images of a batch.
        batches: Batches.
    """

    name: str
    source: str
    batch: int
    batches: int

    @property
    def words(self) -> str:
        if self.batches == 1:
            return f'biased HSIC of {self.batch} images at once'
        return f'biased HSIC of {self.batch} images, the mean of {self.batches} such batches'

    @property
    def least(self) -> int:
        return self.batch * self.batches

    def groups(self, images: Sequence[int], an_image: int) -> list[list[int]]:
        drawn = np.random.default_rng(0).permutation(images)[: self.least]
        return [sorted(part.tolist()) for part in drawn.reshape(self.batches, self.batch)]

    def join(self, sides: Sequence[Sequence[Tensor]]) -> Arrays:
        grams = [list(map(centred_gram, blocks)) for blocks in sides]
        return BiasedCKA.terms_of(grams[0], grams[-1])

    def whole_and_left_out(self, units: Sequence[Arrays]) -> tuple[np.ndarray, Iterator[np.ndarray]]:
        batches = [BiasedCKA(unit) for unit in units]
        of_batches = [batch.whole() for batch in batches]
        whole = np.mean(of_batches, axis=0)
        left_out = (
            whole + (without - of_batch) / len(batches)
            for batch, of_batch in zip(batches, of_batches, strict=True)
            for without in batch.without_each()
        )
        return whole, left_out


UNBIASED = Unbiased()
ESTIMATORS: dict[str, Estimator] = {
    estimator.name: estimator
    for estimator in (
        UNBIASED,
        OfBatches('paper-refiner', 'Refiner, appendix A.4', batch=32, batches=10),
        OfBatches('paper-bvit', 'BViT, Eq. 9', batch=1000, batches=1),
    )
}
