"""A two-stage detector as one graph: proposals, boxes and masks of an image, in operators that ONNX has.

mmdet selects boxes by Python code that depends on their values. Here the same selection gives tensors of fixed sizes:
absent boxes have a score of -1. Shapes: ``R`` proposals, ``K`` the most boxes of an image, ``h, w`` of a mask.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torchvision.ops import nms, roi_align

from .networks import Network, Part, Run

# Score of boxes that are none.
ABSENT = -1.0
# Kinds of mmdet's modules whose computation is here.
KINDS: Mapping[str, tuple[str, ...]] = {
    'rpn_head': ('RPNHead',),
    'roi_head': ('StandardRoIHead',),
    'roi_head.bbox_head': ('BBoxHead', 'ConvFCBBoxHead', 'Shared2FCBBoxHead', 'Shared4Conv1FCBBoxHead'),
    'roi_head.bbox_roi_extractor': ('SingleRoIExtractor',),
    'roi_head.mask_head': ('FCNMaskHead',),
    'roi_head.mask_roi_extractor': ('SingleRoIExtractor',),
}


class Objects(Network):
    """Boxes ``(1, K, 4)`` in pixels, scores and labels ``(1, K)``, and mask logits ``(1, K, h, w)`` if there are any.

    Absent boxes have the score -1 and the label -1.

    Args:
        model: A Faster or Mask R-CNN of mmdet.

    Raises:
        ValueError: If a part of the model is of another kind; names it.
    """

    def __init__(self, model: nn.Module):
        check_two_stage(model)
        super().__init__(model)

    def forward(self, images: Tensor) -> tuple[Tensor, ...]:
        maps = self.model.extract_feat(images)
        size = images.shape[-2:]
        boxes, scores, labels = self._boxes(maps, *self._proposals(maps, size), size)
        outputs = [boxes, scores, labels]
        if self.model.roi_head.with_mask:
            outputs.append(self._masks(maps, boxes, labels))
        return tuple(output[None] for output in outputs)

    def _proposals(self, maps: Sequence[Tensor], size: Sequence[int]) -> tuple[Tensor, Tensor]:
        """Boxes ``(R, 4)`` of the proposals and their scores ``(R,)``."""
        head, cfg = self.model.rpn_head, self.model.test_cfg.rpn
        scores, deltas = head(maps)
        priors = head.prior_generator.grid_priors([one.shape[-2:] for one in scores], scores[0].dtype, scores[0].device)
        levels = [self._best(*level, cfg.nms_pre) for level in zip(scores, deltas, priors, strict=True)]
        score_R, delta_R4, prior_R4 = (torch.cat(parts) for parts in zip(*levels, strict=True))
        box_R4 = head.bbox_coder.decode(prior_R4, delta_R4, max_shape=size)
        sides = box_R4[:, 2:] - box_R4[:, :2]
        score_R = torch.where((sides > cfg.get('min_bbox_size', -1)).all(dim=1), score_R, ABSENT)
        level_R = torch.arange(len(levels), device=score_R.device).repeat_interleave(cfg.nms_pre)
        keep = _suppress(box_R4, score_R, level_R, cfg.nms.iou_threshold)
        return _first(box_R4[keep], cfg.max_per_img, 0.0), _first(score_R[keep], cfg.max_per_img, ABSENT)

    def _best(self, scores: Tensor, deltas: Tensor, priors: Tensor, count: int) -> tuple[Tensor, Tensor, Tensor]:
        """The best anchors of a level, filled up with absent ones: scores, deltas and the anchors."""
        head = self.model.rpn_head
        logits = scores[0].permute(1, 2, 0).reshape(-1, head.cls_out_channels)
        shares = logits.sigmoid()[:, 0] if head.use_sigmoid_cls else logits.softmax(-1)[:, 0]
        deltas = deltas[0].permute(1, 2, 0).reshape(-1, head.bbox_coder.encode_size)
        best, index = F.pad(shares, (0, count), value=ABSENT).topk(count)
        return best, *(F.pad(rows, (0, 0, 0, count))[index] for rows in (deltas, priors))

    def _boxes(
        self, maps: Sequence[Tensor], box_R4: Tensor, score_R: Tensor, size: Sequence[int]
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Boxes ``(K, 4)``, scores and labels ``(K,)`` of the objects in the proposals."""
        heads, cfg = self.model.roi_head, self.model.test_cfg.rcnn
        rois = _as_rois(box_R4)
        logits, deltas = heads.bbox_head(_pool(heads.bbox_roi_extractor, maps, rois))
        share_RC = logits.softmax(-1)[:, :-1].masked_fill((score_R == ABSENT)[:, None], ABSENT)
        deltas_RS4 = deltas.unflatten(1, (-1, 4))  # S is 1 or the number of classes
        rows = box_R4[:, None].expand_as(deltas_RS4).flatten(0, 1)
        decoded = heads.bbox_head.bbox_coder.decode(rows, deltas_RS4.flatten(0, 1), max_shape=size)
        box_RC4 = decoded.unflatten(0, deltas_RS4.shape[:2]).expand(-1, share_RC.shape[1], -1)
        roi, label = (share_RC > cfg.score_thr).nonzero().unbind(1)
        boxes, scores = box_RC4[roi, label], share_RC[roi, label]
        keep = _suppress(boxes, scores, label, cfg.nms.iou_threshold)
        most = cfg.max_per_img
        return _first(boxes[keep], most, 0.0), _first(scores[keep], most, ABSENT), _first(label[keep], most, -1)

    def _masks(self, maps: Sequence[Tensor], box_K4: Tensor, label_K: Tensor) -> Tensor:
        """Logits ``(K, h, w)`` of each box's mask."""
        heads = self.model.roi_head
        logits_KChw = heads.mask_head(_pool(heads.mask_roi_extractor, maps, _as_rois(box_K4)))
        if heads.mask_head.class_agnostic:
            return logits_KChw[:, 0]
        return logits_KChw[torch.arange(len(label_K), device=label_K.device), label_K.clamp(min=0)]


