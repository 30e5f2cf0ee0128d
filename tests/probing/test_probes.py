"""Probes against independent forms: kNN by loops, scikit-learn's regression, torch's SGD, mmseg's metric."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from mmengine.structures import PixelData
from mmseg.evaluation.metrics import IoUMetric
from sklearn.linear_model import LogisticRegression as SklearnRegression

from vitplug.probing.cache import Record
from vitplug.probing.kinds import patch_shares
from vitplug.probing.probes import (
    LinearHead,
    LogisticRegression,
    NearestNeighbours,
    Samples,
    Scale,
    regress,
    votes,
)
from vitplug.probing.scores import ClassScorer, MapScorer, accuracy, enlarge, patch_iou

CLASSES = 3


def clusters(count: int, seed: int, spread: float = 1.0) -> tuple[Samples, np.ndarray]:
    """Float64 samples around three centres, and their classes."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, CLASSES, count)
    centres = np.array([[2.0, 0, 0, 1], [0, 2.0, 0, 1], [0, 0, 2.0, 1]])
    features = centres[labels] + spread * rng.normal(size=(count, 4))
    return Samples(torch.from_numpy(features), torch.from_numpy(np.eye(CLASSES)[labels])), labels


# --- k nearest neighbours ---


def votes_by_hand(queries, bank, labels, k, temperature):
    """DINO's weighted votes with loops: one query, then one neighbour after the other."""
    found = np.zeros((len(queries), CLASSES))
    for row, query in enumerate(queries):
        similar = [query @ known / np.linalg.norm(query) / np.linalg.norm(known) for known in bank]
        for index in sorted(range(len(bank)), key=lambda i: -similar[i])[:k]:
            found[row, labels[index]] += np.exp(similar[index] / temperature)
    return found / found.sum(1, keepdims=True)


@pytest.mark.parametrize(('k', 'temperature'), [(1, 0.07), (5, 0.07), (20, 0.5)])
def test_votes_are_those_of_dino(k, temperature):
    bank, labels = clusters(40, seed=0)
    queries, _ = clusters(9, seed=1)
    found = votes(queries.features_ND, F.normalize(bank.features_ND, dim=-1), bank.targets_NC, k, temperature)
    expected = votes_by_hand(queries.features_ND.numpy(), bank.features_ND.numpy(), labels, k, temperature)
    np.testing.assert_allclose(found.numpy(), expected, rtol=1e-10)


def test_best_number_of_neighbours_is_chosen():
    samples, _ = clusters(60, seed=0, spread=2.0)
    held_out, _ = clusters(60, seed=1, spread=2.0)
    scores = {k: NearestNeighbours((k,)).fit(samples, held_out, accuracy, 0).held_out for k in (1, 10, 40)}
    assert len(set(scores.values())) > 1
    head = NearestNeighbours((1, 10, 40)).fit(samples, held_out, accuracy, 0)
    assert scores[head.chosen] == max(scores.values()) == head.held_out


def test_more_neighbours_than_samples_are_refused():
    samples, _ = clusters(10, seed=0)
    with pytest.raises(ValueError, match=r'--k 11: only 10 samples to search; choose fewer'):
        NearestNeighbours((5, 11)).fit(samples, samples, accuracy, 0)


# --- logistic regression ---


@pytest.mark.parametrize('strength', [1e-2, 1.0, 10.0])
def test_regression_is_scikit_learns(strength):
    samples, labels = clusters(80, seed=0)
    weight, bias = regress(samples, strength)
    theirs = SklearnRegression(C=strength, tol=1e-10, max_iter=5000).fit(samples.features_ND.numpy(), labels)
    np.testing.assert_allclose(weight.T.numpy(), theirs.coef_, atol=2e-3)
    ours = torch.addmm(bias, samples.features_ND, weight).softmax(-1)
    np.testing.assert_allclose(ours.numpy(), theirs.predict_proba(samples.features_ND.numpy()), atol=5e-4)


