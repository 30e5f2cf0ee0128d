"""Class weights beside ignored pixels, against torch's weighted mean."""

import pytest
import torch
import torch.nn.functional as F
from mmengine.registry import MODELS
from mmseg.models.losses import CrossEntropyLoss
from stacks import STACK
from torch.testing import assert_close

WEIGHTS = [0.3, 1.0, 2.0]
SETTINGS = dict(class_weight=WEIGHTS, loss_weight=0.4)


def logits_and_labels(ignored: int):
    generator = torch.Generator().manual_seed(0)
    labels = torch.randint(0, 3, (2, 4, 5), generator=generator)
    labels[0, :ignored] = 255
    return torch.randn(2, 3, 4, 5, generator=generator, dtype=torch.float64), labels


@pytest.mark.parametrize('ignored', [0, 2])
def test_is_the_weighted_mean_over_the_pixels_that_count(ignored):
    logits, labels = logits_and_labels(ignored)
    loss = MODELS.build(dict(type='vitplug.SegCrossEntropyLoss', **SETTINGS))
    weights = logits.new_tensor(WEIGHTS)
    expected = 0.4 * F.cross_entropy(logits, labels, weights, ignore_index=255)
    assert_close(loss(logits, labels, ignore_index=255), expected)
    # Other reductions are left alone.
    expected = 0.4 * F.cross_entropy(logits, labels, weights, ignore_index=255, reduction='none')
    assert_close(loss(logits, labels, ignore_index=255, reduction_override='none'), expected)


def test_equals_mmseg_where_that_works():
    logits, labels = logits_and_labels(2)
    ours, theirs = MODELS.build(dict(type='vitplug.SegCrossEntropyLoss', **SETTINGS)), CrossEntropyLoss(**SETTINGS)
    assert torch.equal(ours(logits, labels % 3, ignore_index=255), theirs(logits, labels % 3, ignore_index=255))
    if STACK == 'onedl':
        assert torch.equal(ours(logits, labels, ignore_index=255), theirs(logits, labels, ignore_index=255))
    else:
        with pytest.raises(IndexError):  # what this loss is for
            theirs(logits, labels, ignore_index=255)
