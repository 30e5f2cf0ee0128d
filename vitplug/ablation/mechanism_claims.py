"""The papers' claims about what a plug does, each as one number of a measure of `analyze.py`."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from functools import partial

import numpy as np

#: What a measure gave for one model: arrays by name of the value.
Numbers = Mapping[str, np.ndarray]
#: From these to the values over depth, a matrix of blocks, or one number.
Values = Callable[[Numbers], np.ndarray]


class Against(Enum):
    """What the number of a variant is compared with."""

    BASELINE = 'the baseline'
    START = 'its start'
    ZERO = '0'


@dataclass(frozen=True)
class Claim:
    """A claim of a paper.

    Attributes:
        plug: Type of the plug whose variant is looked at.
        text: The claim.
        source: Paper and figure.
        measure: Measure of `analyze.py`.
        values: Takes the values of that measure that the claim is about.
        number: One number of these values.
        sign: 1 if it grows, -1 if it falls, 0 if the paper does not say.
        against: What it is compared with.
    """

    plug: str
    text: str
    source: str
    measure: str
    values: Values
    number: Callable[[np.ndarray], float]
    sign: int
    against: Against = Against.BASELINE


def _value(name: str, numbers: Numbers) -> np.ndarray:
    """The values of a name, after the plug where it changes maps."""
    return numbers.get(f'{name} after the plug', numbers[name])


def _learned(symbol: str, numbers: Numbers, statistic: str = 'mean') -> np.ndarray:
    """A statistic of a learned value by block, mean over its sockets.

    Raises:
        KeyError: If the plug has not learned it.
    """
    found = [array for name, array in numbers.items() if name.startswith(symbol) and name.endswith(f', {statistic}')]
    if not found:
        raise KeyError(symbol)
    return np.mean(found, axis=0)


def _halves(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The values of the first half of the blocks, and of the others."""
    return values[: len(values) // 2], values[len(values) // 2 :]


def _shallow(values: np.ndarray) -> float:
    return float(np.nanmean(_halves(values)[0]))


def _deep(values: np.ndarray) -> float:
    return float(np.nanmean(_halves(values)[1]))


def _all(values: np.ndarray) -> float:
    return float(np.nanmean(values))


def _slope(values: np.ndarray) -> float:
    """Of the least-squares line over the blocks."""
    blocks = np.flatnonzero(np.isfinite(values))
    return float(np.polyfit(blocks, values[blocks], 1)[0])


def _across(matrix: np.ndarray) -> float:
    """Mean over the pairs of a block of the first half and one of the second."""
    half = len(matrix) // 2
    return float(np.nanmean(matrix[:half, half:]))


_MASS = partial(_value, 'attention of the first key, mean of heads')
_SINKS = 'Qiu et al. 2025 (gates)'
CLAIMS = (
    Claim(
        'ContextBroadcast',
        'the attention entropy of the layers falls',
        'Context Broadcasting, Fig. 5a',
        'entropy',
        partial(_value, 'patch queries, mean of heads'),
        _all,
        -1,
    ),
    Claim(
        'ContextBroadcast',
        'the mean of Lambda grows with depth',
        'Context Broadcasting, Fig. 6',
        'learned',
        partial(_learned, 'cb.Lambda'),
        _slope,
        1,
        Against.ZERO,
    ),
    Claim(
        'ContextBroadcast',
        'the ratio of the quantiles of Lambda grows with depth',
        'Context Broadcasting, Fig. 6',
        'learned',
        partial(_learned, 'cb.Lambda', statistic='quantile ratio'),
        _slope,
        1,
        Against.ZERO,
    ),
    Claim(
        'GaussianAttentionBias',
        'the receptive field is closer to a Gaussian (R²)',
        'Gaussian Attention Bias, Sec. 3',
        'erf',
        partial(_value, 'R²'),
        float,
        1,
    ),
    Claim(
        'GaussianAttentionBias',
        'training brings the receptive field closer to a Gaussian (R²)',
        'Gaussian Attention Bias, Sec. 3',
        'erf',
        partial(_value, 'R²'),
        float,
        1,
        Against.START,
    ),
    Claim(
        'GaussianAttentionBias',
        'learned A',
        'Gaussian Attention Bias, Eq. 3',
        'learned',
        partial(_learned, 'gab.A'),
        _all,
        0,
        Against.START,
    ),
    Claim(
        'GaussianAttentionBias',
        'learned sigma, in tokens',
        'Gaussian Attention Bias, Eq. 3',
        'learned',
        partial(_learned, 'gab.sigma'),
        _all,
        0,
        Against.START,
    ),
    Claim(
        'ResidualAttention',
        'the feature similarity of the deep layers falls',
        'ReViT, Fig. 3',
        'feature_similarity',
        partial(_value, 'similarity'),
        _deep,
        -1,
    ),
    Claim(
        'ResidualAttention',
        'the non-locality falls',
        'ReViT, Fig. 7',
        'non_locality',
        partial(_value, 'non-locality, mean of heads'),
        _all,
        -1,
    ),
    Claim(
        'ResidualAttention',
        'learned alpha',
        'ReViT, Fig. 10',
        'learned',
        partial(_learned, 'residual_attention.alpha'),
        _all,
        0,
        Against.START,
    ),
    Claim(
        'BroadAttention',
        'shallow and deep layers are less similar (CKA)',
        'BViT, Fig. 5',
        'cka',
        partial(_value, 'between blocks'),
        _across,
        -1,
    ),
    Claim(
        'BroadAttention',
        'the shallow layers attend more locally (mean attention distance)',
        'BViT, Fig. 6',
        'distance',
        partial(_value, 'mean distance, mean of heads'),
        _shallow,
        -1,
    ),
    Claim(
        'Refiner',
        'features evolve faster',
        'Refiner, Fig. 4',
        'evolving_speed',
        partial(_value, 'evolving speed'),
        _all,
        1,
    ),
    Claim(
        'Refiner',
        'the maps of neighbouring blocks are less similar',
        'Refiner, Fig. 5',
        'map_similarity',
        partial(_value, 'to the next block'),
        _all,
        -1,
    ),
    Claim('GatedAttention', 'the attention of sinks falls', _SINKS, 'sinks', _MASS, _all, -1),
    Claim('LocalitySelfAttention', 'control: the attention of sinks', _SINKS, 'sinks', _MASS, _all, 0),
    Claim('Registers', 'control: the attention of sinks', _SINKS, 'sinks', _MASS, _all, 0),
)