def _suppress(boxes: Tensor, scores: Tensor, groups: Tensor, threshold: float) -> Tensor:
    """Indices of the boxes that stay after suppression within each group, the best one first."""
    # Groups are moved apart. A zero is added, as there may be no box.
    largest = F.pad(boxes.flatten(), (0, 1)).amax(dim=0)
    return nms(boxes + (groups.to(boxes.dtype) * (largest + 1))[:, None], scores, threshold)


def _first(rows: Tensor, count: int, fill: float) -> Tensor:
    """The first rows, filled up if there are fewer."""
    return F.pad(rows, (0, 0) * (rows.ndim - 1) + (0, count), value=fill)[:count]


def _as_rois(boxes: Tensor) -> Tensor:
    """Boxes ``(N, 4)`` of image 0 as ``(N, 5)``."""
    return F.pad(boxes, (1, 0))


def _pool(extractor: nn.Module, maps: Sequence[Tensor], rois: Tensor) -> Tensor:
    """Features ``(N, C, h, w)`` of regions, each from the level of the pyramid that fits its size."""
    maps = maps[: extractor.num_inputs]
    levels = extractor.map_roi_levels(rois, len(maps))
    pooled = maps[0].new_zeros(len(rois), extractor.out_channels, *extractor.roi_layers[0].output_size)
    for level, (one, layer) in enumerate(zip(maps, extractor.roi_layers, strict=True)):
        index = (levels == level).nonzero()[:, 0]
        of_level = roi_align(
            one, rois[index], layer.output_size, layer.spatial_scale, layer.sampling_ratio, layer.aligned
        )
        pooled = pooled.index_put((index,), of_level)
    return pooled


def check_two_stage(model: nn.Module) -> None:
    """Checks that a detector is one whose selection of boxes is here.

    Raises:
        ValueError: Names the setting that is of another kind.
    """
    remedy = 'export the features: `tools/predict.py --exported` runs the heads in PyTorch'
    for path, kinds in KINDS.items():
        part: Any = model
        for name in path.split('.'):
            part = getattr(part, name, None)
        if part is None and 'mask' in path:
            continue
        if type(part).__name__ not in kinds:
            actual = 'missing' if part is None else type(part).__name__
            raise ValueError(f'--part objects: {path} is {actual}; it takes {", ".join(kinds)} alone; {remedy}')
    for stage in ('rpn', 'rcnn'):
        suppression = model.test_cfg[stage].nms
        if suppression.get('type', 'nms') != 'nms' or set(suppression) - {'type', 'iou_threshold'}:
            raise ValueError(
                f"--part objects: test_cfg.{stage}.nms is {dict(suppression)}, and ONNX has dict(type='nms', "
                f'iou_threshold=...) only; {remedy}'
            )
    if model.roi_head.with_shared_head or model.roi_head.bbox_head.custom_cls_channels:
        raise ValueError(f'--part objects: a shared head or classes of another loss cannot be exported; {remedy}')


def replace_objects(model: nn.Module, run: Run) -> None:
    """Has a detector take its boxes and masks of a file."""
    from mmengine.structures import InstanceData

    heads, cfg = model.roi_head, model.test_cfg.rcnn

    def of_image(image: Tensor, meta: Mapping, rescale: bool) -> InstanceData:
        _check_unpadded(image, meta)
        boxes, scores, labels, *masks = (output[0] for output in run(image))
        kept = labels >= 0
        instances = InstanceData(bboxes=boxes[kept], scores=scores[kept], labels=labels[kept])
        if masks:
            logits = masks[0][kept][:, None].expand(-1, heads.mask_head.num_classes, -1, -1)
            (instances,) = heads.mask_head.predict_by_feat([logits], [instances], [meta], cfg, rescale=rescale)
        elif rescale:
            instances.bboxes = instances.bboxes / instances.bboxes.new_tensor(meta['scale_factor']).repeat(2)
        return instances

    def predict(images: Tensor, samples: list, rescale: bool = True) -> list:
        pairs = zip(images.split(1), samples, strict=True)
        return model.add_pred_to_datasample(samples, [of_image(image, one.metainfo, rescale) for image, one in pairs])

    model.predict = predict


def _check_unpadded(image: Tensor, meta: Mapping) -> None:
    if tuple(image.shape[-2:]) != tuple(meta['img_shape'][:2]):
        raise ValueError(
            f'--exported: the image of {meta["img_shape"][:2]} pixels is padded to {tuple(image.shape[-2:])}, and a '
            'file of objects cuts boxes at the padding: give images whose sizes are multiples of '
            'data_preprocessor.pad_size_divisor, or export the features'
        )


OBJECTS = Part(
    'boxes in pixels, scores, labels, and logits of masks; absent boxes have the label -1',
    Objects,
    replace_objects,
    one_image=True,
)
