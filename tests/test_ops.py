"""The ops that stand in for mmcv's compiled ones, against their definitions and against compiled ones."""

import math

import pytest
import torch
from mmcv.ops.multi_scale_deform_attn import multi_scale_deformable_attn_pytorch
from torch.testing import assert_close
from torchvision.ops import roi_align, sigmoid_focal_loss

from vitplug import ops


def boxes_and_scores(number=60, seed=0):
    torch.manual_seed(seed)
    corners = torch.rand(number, 2) * 40
    return torch.cat((corners, corners + 1 + torch.rand(number, 2) * 30), dim=1), torch.rand(number)


def iou(a, b, offset):
    width = max(0, min(a[2], b[2]) - max(a[0], b[0]) + offset)
    height = max(0, min(a[3], b[3]) - max(a[1], b[1]) + offset)
    areas = [(box[2] - box[0] + offset) * (box[3] - box[1] + offset) for box in (a, b)]
    return width * height / (sum(areas) - width * height)


def softened(boxes, scores, weight, min_score, offset):
    """Indices and scores of the kept boxes, by the definition of soft-NMS."""
    boxes, scores, left, kept = boxes.tolist(), scores.tolist(), list(range(len(boxes))), []
    while left:
        best = max(left, key=scores.__getitem__)
        kept.append(best)
        left.remove(best)
        for other in left:
            scores[other] *= weight(iou(boxes[best], boxes[other], offset))
        left = [other for other in left if scores[other] >= min_score]
    return kept, [scores[index] for index in kept]


@pytest.mark.parametrize('offset', [0, 1])
def test_nms(offset, threshold=0.3):
    boxes, scores = boxes_and_scores()
    kept, _ = softened(boxes, scores, lambda overlap: float(overlap <= threshold), 1e-9, offset)
    assert 1 < len(kept) < len(boxes)
    assert ops.nms(boxes, scores, threshold, offset).tolist() == kept
    assert ops.nms(boxes.half(), scores, threshold, offset).dtype == torch.int64
    assert ops.nms(boxes[:0], scores[:0], threshold, offset).tolist() == []


METHODS = {
    ops.NAIVE: lambda overlap: float(overlap < 0.4),
    ops.LINEAR: lambda overlap: 1 if overlap < 0.4 else 1 - overlap,
    ops.GAUSSIAN: lambda overlap: math.exp(-overlap * overlap / 0.5),
}


@pytest.mark.parametrize('offset', [0, 1])
@pytest.mark.parametrize('method', METHODS)
def test_soft_nms(method, offset):
    boxes, scores = boxes_and_scores()
    before, dets = scores.clone(), torch.zeros(len(boxes), 5)
    settings = dict(iou_threshold=0.4, sigma=0.5, min_score=0.05, method=method, offset=offset)
    kept = ops.softnms(boxes, scores, dets, **settings)
    expected, lowered = softened(boxes, scores, METHODS[method], 0.05, offset)
    assert kept.tolist() == expected and len(expected) < len(boxes)
    assert_close(dets[: len(kept)], torch.cat((boxes[expected], torch.tensor(lowered)[:, None]), dim=1))
    assert torch.equal(scores, before)
    assert ops.softnms(boxes[:0], scores[:0], dets[:0], **settings).tolist() == []


# --- regions ---


ROIS = torch.tensor([[0, 1.3, 2.1, 17.9, 9.4], [1, -3, -2, 11, 25], [1, 8, 3, 8.2, 3.1], [0, 0, 0, 47, 31.0]])


def aligned_rois(module, maps, rois, grad, **settings):
    """The output of RoIAlign and the gradient of its maps."""
    output, grad_maps, none = torch.zeros_like(grad), torch.zeros_like(maps), maps.new_zeros(0)
    settings |= dict(aligned_height=grad.shape[2], aligned_width=grad.shape[3], pool_mode=ops.AVERAGE)
    module.roi_align_forward(maps, rois, output, none, none, **settings)
    module.roi_align_backward(grad, rois, none, none, grad_maps, **settings)
    return output, grad_maps


