"""Centred kernel alignment (CKA) with linear kernels: how similar two layers represent the same examples.

Features are ``(m, p)``: m examples, p numbers of each, such as a block's tokens, flattened. Two layers may have
different p. All sums are in float64. CKA is 1 for features that a rotation and one scale turn into each other.

Two estimates of the same quantity:

- exact: all examples at once, with the biased estimate of HSIC (Kornblith et al., arXiv 1905.00414), which is far above
  0 for unrelated features where there are more numbers than examples;
- by minibatches: the unbiased HSIC_1 (Song et al., 2012) summed over batches (Nguyen et al., arXiv 2010.15327, Eq. 3),
  which needs the features of one batch only.
"""

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import torch
from torch import Tensor

#: Fewest examples of a batch for the unbiased estimate.
LEAST_EXAMPLES = 4


# --- of a batch, biased ---


def centred_gram(x: Tensor) -> Tensor:
    """The centred Gram matrix ``(m, m)`` of features ``(m, p)``, in float64.

    Raises:
        ValueError: If they are no features.
    """
    [x] = _check_features((x,))
    return x @ x.T


class BiasedCKA:
    """CKA of all examples of a batch between layers, and the same without each example.

    Without example i, centred inner products ``K_jk`` become ``K_jk + (K_ij + K_ik) / (m - 1) + K_ii / (m - 1)^2``, and
    so the products of two layers, ``t = sum_jk K_jk L_jk``, become ``t - 2 f sum_j K_ij L_ij + f^2 K_ii L_ii`` with
    ``f = m / (m - 1)``: row sums and diagonals are all that is kept of the Gram matrices.

    Args:
        terms: As :meth:`terms_of` gives them, which may have been stored.
    """

    def __init__(self, terms: Mapping[str, np.ndarray]):
        self.terms = terms

    @staticmethod
    def terms_of(grams_x: Sequence[Tensor], grams_y: Sequence[Tensor]) -> dict[str, np.ndarray]:
        """What CKA is made of.

        Args:
            grams_x: Of each layer of the first model, as :func:`centred_gram` gives it.
            grams_y: Of each layer of the second one, of the same examples.

        Returns:
            Row sums of products, ``'xy'`` ``(num_x, num_y, m)``, ``'xx'`` ``(num_x, m)`` and ``'yy'`` ``(num_y, m)``,
            and diagonals, ``'x'`` ``(num_x, m)`` and ``'y'`` ``(num_y, m)``.
        """
        terms = {
            'xy': torch.stack([torch.stack([(x * y).sum(1) for y in grams_y]) for x in grams_x]),
            'xx': torch.stack([x.square().sum(1) for x in grams_x]),
            'yy': torch.stack([y.square().sum(1) for y in grams_y]),
            'x': torch.stack([x.diagonal() for x in grams_x]),
            'y': torch.stack([y.diagonal() for y in grams_y]),
        }
        return {name: value.cpu().numpy() for name, value in terms.items()}

    def whole(self) -> np.ndarray:
        """CKA of all examples ``(num_x, num_y)``; nan where a layer is the same for all of them."""
        return _normalised(*(self.terms[name].sum(-1) for name in ('xy', 'xx', 'yy')))

    def without_each(self) -> np.ndarray:
        """CKA without each example in turn ``(m, num_x, num_y)``."""
        x, y = self.terms['x'], self.terms['y']
        diagonals = dict(xy=x[:, None] * y[None], xx=x**2, yy=y**2)
        factor = x.shape[-1] / (x.shape[-1] - 1)
        left = {
            name: rows.sum(-1, keepdims=True) - 2 * factor * rows + factor**2 * diagonals[name]
            for name, rows in self.terms.items()
            if name in diagonals
        }
        return _normalised(*(np.moveaxis(left[name], -1, 0) for name in ('xy', 'xx', 'yy')))


def _normalised(xy: np.ndarray, xx: np.ndarray, yy: np.ndarray) -> np.ndarray:
    """HSIC of pairs ``(..., num_x, num_y)`` over the roots of those of each layer with itself."""
    with np.errstate(invalid='ignore', divide='ignore'):
        return xy / np.sqrt(xx[..., :, None] * yy[..., None, :])


# --- by minibatches ---


