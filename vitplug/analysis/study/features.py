"""Measures of the tokens that blocks hand on."""

import math
from collections.abc import Sequence

import numpy as np
import torch
from matplotlib.figure import Figure
from torch import Tensor

from vitplug.analysis.measures.features import OUTLIER_FACTOR, norm_outliers, similarity_or_nan, token_norms
from vitplug.analysis.measures.places import Place
from vitplug.statistics.images import Arrays, Estimate, jackknife

from . import drawing
from .estimators import UNBIASED, Estimator
from .loaded import Loaded
from .measure import Measure, Recorded, Shown, by_block, of_one_size, of_other_sizes, sizes_of, values_of
from .subject import Subject


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

    def observe(self, subject: Subject, image: Loaded, recorded: Recorded) -> Arrays:
        layers = recorded['block']
        values = next(iter(layers.values()))
        return {
            value: by_block({layer: kept[value] for layer, kept in layers.items()}, subject.num_layers)
            for value in values
        }

    def draw(self, shown: Sequence[Shown]) -> Figure:
        return over_depth(self, shown)


def over_depth(measure: Measure, shown: Sequence[Shown]) -> Figure:
    """Each value of one number a block over the blocks."""
    by_value = {
        value: {one.label: dict(mean=one.estimates[value]) for one in shown if value in one.estimates}
        for value in values_of(shown, ndim=1)
    }
    return drawing.over_depth(measure.title, measure.unit, by_value)


class FeatureSimilarity(OfTokens):
    name = 'feature_similarity'
    title = 'Similarity of the tokens of an image'
    definition = "Mean cosine similarity of two different patch tokens of an image at a block's output"
    unit = 'cosine'
    source = 'ReViT, Fig. 3'

    def left_out(self, subject: Subject) -> str:
        single = [
            layer
            for layer in range(subject.num_layers)
            if any(math.prod(subject.place(layer, size).layout.hw) == 1 for size in set(subject.sizes))
        ]
        return f'blocks {single}, where an image has a single patch, which makes no pair' if single else ''

    def values(self, tokens_BND: Tensor) -> dict[str, Tensor]:
        return {'similarity': similarity_or_nan(tokens_BND)}


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
    """Linear CKA of the features of all blocks, flattened over tokens.

    Args:
        estimator: How it is estimated; names the measure, unless it is the default.
    """

    base: str
    quantity: str
    unit_of: str
    figure: str
    axes = ('layer', 'other layer')

    def __init__(self, estimator: Estimator = UNBIASED):
        self.estimator = estimator
        is_default = estimator is UNBIASED
        self.name = self.base if is_default else f'{self.base}-{estimator.name}'
        self.title = f'{self.quantity}, {estimator.name}'
        self.unit = f'{self.unit_of} ({estimator.name})'
        self.source = f'{self.figure}; {estimator.source}'

    def by(self, estimator: Estimator) -> 'OfGroups':
        """The same by another estimator."""
        return type(self)(estimator)

    @property
    def needs(self) -> str:
        return f'{self.estimator.least} images of one size'

    def why_not(self, *subjects: Subject) -> str:
        count = len(of_one_size(sizes_of(subjects)))
        if count >= self.estimator.least:
            return ''
        return f'it needs {self.estimator.least} images of one size, there are {count}; --num sets how many are taken'

    def left_out(self, *subjects: Subject) -> str:
        images, used = of_one_size(sizes_of(subjects)), sum(map(len, self.units(*subjects)))
        unused = f'{len(images) - used} of {len(images)} images of one size, which it has no batch for'
        return '; '.join(filter(None, (of_other_sizes(sizes_of(subjects)), unused if used < len(images) else '')))

    def units(self, *subjects: Subject) -> list[Sequence[int]]:
        an_image = sum(math.prod(shape) for subject in subjects for shape in subject.recorded['block'].values())
        return self.estimator.groups(of_one_size(sizes_of(subjects)), an_image)

    def names(self, subject: Subject) -> tuple[str, ...]:
        return ('block',)

    def reduce(self, subject: Subject, name: str, tensor: Tensor, place: Place) -> Tensor:
        return tensor.flatten().float()

    def observe(self, subject: Subject, image: Loaded, recorded: Recorded) -> list[Tensor]:
        return [recorded['block'][layer] for layer in sorted(recorded['block'])]

    def join(self, *observed: Sequence[Sequence[Tensor]]) -> Arrays:
        # A generator for each model, so that the features of one block at a time are copied.
        return self.estimator.join([map(torch.stack, zip(*images, strict=True)) for images in observed])

    def estimate(self, units: Sequence[Arrays], images: int) -> dict[str, Estimate]:
        whole, left_out = self.estimator.whole_and_left_out(units)
        return jackknife(self.values(whole), list(map(self.values, left_out)), images)

    def values(self, cka: np.ndarray) -> Arrays:
        """Values of a matrix of CKA, blocks x blocks."""
        raise NotImplementedError


class CKA(OfGroups):
    base = 'cka'
    quantity = 'Linear CKA between blocks'
    unit_of = 'CKA'
    figure = 'BViT, Fig. 5'
    ALL, NEXT = 'between blocks', 'to the next block'

    @property
    def definition(self) -> str:
        return (
            f"Linear CKA between the blocks' outputs, flattened over tokens, by {self.estimator.words} of the most "
            'frequent size'
        )

    def values(self, cka: np.ndarray) -> Arrays:
        return {self.ALL: cka, self.NEXT: np.append(cka.diagonal(1), np.nan)}

    def draw(self, shown: Sequence[Shown]) -> Figure:
        matrices = {one.label: one.estimates[self.ALL].mean for one in shown}
        return drawing.matrices(self.title, matrices, dict.fromkeys(matrices, ('block', 'block')))


class CKAToBaseline(OfGroups):
    base = 'cka_baseline'
    quantity = 'Linear CKA between the model and its baseline'
    unit_of = 'CKA'
    figure = CKA.figure
    compares = True

    @property
    def definition(self) -> str:
        other = CKA(self.estimator).name
        return f"Linear CKA between the blocks of the model and those of the baseline on the same images, as '{other}'"

    @property
    def needs(self) -> str:
        return f'--baseline; {super().needs}'

    def why_not(self, *subjects: Subject) -> str:
        if len(subjects) < 2:
            return 'it compares with a baseline: name one with --baseline'
        return super().why_not(*subjects)

    def values(self, cka: np.ndarray) -> Arrays:
        same = {'at the same block': cka.diagonal()} if cka.shape[0] == cka.shape[1] else {}
        return {CKA.ALL: cka, **same}

    def draw(self, shown: Sequence[Shown]) -> Figure:
        [one] = shown
        matrix, axes = one.estimates[CKA.ALL].mean, ('block of the model', 'block of the baseline')
        return drawing.matrices(self.title, {one.label: matrix}, {one.label: axes})


class EvolvingSpeed(OfGroups):
    base = 'evolving_speed'
    quantity = 'Feature-evolving speed'
    unit_of = 'ratio of CKA'
    figure = 'Refiner, Fig. 2'
    axes = ('layer',)

    @property
    def definition(self) -> str:
        return (
            "CKA between a block's output and the last block's, divided by that between the first block's and the last "
            f"block's, both as '{CKA(self.estimator).name}'"
        )

    def values(self, cka: np.ndarray) -> Arrays:
        return {'evolving speed': cka[:, -1] / cka[0, -1]}

    def draw(self, shown: Sequence[Shown]) -> Figure:
        return over_depth(self, shown)


FEATURES = (FeatureSimilarity(), TokenNorms(), CKA(), CKAToBaseline(), EvolvingSpeed())