@pytest.mark.parametrize('aligned', [True, False])
@pytest.mark.parametrize('ratio', [0, 2])
def test_roi_align(ratio, aligned):
    torch.manual_seed(0)
    maps, grad = torch.rand(2, 3, 8, 12, dtype=torch.float64, requires_grad=True), torch.rand(4, 3, 2, 3).double()
    expected = roi_align(maps, ROIS.double(), (2, 3), 0.25, ratio, aligned)
    settings = dict(spatial_scale=0.25, sampling_ratio=ratio, aligned=aligned)
    output, grad_maps = aligned_rois(ops, maps.detach(), ROIS.double(), grad, **settings)
    assert_close(output, expected.detach(), rtol=1e-5, atol=1e-6)
    assert_close(grad_maps, torch.autograd.grad(expected, maps, grad)[0], rtol=1e-5, atol=1e-6)
    half, _ = aligned_rois(ops, maps.detach().bfloat16(), ROIS, grad.bfloat16(), **settings)
    assert_close(half.double(), output, rtol=1e-2, atol=1e-2)


# --- what GPUs need, on which mmdet and mmseg do not take their own functions in torch ---


@pytest.mark.parametrize('weights', [[], [0.5, 2.0, 1.0]])
def test_focal_loss(weights):
    torch.manual_seed(0)
    logits, target = torch.randn(6, 3, dtype=torch.float64, requires_grad=True), torch.tensor([0, 1, 2, 2, 0, 1])
    if not weights:
        target[0] = 3  # no class
    classes = (target[:, None] == torch.arange(3)).double()
    losses = sigmoid_focal_loss(logits, classes, alpha=0.25, gamma=2.0)
    if weights:
        losses = losses * torch.tensor(weights)[target][:, None]
    output, grad = torch.zeros(6, 3).double(), torch.zeros(6, 3).double()
    weights = torch.tensor(weights).double()
    ops.sigmoid_focal_loss_forward(logits.detach(), target, weights, output, gamma=2.0, alpha=0.25)
    ops.sigmoid_focal_loss_backward(logits.detach(), target, weights, grad, gamma=2.0, alpha=0.25)
    assert_close(output, losses.detach())
    assert_close(grad, torch.autograd.grad(losses.sum(), logits)[0])


def test_deformable_attention():
    """mmcv has the values in torch."""
    torch.manual_seed(0)
    shapes, starts = torch.tensor([[3, 4], [2, 2]]), torch.tensor([0, 12])
    value = torch.rand(2, 16, 2, 3, dtype=torch.float64, requires_grad=True)
    places = (torch.rand(2, 5, 2, 2, 3, 2, dtype=torch.float64) * 1.2 - 0.1).requires_grad_()
    weights = torch.rand(2, 5, 2, 2, 3, dtype=torch.float64, requires_grad=True)
    expected = multi_scale_deformable_attn_pytorch(value, shapes, places, weights)
    inputs = (value.detach(), shapes, starts, places.detach(), weights.detach())
    assert torch.equal(ops.ms_deform_attn_forward(*inputs, im2col_step=64), expected)
    grad, grads = torch.rand_like(expected), [torch.zeros_like(tensor) for tensor in (value, places, weights)]
    ops.ms_deform_attn_backward(*inputs, grad, *grads, im2col_step=64)
    assert_close(grads, list(torch.autograd.grad(expected, (value, places, weights), grad)))


# --- in place of mmcv's ---


def test_other_ops_name_what_they_need():
    with pytest.raises(NotImplementedError, match=r"^deform_conv_forward needs mmcv's compiled ops.*OPS=compiled"):
        ops.deform_conv_forward(torch.ones(1), stride=1)
    none = torch.zeros(1, 1, 1, 1)
    settings = dict(aligned_height=1, aligned_width=1, spatial_scale=1.0, sampling_ratio=0, aligned=True)
    with pytest.raises(NotImplementedError, match=r"^RoIAlign with pool_mode='max' needs"):
        ops.roi_align_forward(none, ROIS[:1], none, none, none, pool_mode=0, **settings)
