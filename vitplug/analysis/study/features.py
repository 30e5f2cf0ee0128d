"""Measures of the tokens that blocks hand on."""

import math
from collections.abc import Sequence

import numpy as np
import torch
from matplotlib.figure import Figure
from torch import Tensor

from vitplug.analysis.measures.cka import LEAST_EXAMPLES, MinibatchCKA, centred_gram
from vitplug.analysis.measures.features import (
    OUTLIER_FACTOR,
    mean_feature_similarity,
    norm_outliers,
    token_norms,
)
from vitplug.analysis.measures.places import Place

from . import drawing
from .images import Loaded
from .measure import Found, Measure, Shown, by_block, of_one_size, of_other_sizes, sizes_of
from .statistics import Arrays, Estimate, jackknife
from .subject import Subject

# Images whose features are compared at a time; the fewest, one of which is left out in turn.
GROUP, LEAST = 32, LEAST_EXAMPLES + 1
# Numbers that a group holds until its last image, 1 GiB of them; large images make smaller groups.
MOST_FEATURES = 2**28
# Names of the arrays of the model, and of the baseline.
SIDES = ('model', 'baseline')


class OfTokens(Measure):
    """Numbers of each block's tokens of one image, without prefix tokens."""

    needs = 'tokens'
    axes = ('layer',)

    def names(self, subject: Subject) -> tuple[str, ...]:
        return ('block',)

    def values(self, tokens_BND: Tensor) -> dict[str, Tensor]:
        """Numbers of the tokens of one block."""
        raise NotImplementedError

    def reduce(self, subject: Subject, name: str, tensor: Tensor, place: Place) -> dict[str, float]:
        tokens = tensor[:, place.layout.num_prefix :]
        return {value: number.item() for value, number in self.values(tokens).items()}

    def observe(self, subject: Subject, image: Loaded, found: Found) -> Arrays:
        layers = found['block']
        values = next(iter(layers.values()))
        return {
            value: by_block({layer: kept[value] for layer, kept in layers.items()}, subject.num_layers)
            for value in values
        }

    def draw(self, shown: Sequence[Shown]) -> Figure:
        return over_depth(self, shown)


def over_depth(measure: Measure, shown: Sequence[Shown]) -> Figure:
    """Each value of one number a block over the blocks."""
    values = dict.fromkeys(value for one in shown for value, found in one.estimates.items() if found.mean.ndim == 1)
    by_value = {
        value: {one.label: dict(mean=one.estimates[value]) for one in shown if value in one.estimates}
        for value in values
    }
    return drawing.over_depth(measure.title, measure.unit, by_value)


class FeatureSimilarity(OfTokens):
    name = 'feature_similarity'
    title = 'Similarity of the tokens of an image'
    definition = "Mean cosine similarity of two different patch tokens of an image at a block's output"
    unit = 'cosine'
    source = 'ReViT, Fig. 3'

    def values(self, tokens_BND: Tensor) -> dict[str, Tensor]:
        return {'similarity': mean_feature_similarity(tokens_BND)}


class TokenNorms(OfTokens):
    name = 'token_norms'
    title = 'Norms of tokens'
    definition = (
        "Euclidean norms of the patch tokens at a block's output: their mean, the largest in medians, and the share "
        f'above {OUTLIER_FACTOR:g} medians'
    )
    unit = 'norm, medians, share'
    source = 'Darcet et al. 2024, Fig. 3'

    def values(self, tokens_BND: Tensor) -> dict[str, Tensor]:
        norms_BN = token_norms(tokens_BND)
        return {
            'mean norm': norms_BN.mean(),
            'largest norm in medians': norms_BN.max() / norms_BN.median(),
            'share of outliers': norm_outliers(norms_BN).float().mean(),
        }


