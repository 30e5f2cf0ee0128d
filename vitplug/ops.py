"""Stands in for `mmcv._ext`, mmcv's compiled ops, where mmcv came without them.

`pip install onedl-mmcv` builds no ops, and then `import mmcv.ops` fails, and with it mmdet. Python takes this file for
`mmcv._ext` if it finds no other (:class:`vitplug.OpsFinder`). It has the ops that the Swin and ViT configs of mmdet and
mmseg call, by torch and torchvision; so they also run on GPUs. Names, signatures and meanings are those of mmcv's ops,
which write into arguments. Every other op says that it needs mmcv with compiled ops.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
import torchvision
from torch import Tensor
from torch.nn.functional import one_hot

# Weights of soft-NMS: mmcv passes the methods as numbers.
NAIVE, LINEAR, GAUSSIAN = 0, 1, 2
# mmcv's number of the kind of pooling, and torchvision's names of the sides of maps.
AVERAGE = 1
SHAPE = 'batch_size', 'channels', 'height', 'width'


def __getattr__(name: str) -> Callable:
    """An op that is missing here; mmcv looks all of its ops up when it is imported."""
    if name.startswith('__'):
        raise AttributeError(name)
    return partial(_refuse, name)


def _refuse(name: str, *args: Any, **kwargs: Any) -> None:
    raise NotImplementedError(
        f"{name} needs mmcv's compiled ops, and this mmcv came without them: run make setup OPS=compiled, or see "
        'docs/stacks.md'
    )


def get_compiler_version() -> str:
    """For reports of the environment, such as mmdet's `collect_env`."""
    return 'none: ops of vitplug and torchvision'


get_compiling_cuda_version = get_compiler_version


def nms(boxes: Tensor, scores: Tensor, iou_threshold: float, offset: int) -> Tensor:
    """Indices of the boxes ``(N, 4)`` that greedy non-maximum suppression keeps; equal scores keep their order.

    ``offset`` is added to widths and heights: 1 if a box includes its last pixel, else 0.
    """
    boxes, scores = _precise(boxes), _precise(scores)
    dtype = torch.promote_types(boxes.dtype, scores.dtype)
    return torchvision.ops.nms(_corners(boxes, offset).to(dtype), scores.to(dtype), iou_threshold)


def _corners(boxes: Tensor, offset: int) -> Tensor:
    """Boxes ``(N, 4)`` whose second corner is outside, as torchvision has them."""
    return torch.cat((boxes[:, :2], boxes[:, 2:] + offset), dim=1)


def softnms(
    boxes: Tensor, scores: Tensor, dets: Tensor, *, min_score: float, offset: int, **softening: float
) -> Tensor:
    """Soft-NMS (Bodla et al., 2017): the best box lowers the scores of those that overlap it, then the next one does.

    A score is multiplied with 0 (`NAIVE`), 1 - IoU (`LINEAR`) or exp(-IoU^2 / sigma) (`GAUSSIAN`), and dropped below
    ``min_score``. ``dets`` ``(N, 5)`` gets boxes and new scores.

    Returns:
        Indices of the kept boxes, ``(kept,)``; as many rows of `dets` are valid.
    """
    corners, scores, left, kept = _corners(boxes, offset), scores.clone(), torch.arange(len(boxes)), []
    while len(left):
        best = scores[left].argmax()
        index = left[best]
        dets[len(kept)] = torch.cat((boxes[index], scores[index, None]))
        kept.append(index)
        left = torch.cat((left[:best], left[best + 1 :]))
        ious = torchvision.ops.box_iou(corners[index, None], corners[left])[0]
        scores[left] *= _weights(ious, **softening)
        left = left[~(scores[left] < min_score)]
    return torch.stack(kept) if kept else left


def _weights(ious: Tensor, *, iou_threshold: float, sigma: float, method: int) -> Tensor:
    if method == GAUSSIAN:
        return torch.exp(-ious.square() / sigma)
    lowered = 1 - ious if method == LINEAR else torch.zeros_like(ious)
    return torch.where(ious >= iou_threshold, lowered, torch.ones_like(ious))


# --- pooling of regions ---


