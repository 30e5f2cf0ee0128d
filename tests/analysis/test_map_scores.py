"""Scores of relevance maps beside counts by hand, and the logit lens beside the model's own logits."""

import numpy as np
import pytest
import torch
from cases import images, randomize
from mmengine.registry import MODELS, init_default_scope
from torch.testing import assert_close

from vitplug.analysis.measures.logit_lens import logit_lens
from vitplug.analysis.measures.map_scores import pixel_flipping, pointing_game, relevance_mass, relevance_rank

HEAT = np.array([[9.0, 1, 0], [2, 9, -4], [3, 3, 3]])
LEFT = np.array([[1, 0, 0], [1, 0, 0], [1, 0, 0]], bool)


def test_scores_of_one_map_by_hand():
    assert pointing_game(HEAT, LEFT) == 0.5  # two highest points, one of them inside
    assert pointing_game(HEAT, ~LEFT) == 0.5
    assert relevance_mass(HEAT, LEFT) == pytest.approx(14 / 30)  # the negative value counts as 0
    # Three places: both 9s, and one of three 3s, of which one lies in the mask.
    assert relevance_rank(HEAT, LEFT) == pytest.approx((1 + 1 / 3) / 3)


def test_perfect_and_empty_maps():
    for score in (pointing_game, relevance_mass, relevance_rank):
        assert score(LEFT.astype(float), LEFT) == 1
        assert score((~LEFT).astype(float), LEFT) == 0
    flat = np.ones((3, 3))
    assert pointing_game(flat, LEFT) == relevance_mass(flat, LEFT) == relevance_rank(flat, LEFT) == pytest.approx(1 / 3)
    assert relevance_mass(np.zeros((3, 3)), LEFT) == 0


@pytest.mark.parametrize('seed', range(20))
def test_scores_of_random_maps_beside_slow_ones(seed):
    rng = np.random.default_rng(seed)
    heat, mask = rng.integers(-2, 6, (7, 5)).astype(float), rng.random((7, 5)) < 0.4
    mask[3, 3] = True
    inside, outside = [], []
    for y, x in np.ndindex(heat.shape):
        (inside if mask[y, x] else outside).append(max(heat[y, x], 0.0))
    assert relevance_mass(heat, mask) == pytest.approx(sum(inside) / sum(inside + outside))
    best = max(inside + outside)
    assert pointing_game(heat, mask) == pytest.approx(inside.count(best) / (inside + outside).count(best))
    # Mean over random orders of ties.
    found = []
    for _ in range(4000):
        order = np.lexsort((rng.random(heat.size), -heat.clip(min=0).ravel()))
        found.append(mask.ravel()[order[: mask.sum()]].mean())
    assert relevance_rank(heat, mask) == pytest.approx(np.mean(found), abs=0.02)


def test_pixel_flipping_by_hand():
    image = np.arange(18, dtype=np.uint8).reshape(2, 3, 3)
    seen = []

    def score(changed):
        seen.append(changed)
        return float(changed[0].sum())

    curve = pixel_flipping(score, image, HEAT, steps=3)
    colour = np.array([4, 13], np.uint8)  # means of the channels
    order = [(0, 0), (1, 1), (2, 0), (2, 1), (2, 2), (1, 0), (0, 1), (0, 2), (1, 2)]
    assert len(curve) == len(seen) == 4
    for step, changed in enumerate(seen):
        expected = image.copy()
        for y, x in order[: 3 * step]:
            expected[:, y, x] = colour
        assert np.array_equal(changed, expected) and changed.dtype == image.dtype
        assert curve[step] == expected[0].sum()


WRONG = {
    'shapes': (lambda: pointing_game(HEAT, LEFT[:2]), r'map \(3, 3\) and mask \(2, 3\): expected one shape'),
    'no object': (lambda: relevance_mass(HEAT, LEFT & ~LEFT), 'the mask is empty'),
    'no number': (lambda: relevance_rank(HEAT * np.nan, LEFT), 'values that are not finite'),
    'another size': (lambda: pixel_flipping(sum, np.zeros((3, 4, 4)), HEAT), r'map \(3, 3\) of an image \(4, 4\)'),
    'steps': (lambda: pixel_flipping(sum, np.zeros((3, 3, 3)), HEAT, 10), 'steps=10: expected 1 to 9'),
}


@pytest.mark.parametrize('case', WRONG)
def test_wrong_maps_are_refused(case):
    make, message = WRONG[case]
    with pytest.raises(ValueError, match=message):
        make()


def classifier(neck=None, **backbone):
    init_default_scope('mmpretrain')
    arch = dict(embed_dims=12, num_layers=3, num_heads=3, feedforward_channels=16)
    settings = dict(type='vitplug.VisionTransformer', arch=arch, img_size=(32, 40), patch_size=8, **backbone)
    head = dict(type='LinearClsHead', num_classes=5, in_channels=12)
    return (
        randomize(MODELS.build(dict(type='ImageClassifier', backbone=settings, neck=neck, head=head))).double().eval()
    )


@torch.no_grad()
def test_lens_of_the_last_block_averages_to_the_logits():
    """Norm, mean over patches and a linear layer: the mean of the lens is the model's own logits."""
    model = classifier(dict(type='GlobalAveragePooling'), with_cls_token=False, out_type='featmap')
    x = images(32, 40)
    _, found = model.backbone.forward_intermediates(x, ('block',), layers=[2])
    lens = logit_lens(model, found['block'][2], 0)
    assert lens.shape == (2, 20, 5)
    assert_close(lens.mean(1), model(x, mode='tensor'))


@torch.no_grad()
def test_lens_in_the_place_of_the_class_token():
    """The class token, read as a patch, gives the model's own logits."""
    model, x = classifier(with_cls_token=True, out_type='cls_token'), images(32, 40)
    _, found = model.backbone.forward_intermediates(x, ('block',), layers=[0, 2])
    assert_close(logit_lens(model, found['block'][2][:, :1], 0)[:, 0], model(x, mode='tensor'))
    patches = logit_lens(model, found['block'][0], 1)
    assert_close(patches, model.head.fc(model.backbone.ln1(found['block'][0][:, 1:])))


def test_lens_refuses_other_models_and_widths():
    model = classifier(with_cls_token=False, out_type='avg_featmap')
    with pytest.raises(ValueError, match='tokens of width 7: the head reads tokens of width 12'):
        logit_lens(model, torch.zeros(1, 3, 7), 0)
    with pytest.raises(ValueError, match='Linear: expected a classifier with a backbone of vitplug and a head'):
        logit_lens(torch.nn.Linear(1, 1), torch.zeros(1, 3, 7), 0)
    model = classifier(dict(type='LinearNeck', in_channels=240, out_channels=12), out_type='avg_featmap')
    with pytest.raises(ValueError, match='LinearNeck and LinearClsHead do not read one token alone'):
        logit_lens(model, torch.zeros(1, 3, 12).double(), 0)