class OfGroups(Measure):
    """Linear CKA of the features of all blocks, flattened over tokens, by unbiased HSIC summed over groups of images.

    A group is kept as few numbers that have its inner products, so that each image can be left out for the jackknife.
    """

    needs = f'{LEAST} images of one size'
    unit = 'CKA'
    axes = ('layer', 'other layer')

    def why_not(self, *subjects: Subject) -> str:
        count = len(of_one_size(sizes_of(subjects)))
        return '' if count >= LEAST else f'it needs {LEAST} images of one size, there are {count}'

    def left_out(self, *subjects: Subject) -> str:
        return of_other_sizes(sizes_of(subjects))

    def units(self, *subjects: Subject) -> list[Sequence[int]]:
        images = of_one_size(sizes_of(subjects))
        an_image = sum(math.prod(shape) for subject in subjects for shape in subject.recorded['block'].values())
        size = min(max(MOST_FEATURES // an_image, 2 * LEAST), GROUP)
        return [part.tolist() for part in np.array_split(images, -(-len(images) // size))]

    def names(self, subject: Subject) -> tuple[str, ...]:
        return ('block',)

    def reduce(self, subject: Subject, name: str, tensor: Tensor, place: Place) -> Tensor:
        return tensor.flatten().float()

    def observe(self, subject: Subject, image: Loaded, found: Found) -> list[Tensor]:
        return [found['block'][layer] for layer in sorted(found['block'])]

    def join(self, *observed: Sequence[Sequence[Tensor]]) -> Arrays:
        return {
            side: np.stack([_coordinates(torch.stack(features)) for features in zip(*images, strict=True)])
            for side, images in zip(SIDES, observed, strict=False)
        }

    def estimate(self, units: Sequence[Arrays], images: int) -> dict[str, Estimate]:
        groups = [_sums(unit) for unit in units]
        left_out = [
            self.values(MinibatchCKA.of_sums([*groups[:number], _sums(unit, image), *groups[number + 1 :]]))
            for number, unit in enumerate(units)
            for image in range(unit[SIDES[0]].shape[1])
        ]
        return jackknife(self.values(MinibatchCKA.of_sums(groups)), left_out, images)

    def values(self, cka: np.ndarray) -> Arrays:
        """Values of a matrix of CKA, blocks x blocks."""
        raise NotImplementedError


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


class CKA(OfGroups):
    name = 'cka'
    title = 'Linear CKA between blocks'
    definition = (
        "Linear CKA between the blocks' outputs, flattened over tokens, by unbiased HSIC summed over groups of up to "
        f'{GROUP} images of the most frequent size'
    )
    source = 'BViT, Fig. 5; Nguyen et al. 2021, Eq. 3'
    ALL, NEXT = 'between blocks', 'to the next block'

    def values(self, cka: np.ndarray) -> Arrays:
        return {self.ALL: cka, self.NEXT: np.append(cka.diagonal(1), np.nan)}

    def draw(self, shown: Sequence[Shown]) -> Figure:
        found = {one.label: one.estimates[self.ALL].mean for one in shown}
        return drawing.matrices(self.title, found, dict.fromkeys(found, ('block', 'block')))


class CKAToBaseline(OfGroups):
    name = 'cka_baseline'
    title = 'Linear CKA between the model and its baseline'
    definition = "Linear CKA between the blocks of the model and those of the baseline on the same images, as 'cka'"
    source = CKA.source
    needs = f'--baseline; {OfGroups.needs}'
    compares = True

    def why_not(self, *subjects: Subject) -> str:
        return (
            super().why_not(*subjects) if len(subjects) > 1 else 'it compares with a baseline: name one with --baseline'
        )

    def values(self, cka: np.ndarray) -> Arrays:
        same = {'at the same block': cka.diagonal()} if cka.shape[0] == cka.shape[1] else {}
        return {CKA.ALL: cka, **same}

    def draw(self, shown: Sequence[Shown]) -> Figure:
        [one] = shown
        matrix, axes = one.estimates[CKA.ALL].mean, ('block of the model', 'block of the baseline')
        return drawing.matrices(self.title, {one.label: matrix}, {one.label: axes})


class EvolvingSpeed(OfGroups):
    name = 'evolving_speed'
    title = 'Feature-evolving speed'
    definition = (
        "CKA between a block's output and the last block's, divided by that between the first block's and the last "
        "block's"
    )
    unit = 'ratio'
    source = 'Refiner, Fig. 2'
    axes = ('layer',)

    def values(self, cka: np.ndarray) -> Arrays:
        return {'evolving speed': cka[:, -1] / cka[0, -1]}

    def draw(self, shown: Sequence[Shown]) -> Figure:
        return over_depth(self, shown)


FEATURES = (FeatureSimilarity(), TokenNorms(), CKA(), CKAToBaseline(), EvolvingSpeed())
