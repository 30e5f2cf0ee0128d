"""Measures of features against their definitions, written as loops in float64, and cases computed by hand."""

import itertools
import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.testing import assert_close

from vitplug.lab.study.measures.features import (
    biased,
    centred_grams,
    cka,
    feature_similarity,
    mean_similarity,
    of_batches,
    of_images,
    of_sums,
    unbiased,
)

SEEDS = st.integers(0, 2**32 - 1)


def noise(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def scalar(value):
    return torch.tensor(value, dtype=torch.float64)


# --- tokens ---


@given(st.integers(1, 3), st.integers(2, 7), st.integers(1, 5), SEEDS)
def test_similarity_is_that_of_loops(batch, count, dims, seed):
    tokens = noise(batch, count, dims, seed=seed)
    similarity = feature_similarity(tokens)
    for b in range(batch):
        pairs = []
        for i, j in itertools.product(range(count), repeat=2):
            one, other = tokens[b, i].tolist(), tokens[b, j].tolist()
            cosine = sum(x * y for x, y in zip(one, other, strict=True)) / math.hypot(*one) / math.hypot(*other)
            assert_close(similarity[b, i, j], scalar(cosine))
            pairs += [cosine] if i != j else []
        mean = scalar(sum(pairs) / len(pairs))
        assert_close(mean_similarity(tokens)[b], mean)


def test_a_token_of_zeros_is_similar_to_none():
    tokens = torch.tensor([[[0.0, 0.0], [1.0, 0.0], [2.0, 0.0]]])
    assert feature_similarity(tokens)[0].tolist() == [[0, 0, 0], [0, 1, 1], [0, 1, 1]]
    assert_close(mean_similarity(tokens), torch.tensor([1 / 3]))


def test_one_token_makes_no_pair():
    assert mean_similarity(torch.ones(2, 1, 8)).isnan().tolist() == [True, True]
    assert mean_similarity(torch.ones(2, 3, 8)).tolist() == pytest.approx([1, 1])


# --- CKA ---


def grams(*layers):
    return centred_grams(layers)


def biased_hsic(x, y):
    """tr(K H L H) with the centring matrix H."""
    h = torch.eye(len(x), dtype=torch.float64) - 1 / len(x)
    return torch.trace(x @ x.T @ h @ y @ y.T @ h)


def definition(x, y):
    return biased_hsic(x, y) / (biased_hsic(x, x) * biased_hsic(y, y)).sqrt()


def linear_cka(*layers):
    return cka(biased(grams(*layers)))


def unbiased_cka(*layers):
    return cka(unbiased(grams(*layers)))


# Layers may have more numbers than there are examples, or fewer.
@given(st.integers(2, 9), st.integers(1, 9), st.integers(1, 9), SEEDS)
def test_cka_is_its_definition(m, p, q, seed):
    x, y = noise(m, p, seed=seed), noise(m, q, seed=seed + 1)
    found, expected = linear_cka(x, y), definition(x, y).item()
    assert found == pytest.approx(np.array([[1, expected], [expected, 1]]), rel=1e-7, abs=1e-9)


@pytest.mark.parametrize('m, p', [(40, 6), (6, 40)])
def test_cka_of_a_rotated_scaled_and_moved_copy_is_one(m, p):
    x = noise(m, p)
    y = -3.5 * x @ torch.linalg.qr(noise(p, p, seed=1))[0] + 100
    for found in (linear_cka(x, y), linear_cka(x.half(), 2 * x.half()), unbiased_cka(x, y)):
        assert found == pytest.approx(np.ones((2, 2)), rel=1e-6)


def test_features_without_variance_have_no_cka():
    x, constant = noise(6, 3), torch.full((6, 2), 0.1)
    for found in (linear_cka(x, constant), unbiased_cka(x, constant)):
        assert np.isnan(found).tolist() == [[False, True], [True, True]]


def hsic_1(x, y):
    """The U-statistic over all 4 different examples (Song et al., 2012)."""
    k, l = (x @ x.T).tolist(), (y @ y.T).tolist()  # noqa: E741
    terms = [k[i][j] * (l[i][j] + l[q][r] - 2 * l[i][q]) for i, j, q, r in itertools.permutations(range(len(x)), 4)]
    return sum(terms) / len(terms)


@given(st.integers(4, 7), SEEDS)
def test_unbiased_hsic_is_the_u_statistic(m, seed):
    layers = [3 + noise(m, p, seed=seed + p) for p in (2, 9, 1)]
    expected = [[hsic_1(x, y) for y in layers] for x in layers]
    assert unbiased(grams(*layers)) == pytest.approx(np.array(expected), rel=1e-8, abs=1e-9)


@pytest.mark.parametrize(('matrix', 'of_group'), [(of_sums, unbiased), (of_batches, biased)])
def test_gram_matrices_of_some_images_are_those_of_their_features(matrix, of_group):
    """The jackknife leaves images out of the stored matrices."""
    groups = [[5 + noise(m, p, seed=seed + p) for p in (2, 9)] for m, seed in ((6, 0), (5, 9))]
    units = [{'grams': grams(*group).numpy()} for group in groups]
    kept = [(0, 1), (0, 2), (0, 4), (0, 5), (1, 0), (1, 1), (1, 3), (1, 4)]
    parts = [grams(*(layer[[1, 2, 4, 5]] for layer in groups[0])), grams(*(layer[[0, 1, 3, 4]] for layer in groups[1]))]
    hsic = [of_group(part) for part in parts]
    expected = cka(sum(hsic)) if matrix is of_sums else np.mean([cka(one) for one in hsic], axis=0)
    assert matrix(of_images(units, kept)) == pytest.approx(expected, rel=1e-7)