class MinibatchCKA:
    """CKA between layers from unbiased HSIC_1, summed over batches.

    Keeps three sums, ``(num_x, num_y)``, ``(num_x,)`` and ``(num_y,)``; while a batch of m examples is added, also a
    Gram matrix ``(m, m)`` for each layer.

    Args:
        num_x: Layers of the first model.
        num_y: Layers of the second one.
    """

    def __init__(self, num_x: int, num_y: int):
        self._sums = {'xy': torch.zeros(num_x, num_y), 'xx': torch.zeros(num_x), 'yy': torch.zeros(num_y)}
        self._sums = {name: value.double() for name, value in self._sums.items()}

    def update(self, x: Sequence[Tensor], y: Sequence[Tensor]) -> None:
        """Adds a batch.

        Args:
            x: Features of each layer of the first model ``(m, p)``; 4 examples or more.
            y: Features of the same examples, of each layer of the second one ``(m, q)``.

        Raises:
            ValueError: If there are other numbers of layers, fewer examples, or they are not of the same examples.
        """
        given, expected = (len(x), len(y)), tuple(self._sums['xy'].shape)
        if given != expected:
            raise ValueError(f'features of {given} layers: expected {expected}, as given to MinibatchCKA')
        features = _check_features((*x, *y), LEAST_EXAMPLES)
        grams_x = _UCentred.of(features[: len(x)])
        grams_y = _UCentred.of(features[len(x) :])
        self._sums['xy'] += grams_x.products(grams_y)
        self._sums['xx'] += grams_x.squares()
        self._sums['yy'] += grams_y.squares()

    def sums(self) -> dict[str, np.ndarray]:
        """Sums of HSIC_1: ``'xy'`` ``(num_x, num_y)``, ``'xx'`` ``(num_x,)`` and ``'yy'`` ``(num_y,)``."""
        return {name: value.numpy().copy() for name, value in self._sums.items()}

    def result(self) -> Tensor:
        """CKA ``(num_x, num_y)``, float64; nan without a batch, or where a layer is the same for all examples."""
        return torch.from_numpy(self.of_sums([self.sums()]))

    @staticmethod
    def of_sums(parts: Iterable[Mapping[str, np.ndarray]]) -> np.ndarray:
        """CKA ``(num_x, num_y)`` from the :meth:`sums` of several parts, which may have been stored."""
        parts = list(parts)
        return _normalised(*(np.sum([part[name] for part in parts], axis=0) for name in ('xy', 'xx', 'yy')))


class _UCentred:
    """U-centred Gram matrices: their dot product is ``m (m - 3)`` times the unbiased HSIC_1 of two layers.

    With the diagonal set to 0, ``r_i`` the sum of row i and t that of all entries, entry ``(i, j)`` off the diagonal is
    ``k_ij - (r_i + r_j) / (m - 2) + t / ((m - 1) (m - 2))``. The product expands to the three terms of HSIC_1.
    """

    def __init__(self, grams_LMM: Tensor):
        self.grams_LMM = grams_LMM
        examples = grams_LMM.shape[-1]
        self.scale = examples * (examples - 3)

    @classmethod
    def of(cls, layers: Sequence[Tensor]) -> '_UCentred':
        grams_LMM = torch.stack([x @ x.T for x in layers])
        examples = grams_LMM.shape[-1]
        grams_LMM.diagonal(dim1=1, dim2=2).zero_()
        rows_LM = grams_LMM.sum(2)
        total_L11 = rows_LM.sum(1)[:, None, None]
        grams_LMM -= (rows_LM[:, :, None] + rows_LM[:, None, :]) / (examples - 2)
        grams_LMM += total_L11 / ((examples - 1) * (examples - 2))
        grams_LMM.diagonal(dim1=1, dim2=2).zero_()
        return cls(grams_LMM)

    def products(self, other: '_UCentred') -> Tensor:
        """HSIC_1 of every pair of layers."""
        return (self.grams_LMM.flatten(1) @ other.grams_LMM.flatten(1).T / self.scale).cpu()

    def squares(self) -> Tensor:
        """HSIC_1 of every layer with itself."""
        return (self.grams_LMM.square().sum((1, 2)) / self.scale).cpu()


def _check_features(layers: Sequence[Tensor], least: int = 2) -> list[Tensor]:
    """Features with centred columns in float64.

    Raises:
        ValueError: If they are not ``(m, p)`` of the same number of examples, or of too few.
    """
    shapes = [tuple(x.shape) for x in layers]
    if any(len(shape) != 2 for shape in shapes):
        raise ValueError(f'features of {shapes}: expected (examples, numbers of each): flatten tokens by flatten(1)')
    if len({len(x) for x in layers}) > 1:
        raise ValueError(f'features of {shapes}: expected the same examples in all layers')
    if len(layers[0]) < least:
        raise ValueError(f'{len(layers[0])} examples: CKA needs {least} or more')
    # Relative to the first example, so that features without variance become exact zeros.
    relative = [x.double() - x[:1].double() for x in layers]
    return [x - x.mean(0) for x in relative]
