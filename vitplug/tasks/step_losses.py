"""Losses of a training step that read no value, so that they run on fake tensors.

Classifiers and segmentors run their own losses. Of a detector, backbone, neck, RPN and RoI heads run on as many regions
as its settings sample; the losses have the sizes of its own. Of assigning boxes to anchors only the overlaps are
computed, which take most memory: the rest reads values.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from unittest.mock import patch

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .networks import heads_of

Losses = Iterable[Tensor]

# Boxes of an image whose overlaps with the anchors are computed: an image of COCO with many.
BOXES = 100


def of_classifier(model: nn.Module, images: Tensor, samples: list) -> Losses:
    """The losses of a classifier."""
    for sample in samples:
        # As Mixup and CutMix give them: the largest label of a batch, which the loss would read, is not asked for.
        sample.set_gt_score(images.new_zeros(model.head.num_classes))
    return model.loss(images, samples).values()


def of_segmentor(model: nn.Module, images: Tensor, samples: list) -> Losses:
    """The losses of a segmentor."""
    with _without_accuracy():
        losses = model.loss(images, samples)
    return [value for name, value in losses.items() if 'loss' in name]


@contextmanager
def _without_accuracy() -> Iterator[None]:
    """Leaves mmseg's accuracy out, which counts the pixels that have a label."""
    from mmseg.models.decode_heads import decode_head

    with patch.object(decode_head, 'accuracy', lambda logits, *args, **kwargs: logits.new_zeros(1)):
        yield


# --- detectors ---


def of_detector(model: nn.Module, images: Tensor) -> Losses:
    """The losses of a detector."""
    maps = model.extract_feat(images)
    if not hasattr(model, 'roi_head'):
        yield from _dense_losses(model.bbox_head, maps)
        return
    yield from _dense_losses(model.rpn_head, maps)
    settings = model.train_cfg.rcnn
    stages = settings if isinstance(settings, list | tuple) else [settings]
    for kind, share in (('bbox', None), ('mask', True)):
        if not getattr(model.roi_head, f'with_{kind}'):
            continue
        extractors = heads_of(getattr(model.roi_head, f'{kind}_roi_extractor'))
        heads = heads_of(getattr(model.roi_head, f'{kind}_head'))
        for stage, extractor, head in zip(stages, extractors, heads, strict=True):
            sampler = stage.sampler
            number = int(sampler.num * (sampler.pos_fraction if share else 1)) * len(images)
            yield from ROI_LOSSES[kind](head(_pooled(extractor, maps, number)))


def _dense_losses(head: nn.Module, maps: Iterable[Tensor]) -> Losses:
    """Losses of every prediction of every level, each with a target and a weight of its size."""
    outs = head(maps)
    _find_overlaps(head, outs[0])
    for maps in outs:
        for predicted in maps:
            flat = predicted.permute(0, 2, 3, 1).reshape(-1)
            target, weight = torch.zeros_like(flat), torch.ones_like(flat)
            yield (F.smooth_l1_loss(flat.float(), target.float(), reduction='none') * weight).sum()


@torch.no_grad()
def _find_overlaps(head: nn.Module, scores: Sequence[Tensor]) -> None:
    """Overlaps of boxes with all anchors, image by image, where the head assigns by them; they are not kept."""
    calculator = getattr(getattr(head, 'assigner', None), 'iou_calculator', None)
    if calculator is None:
        return
    by_level = zip(scores, head.prior_generator.num_base_priors, strict=True)
    anchors = scores[0].new_zeros(sum(level[0, 0].numel() * number for level, number in by_level), 4, dtype=torch.float)
    for _ in scores[0]:
        calculator(anchors.new_zeros(BOXES, 4), anchors)


def _pooled(extractor: nn.Module, maps: Iterable[Tensor], number: int) -> Tensor:
    """Features of a number of regions, shared out over the levels."""
    levels = list(zip(extractor.roi_layers, maps, strict=False))
    counts = [number // len(levels)] * len(levels)
    counts[0] += number - sum(counts)
    parts = [layer(level, level.new_zeros(count, 5)) for count, (layer, level) in zip(counts, levels, strict=True)]
    return torch.cat(parts)


def _box_losses(outs: tuple[Tensor, Tensor]) -> Losses:
    scores, boxes = outs
    yield F.cross_entropy(scores, scores.new_zeros(len(scores), dtype=torch.long))
    yield F.l1_loss(boxes, torch.zeros_like(boxes))


def _mask_losses(logits: Tensor) -> Losses:
    own = logits[:, 0]
    yield F.binary_cross_entropy_with_logits(own, torch.zeros_like(own))


ROI_LOSSES: dict[str, Callable[..., Losses]] = {'bbox': _box_losses, 'mask': _mask_losses}