def test_shares_count_as_scikit_learns_sample_weights():
    samples, labels = clusters(50, seed=2)
    shares = np.random.default_rng(0).uniform(0, 1, 50)
    weighted = Samples(samples.features_ND, samples.targets_NC * torch.from_numpy(shares)[:, None])
    weight, _ = regress(weighted, 1.0)
    theirs = SklearnRegression(tol=1e-10, max_iter=5000).fit(samples.features_ND.numpy(), labels, sample_weight=shares)
    np.testing.assert_allclose(weight.T.numpy(), theirs.coef_, atol=2e-3)


def test_probe_of_regression_standardises_and_chooses():
    samples, _ = clusters(80, seed=0)
    shifted = Samples(1000 * samples.features_ND + 7, samples.targets_NC)
    held_out = Samples(1000 * clusters(80, seed=1)[0].features_ND + 7, clusters(80, seed=1)[0].targets_NC)
    head = LogisticRegression().fit(shifted, held_out, accuracy, 0)
    assert head.held_out > 0.75
    assert accuracy(head.scores(held_out.features_ND), held_out.targets_NC) == head.held_out


# --- linear head ---


def test_each_rate_is_trained_as_if_alone():
    samples, _ = clusters(64, seed=0)
    together = LinearHead(30, 16, (0.01, 0.1, 1.0))._train(samples, torch.Generator().manual_seed(3))
    for index, rate in enumerate((0.01, 0.1, 1.0)):
        alone = LinearHead(30, 16, (rate,))._train(samples, torch.Generator().manual_seed(3))
        torch.testing.assert_close(together[0][index], alone[0][0], rtol=1e-9, atol=1e-9)
        torch.testing.assert_close(together[1][index], alone[1][0], rtol=1e-9, atol=1e-9)


def test_head_is_a_linear_layer_trained_by_torch():
    """One whole batch a step: no order of samples is left."""
    samples, labels = clusters(32, seed=0)
    [weight], [bias] = LinearHead(20, 32, (0.5,))._train(samples, torch.Generator().manual_seed(3))
    first = 0.01 * torch.randn(4, CLASSES, generator=torch.Generator().manual_seed(3))
    layer = torch.nn.Linear(4, CLASSES, dtype=torch.float64)
    layer.weight.data, layer.bias.data = first.T.double(), torch.zeros(CLASSES).double()
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.5 * 32 / 256, momentum=0.9)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 20)
    for _ in range(20):
        optimizer.zero_grad()
        F.cross_entropy(layer(samples.features_ND), torch.from_numpy(labels)).backward()
        optimizer.step()
        schedule.step()
    torch.testing.assert_close(weight.T, layer.weight.data, rtol=1e-9, atol=1e-12)
    torch.testing.assert_close(bias, layer.bias.data, rtol=1e-9, atol=1e-12)


def test_a_seed_draws_head_and_order():
    samples, _ = clusters(64, seed=0)
    probe = LinearHead(10, 16, (0.1,))
    heads = [probe.fit(samples, samples, accuracy, seed).scores(samples.features_ND) for seed in (0, 0, 1)]
    assert torch.equal(heads[0], heads[1]) and not torch.equal(heads[0], heads[2])


def test_constant_features_are_left_out():
    features = torch.tensor([[1.0, 5e6], [3.0, 5e6]])
    assert Scale.of(features)(features).tolist() == [[-1, 0], [1, 0]]


# --- scores ---


def test_top_1_and_mean_per_class():
    scorer = ClassScorer(4)
    for label, predicted in [(0, 0), (0, 0), (0, 1), (1, 2), (2, 2)]:
        scorer.add(F.one_hot(torch.tensor([predicted]), 4), record(np.zeros((1, 1)), (1, 1), label=np.array(label)))
    values = scorer.values()
    assert values['top-1'] == pytest.approx(60)
    assert values['mean per class'] == pytest.approx(100 * (2 / 3 + 0 + 1) / 3)  # no image of the fourth class
    np.testing.assert_allclose(values['per_class'], [200 / 3, 0, 100, np.nan])


def record(features, grid, label, padded=None, shape=None):
    shape = shape or label.shape or (1, 1)
    return Record(features, label, grid, padded or shape, shape)