def roi_align_forward(
    input: Tensor, rois: Tensor, output: Tensor, argmax_y: Tensor, argmax_x: Tensor, *, pool_mode: int, **bins: Any
) -> None:
    """RoIAlign (Mask R-CNN, He et al., 2017) by torchvision.

    Raises:
        NotImplementedError: For maxima instead of averages.
    """
    if pool_mode != AVERAGE:
        _refuse("RoIAlign with pool_mode='max'")
    maps = _precise(input)
    output.copy_(torch.ops.torchvision.roi_align(maps, rois.to(maps), **_pooling(**bins)))


def roi_align_backward(
    grad_output: Tensor, rois: Tensor, argmax_y: Tensor, argmax_x: Tensor, grad_input: Tensor, *, pool_mode, **bins: Any
) -> None:
    """The gradient of :func:`roi_align_forward` for its maps, written to `grad_input`."""
    grads, shape = _precise(grad_output), dict(zip(SHAPE, grad_input.shape, strict=True))
    grad_input.copy_(torch.ops.torchvision._roi_align_backward(grads, rois.to(grads), **shape, **_pooling(**bins)))


def _pooling(*, aligned_height: int, aligned_width: int, **others: Any) -> dict:
    """torchvision's names."""
    return dict(others, pooled_height=aligned_height, pooled_width=aligned_width)


def _precise(tensor: Tensor) -> Tensor:
    """The tensor in at least float32: torchvision has no bfloat16, and coordinates need more than half precision."""
    return tensor.to(torch.promote_types(tensor.dtype, torch.float32))


# --- what mmdet and mmseg call on GPUs only: on CPUs they have it in torch ---


def sigmoid_focal_loss_forward(
    logits: Tensor, target: Tensor, weight: Tensor, output: Tensor, **settings: float
) -> None:
    """Focal losses (Lin et al., 2017, equation 5) of logits ``(N, C)``; a target C is no class."""
    output.copy_(_focal_loss(logits, target, weight, **settings))


def sigmoid_focal_loss_backward(
    logits: Tensor, target: Tensor, weight: Tensor, grad_input: Tensor, **settings: float
) -> None:
    """The gradient of the sum of :func:`sigmoid_focal_loss_forward` for the logits, written to `grad_input`."""
    with torch.enable_grad():
        leaf = logits.detach().requires_grad_()
        grad_input.copy_(torch.autograd.grad(_focal_loss(leaf, target, weight, **settings).sum(), leaf)[0])


def _focal_loss(logits: Tensor, target: Tensor, weight: Tensor, gamma: float, alpha: float) -> Tensor:
    logits = _precise(logits)
    positive = one_hot(target, logits.shape[1] + 1)[:, :-1].to(logits)
    loss = torchvision.ops.sigmoid_focal_loss(logits, positive, alpha, gamma)
    return loss * weight[target, None] if len(weight) else loss


def ms_deform_attn_forward(
    value: Tensor, shapes: Tensor, starts: Tensor, locations: Tensor, weights: Tensor, im2col_step: int
) -> Tensor:
    """Attention to sampled places of several maps (Deformable DETR, Zhu et al., 2021, equation 3), by mmcv in torch.

    Values ``(B, keys, heads, D)``, locations in 0..1 ``(B, queries, heads, maps, points, 2)`` and their weights give
    ``(B, queries, heads * D)``.
    """
    from mmcv.ops.multi_scale_deform_attn import multi_scale_deformable_attn_pytorch

    return multi_scale_deformable_attn_pytorch(value, shapes, locations, weights)


def ms_deform_attn_backward(
    value: Tensor, shapes: Tensor, starts: Tensor, locations: Tensor, weights: Tensor, *grads: Tensor, **settings: int
) -> None:
    """The gradients of :func:`ms_deform_attn_forward` for values, locations and weights.

    They are written to the last three of `grads`; the first one is the gradient of the output.
    """
    grad_output, *written = grads
    with torch.enable_grad():
        leaves = [tensor.detach().requires_grad_() for tensor in (value, locations, weights)]
        output = ms_deform_attn_forward(leaves[0], shapes, starts, *leaves[1:], **settings)
        for grad, found in zip(written, torch.autograd.grad(output, leaves, grad_output), strict=True):
            grad.copy_(found)
