"""Measures of features against their definitions, written as loops in float64, and cases computed by hand."""

import itertools
import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.testing import assert_close

from vitplug.lab.study.quantities.cka import BiasedCKA, MinibatchCKA, centred_gram
from vitplug.lab.study.quantities.tokens import (
    feature_similarity,
    mean_similarity,
    norm_outliers,
    token_norms,
)

SEEDS = st.integers(0, 2**32 - 1)


def noise(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def scalar(value):
    return torch.tensor(value, dtype=torch.float64)


# --- tokens ---


def test_similarity_by_hand():
    tokens = torch.tensor([[[1.0, 0.0], [0.0, 2.0], [3.0, 3.0]]], dtype=torch.float64)
    half = math.sqrt(0.5)
    expected = torch.tensor([[[1, 0, half], [0, 1, half], [half, half, 1]]], dtype=torch.float64)
    assert_close(feature_similarity(tokens), expected)
    assert_close(mean_similarity(tokens), scalar([4 * half / 6]))


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


def test_norms():
    tokens = torch.tensor([[[3.0, 4.0], [0.0, 0.0]], [[1.0, 0.0], [5.0, 12.0]]])
    assert token_norms(tokens).tolist() == [[5, 0], [1, 13]]
    # Squares of half precision would be infinite from 256 on.
    half = token_norms(torch.full((1, 1, 4), 1000.0, dtype=torch.float16))
    assert half.dtype == torch.float32 and half.tolist() == [[2000]]


def test_outliers_are_relative_to_the_median_of_their_image():
    # Medians are 2.5 and 25; three of them are 7.5 and 75.
    norms = torch.tensor([[1.0, 2.0, 3.0, 7.6], [10.0, 20.0, 30.0, 75.0]])
    assert norm_outliers(norms).tolist() == [[False, False, False, True], [False] * 4]
    assert norm_outliers(norms, factor=1.1).tolist() == [[False, False, True, True]] * 2
    with pytest.raises(ValueError, match='factor=0: expected a positive number'):
        norm_outliers(norms, 0)


# --- CKA of all examples ---


def biased_hsic(x, y):
    """tr(K H L H) with the centring matrix H, up to a factor that cancels."""
    h = torch.eye(len(x), dtype=torch.float64) - 1 / len(x)
    return torch.trace(x @ x.T @ h @ y @ y.T @ h)


def definition(x, y):
    return biased_hsic(x, y) / (biased_hsic(x, x) * biased_hsic(y, y)).sqrt()


def linear_cka(x, y):
    """CKA of all examples of two layers."""
    return torch.from_numpy(BiasedCKA(BiasedCKA.terms_of([centred_gram(x)], [centred_gram(y)])).whole())[0, 0]


def rotation(dims, seed=1):
    return torch.linalg.qr(noise(dims, dims, seed=seed))[0]


# Many examples of few numbers are compared by features, few examples of many numbers by Gram matrices.
@given(st.integers(2, 9), st.integers(1, 9), st.integers(1, 9), SEEDS)
def test_cka_is_its_definition(m, p, q, seed):
    x, y = noise(m, p, seed=seed), noise(m, q, seed=seed + 1)
    expected = definition(x, y)
    assert_close(linear_cka(x, y), expected, rtol=1e-7, atol=1e-9)
    assert_close(linear_cka(y, x), expected, rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize('m, p', [(40, 6), (6, 40)])
def test_cka_of_a_rotated_scaled_and_moved_copy_is_one(m, p):
    x = noise(m, p)
    y = -3.5 * x @ rotation(p) + 100
    assert_close(linear_cka(x, y), scalar(1.0))
    assert_close(linear_cka(x.half(), 2 * x.half()), scalar(1.0))
    sums = MinibatchCKA(1, 1)
    sums.update([x], [y])
    assert_close(sums.result(), scalar([[1.0]]))


def test_cka_by_hand():
    """Two columns, centred and orthogonal: x is one of them, y both, so that CKA is 1 / sqrt(1 + 1)."""
    a, b = scalar([1, 1, -1, -1]), scalar([1, -1, 1, -1])
    x, y = a[:, None] + 7, torch.stack((a, b), 1)
    assert_close(linear_cka(x, y), scalar(1 / math.sqrt(2)))
    assert_close(linear_cka(x, b[:, None]), scalar(0.0))


def test_features_without_variance_have_no_cka():
    x, constant = noise(6, 3), torch.full((6, 2), 0.1)
    grams = [centred_gram(x), centred_gram(constant)]
    assert np.isnan(BiasedCKA(BiasedCKA.terms_of(grams, grams)).whole()).tolist() == [[False, True], [True, True]]
    sums = MinibatchCKA(2, 2)
    sums.update([x, constant], [x, constant])
    assert sums.result().isnan().tolist() == [[False, True], [True, True]]


@given(st.integers(3, 8), SEEDS)
def test_biased_cka_without_each_example_is_that_of_the_others(m, seed):
    first, second = ([5 + noise(m, p, seed=seed + p) for p in dims] for dims in ((2, 9), (1, 4, 30)))
    found = BiasedCKA(BiasedCKA.terms_of(*([centred_gram(x) for x in layers] for layers in (first, second))))
    expected = [[definition(x, y) for y in second] for x in first]
    np.testing.assert_allclose(found.whole(), expected, rtol=1e-7, atol=1e-9)
    for without, matrix in enumerate(found.without_each()):
        kept = [i for i in range(m) if i != without]
        expected = [[definition(x[kept], y[kept]) for y in second] for x in first]
        np.testing.assert_allclose(matrix, expected, rtol=1e-6, atol=1e-8)


# --- CKA by minibatches ---


def hsic_1(x, y):
    """The U-statistic over all 4 different examples (Song et al., 2012)."""
    k, l = (x @ x.T).tolist(), (y @ y.T).tolist()  # noqa: E741
    terms = [k[i][j] * (l[i][j] + l[q][r] - 2 * l[i][q]) for i, j, q, r in itertools.permutations(range(len(x)), 4)]
    return sum(terms) / len(terms)


@given(st.integers(4, 7), SEEDS)
def test_sums_are_those_of_the_u_statistic(m, seed):
    first = [noise(m, p, seed=seed + p) for p in (2, 9)]
    second = [3 + noise(m, p, seed=seed + 10 * p) for p in (1, 4, 6)]
    found = MinibatchCKA(2, 3)
    found.update(first, second)
    sums = found.sums()
    np.testing.assert_allclose(sums['xy'], [[hsic_1(x, y) for y in second] for x in first], rtol=1e-8, atol=1e-10)
    np.testing.assert_allclose(sums['xx'], [hsic_1(x, x) for x in first], rtol=1e-8, atol=1e-10)
    np.testing.assert_allclose(sums['yy'], [hsic_1(y, y) for y in second], rtol=1e-8, atol=1e-10)


def test_features_of_shuffled_examples_are_not_similar_on_average():
    """The estimate is unbiased: its mean over all orders of the examples of one layer is exactly 0."""
    x, y = noise(5, 3), noise(5, 2, seed=1)
    total = MinibatchCKA(1, 1)
    for order in itertools.permutations(range(5)):
        total.update([x], [y[list(order)]])
    assert abs(total.result().item()) < 1e-12
    assert np.mean([definition(x, y[list(order)]) for order in itertools.permutations(range(5))]) > 0.1


def test_batches_add_up():
    batches = [(noise(m, 3, seed=m), noise(m, 5, seed=9 + m)) for m in (4, 6, 5)]
    whole, parts = MinibatchCKA(1, 1), [MinibatchCKA(1, 1) for _ in batches]
    for part, (x, y) in zip(parts, batches, strict=True):
        for sums in (whole, part):
            sums.update([x], [y])
    xy, xx, yy = (sum(hsic_1(batch[a], batch[b]) for batch in batches) for a, b in ((0, 1), (0, 0), (1, 1)))
    assert_close(whole.result(), scalar([[xy / math.sqrt(xx * yy)]]))
    np.testing.assert_allclose(MinibatchCKA.of_sums(part.sums() for part in parts), whole.result())


def test_unbiased_and_exact_agree_on_many_examples():
    x = noise(600, 4)
    y = x @ noise(4, 3, seed=1) + noise(600, 3, seed=2)
    sums = MinibatchCKA(1, 1)
    sums.update([x], [y])
    assert abs(sums.result().item() - linear_cka(x, y).item()) < 0.01


@pytest.mark.parametrize(
    'call, reason',
    [
        (lambda: centred_gram(noise(4, 2, 2)), r'flatten tokens by flatten\(1\)'),
        (lambda: centred_gram(noise(1, 2)), '1 examples: CKA needs 2 or more'),
        (lambda: MinibatchCKA(1, 1).update([noise(3, 2)], [noise(3, 2)]), '3 examples: CKA needs 4 or more'),
        (lambda: MinibatchCKA(1, 2).update([noise(4, 2)], [noise(4, 2)]), r'features of \(1, 1\) layers: .*\(1, 2\)'),
    ],
)
def test_wrong_features_are_named(call, reason):
    with pytest.raises(ValueError, match=reason):
        call()


def test_no_batch_has_no_cka():
    assert MinibatchCKA(2, 2).result().isnan().all()