def test_miou_is_that_of_mmsegs_metric():
    rng = np.random.default_rng(0)
    scorer, metric = MapScorer(CLASSES), IoUMetric(iou_metrics=['mIoU'])
    metric.dataset_meta = dict(classes=('a', 'b', 'c'))
    for _ in range(3):
        label = rng.choice([0, 1, 2, 255], (24, 32)).astype(np.uint8)
        image = record(np.zeros((12, 1)), (3, 4), label, padded=(16, 16), shape=(12, 16))
        scores = torch.from_numpy(rng.normal(size=(12, CLASSES)))
        predicted = scorer.add(scores, image)
        sample = dict(
            pred_sem_seg=dict(data=torch.from_numpy(predicted.astype(np.int64))[None]),
            gt_sem_seg=dict(data=torch.from_numpy(label.astype(np.int64))[None]),
        )
        metric.process({}, [sample])
    found, values = metric.compute_metrics(metric.results), scorer.values()
    assert {name: round(float(values[name]), 2) for name in ('mIoU', 'mAcc', 'aAcc')} == pytest.approx(found)


def test_maps_are_enlarged_as_mmseg_does():
    """`BaseSegmentor.postprocess_result`: padding is cut off, then the logits get the size of the image."""
    from mmseg.models.segmentors import EncoderDecoder
    from mmseg.structures import SegDataSample

    scores = torch.randn(12, CLASSES)
    image = record(np.zeros((12, 1)), (3, 4), np.zeros((30, 44), np.uint8), padded=(24, 32), shape=(20, 29))
    logits = F.interpolate(scores.T.reshape(1, CLASSES, 3, 4), (24, 32), mode='bilinear', align_corners=False)
    meta = dict(img_shape=(20, 29), ori_shape=(30, 44), padding_size=[0, 3, 0, 4])
    model = type('Model', (), dict(align_corners=False, out_channels=CLASSES))()
    [expected] = EncoderDecoder.postprocess_result(model, logits, [SegDataSample(metainfo=meta)])
    assert isinstance(expected.seg_logits, PixelData)
    torch.testing.assert_close(enlarge(scores, image), expected.seg_logits.data)


def test_iou_of_patches_is_that_of_pixels_of_nearest_patches():
    rng = np.random.default_rng(0)
    label = rng.choice([0, 1, 255], (12, 8)).astype(np.uint8)
    image = record(np.zeros((6, 1)), (3, 2), label)
    scores = torch.from_numpy(rng.normal(size=(6, CLASSES)))
    found = patch_iou(scores, torch.from_numpy(patch_shares(image, CLASSES)))
    pixels = scores.argmax(1).reshape(3, 2).repeat_interleave(4, 0).repeat_interleave(4, 1)
    both, union, *_ = IoUMetric.intersect_and_union(pixels, torch.from_numpy(label.astype(np.int64)), CLASSES, 255)
    expected = (both / union)[union > 0].mean()
    assert found == pytest.approx(float(expected), abs=1e-6)


# --- shares of patches ---


@pytest.mark.parametrize(('size', 'padded', 'shape'), [((8, 8), (8, 8), (8, 8)), ((6, 10), (8, 12), (6, 10))])
def test_shares_are_counted_pixel_by_pixel(size, padded, shape):
    rng = np.random.default_rng(0)
    label = rng.choice([0, 1, 2, 255], size).astype(np.uint8)
    found = patch_shares(record(np.zeros((6, 1)), (2, 2), label, padded, shape), CLASSES)
    expected = np.zeros((2, 2, CLASSES))
    for row in range(size[0]):
        for column in range(size[1]):
            if label[row, column] != 255:
                expected[row * 2 // padded[0], column * 2 // padded[1], label[row, column]] += 1
    np.testing.assert_allclose(found, expected.reshape(4, CLASSES) / (padded[0] * padded[1] / 4), rtol=1e-6)


def test_label_maps_of_another_size_have_the_same_shares():
    label = np.random.default_rng(0).choice([0, 1, 2, 255], (6, 10)).astype(np.uint8)
    large = label.repeat(3, 0).repeat(3, 1)
    places = dict(padded=(8, 12), shape=(6, 10))
    found = [patch_shares(record(np.zeros((4, 1)), (2, 2), one, **places), CLASSES) for one in (label, large)]
    np.testing.assert_allclose(*found, rtol=1e-6)
