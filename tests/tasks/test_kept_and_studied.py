"""What of a prediction is left in another one, and what a relevance map is to explain: made predictions, by hand."""

import numpy as np
import pytest
import torch
from mmengine.structures import BaseDataElement, InstanceData, PixelData

from vitplug.tasks.kept import kept_class, kept_map, kept_objects
from vitplug.tasks.studied import studied_class, studied_map
from vitplug.tasks.targets import ClassLogit, PixelClass

THR = 0.3


def classes(*scores):
    sample = BaseDataElement()
    sample.pred_score = torch.tensor(scores)
    return sample


def label_map(logits):
    sample = BaseDataElement()
    logits = torch.tensor(logits, dtype=torch.float64)
    labels = logits.argmax(0, keepdim=True) if len(logits) > 1 else (logits > 0).long()
    sample.seg_logits, sample.pred_sem_seg = PixelData(data=logits), PixelData(data=labels)
    return sample


def objects(*found):
    """Of ``(box, label, score)``."""
    sample = BaseDataElement()
    boxes, labels, scores = zip(*found, strict=True) if found else ((), (), ())
    sample.pred_instances = InstanceData(
        bboxes=torch.tensor(boxes, dtype=torch.float32).reshape(-1, 4),
        labels=torch.tensor(labels, dtype=torch.long),
        scores=torch.tensor(scores, dtype=torch.float32),
    )
    return sample


def test_kept_class():
    before = classes(0.2, 0.7, 0.1)
    same, other = kept_class(before, classes(0.1, 0.5, 0.4)), kept_class(before, classes(0.6, 0.3, 0.1))
    assert (same.score, same.share) == (pytest.approx(0.5), 1) and (other.score, other.share) == (pytest.approx(0.3), 0)


def test_kept_map():
    before = label_map([[[2.0, 0], [0, 5]], [[1, 3], [1, 0]]])  # classes 0, 1, 1, 0
    logits = np.array([[[1.0, 0], [4, 5]], [[2, 3], [1, 0]]])  # the first and the third pixel change
    found = kept_map(before, label_map(logits.tolist()))
    shares = np.exp(logits) / np.exp(logits).sum(0)
    assert found.score == pytest.approx(np.mean([shares[0, 0, 0], shares[1, 0, 1], shares[1, 1, 0], shares[0, 1, 1]]))
    assert found.share == 0.5


def test_kept_map_of_one_output():
    """Its sigmoid is the probability of the second class."""
    found = kept_map(label_map([[[2.0, -1.0]]]), label_map([[[1.0, 3.0]]]))
    assert found.score == pytest.approx((1 / (1 + np.exp(-1)) + 1 - 1 / (1 + np.exp(-3))) / 2) and found.share == 0.5


def test_kept_objects():
    box, moved, far = (0, 0, 10, 10), (0, 0, 10, 6), (20, 20, 30, 30)
    before = objects((box, 1, 0.9), (far, 2, 0.5), (far, 0, 0.1))  # the last one is too weak to count
    after = objects((moved, 1, 0.6), (box, 2, 0.8), ((0, 0, 10, 4), 1, 0.7), (far, 2, 0.2))
    found = kept_objects(before, after, THR)
    # The box of the same class with an overlap of 0.6, not that of 0.4; the other is still there, but too weak.
    assert found.score == pytest.approx((0.6 + 0.2) / 2) and found.share == 0.5
    gone = kept_objects(before, objects(), THR)
    assert (gone.score, gone.share) == (0, 0)
    assert np.isnan(kept_objects(objects((box, 1, 0.1)), after, THR).score)


def test_studied_class():
    found = studied_class(classes(0.2, 0.7, 0.1))
    assert found.target == ClassLogit(1) and found.mask is None
    assert found.score(classes(0.5, 0.4, 0.1)) == pytest.approx(0.4)


def test_studied_map():
    """The class with the second most pixels of the ground truth; its score over the pixels predicted as it."""
    predicted = [[[2.0, 0], [0, 5]], [[1, 3], [1, 0]], [[0, 0], [0, 0]]]
    truth = np.array([[0, 0], [1, 255]], np.uint8)
    found = studied_map(label_map(predicted), truth)
    assert found.target == PixelClass(1)
    assert found.mask.tolist() == [[False, False], [True, False]]
    shares = np.exp(predicted) / np.exp(predicted).sum(0)
    assert found.score(label_map(predicted)) == pytest.approx((shares[1, 0, 1] + shares[1, 1, 0]) / 2)
    assert studied_map(label_map(predicted), None).mask is None
    with pytest.raises(ValueError, match='class 2 is predicted at no pixel'):
        studied_map(label_map(predicted), np.array([[0, 0], [2, 0]], np.uint8))
    with pytest.raises(ValueError, match='one class alone'):
        studied_map(label_map(predicted), np.zeros((2, 2), np.uint8))
