"""Merges a detector's predictions for several views of an image (test-time augmentation)."""

from collections.abc import Sequence

import torch
from mmcv.ops import batched_nms
from mmdet.models.test_time_augs import DetTTAModel as BoxTTAModel
from mmdet.structures import DetDataSample
from mmengine.structures import InstanceData
from torch import Tensor

FLIPPED_AXES = {'horizontal': (-1,), 'vertical': (-2,), 'diagonal': (-2, -1)}


class DetTTAModel(BoxTTAModel):
    """mmdet's ``DetTTAModel``, also for instance masks: each box kept by non-maximum suppression keeps its mask.

    The arguments are mmdet's: `tta_cfg` with `nms` and `max_per_img`.
    """

    def _merge_single_sample(self, data_samples: Sequence[DetDataSample]) -> DetDataSample:
        if 'masks' not in data_samples[0].pred_instances:
            return super()._merge_single_sample(data_samples)
        copies = [sample.pred_instances for sample in data_samples]
        boxes, scores = self.merge_aug_bboxes(
            [each.bboxes for each in copies], [each.scores for each in copies], [each.metainfo for each in data_samples]
        )
        labels = torch.cat([each.labels for each in copies])
        masks = torch.cat([_unflipped(sample) for sample in data_samples])
        merged = data_samples[0]
        if len(boxes):
            kept_boxes, kept = batched_nms(boxes, scores, labels, self.tta_cfg.nms)
            kept_boxes, kept = kept_boxes[: self.tta_cfg.max_per_img], kept[: self.tta_cfg.max_per_img]
            merged.pred_instances = InstanceData(
                bboxes=kept_boxes[:, :-1], scores=kept_boxes[:, -1], labels=labels[kept], masks=masks[kept]
            )
        return merged


def _unflipped(sample: DetDataSample) -> Tensor:
    """Masks ``(n, h, w)`` of a view in the orientation of the image."""
    masks = sample.pred_instances.masks
    return masks.flip(FLIPPED_AXES[sample.flip_direction]) if sample.flip else masks
