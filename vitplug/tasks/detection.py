"""Detection and instance segmentation with mmdet."""

import numpy as np
import torch
from mmengine.structures import InstanceData
from torch import nn

from .networks import BACKBONE, FEATURES, heads_of
from .targets import BoxScore
from .task import Task


def _regions(model: nn.Module) -> dict[str, int]:
    """Number of regions of an image that each kind of head is given: the most that ``test_cfg`` lets through."""
    counts = {'bbox': model.test_cfg.rpn.max_per_img, 'mask': model.test_cfg.rcnn.max_per_img}
    return {kind: count for kind, count in counts.items() if getattr(model.roi_head, f'with_{kind}')}


class Detection(Task):
    """Boxes, and masks where the detector has them."""

    library = 'mmdet'
    name = 'detection'
    result_dump = 'DumpDetResults'
    tta_model = dict(type='DetTTAModel', tta_cfg=dict(nms=dict(type='nms', iou_threshold=0.5), max_per_img=100))
    target = BoxScore
    parts = dict(features=FEATURES, backbone=BACKBONE)

    def show_predictions(self, cfg, hook, folder) -> None:
        cfg.default_hooks.visualization.update(hook, draw=True, test_out_dir=folder)

    def run_inference(self, model, images) -> None:
        maps = model.extract_feat(images)
        if not hasattr(model, 'roi_head'):
            model.bbox_head(maps)
            return
        model.rpn_head(maps)
        for kind, count in _regions(model).items():
            extractors = heads_of(getattr(model.roi_head, f'{kind}_roi_extractor'))
            for extractor, head in zip(extractors, heads_of(getattr(model.roi_head, f'{kind}_head')), strict=True):
                size = extractor.roi_layers[0].output_size
                head(images.new_empty(len(images) * count, extractor.out_channels, *size))

    def describe_inference(self, model) -> str:
        if not hasattr(model, 'roi_head'):
            return 'backbone, neck and head; without anchors and suppression'
        heads = ' and '.join(f'{kind} heads on {count} regions' for kind, count in _regions(model).items())
        return f'backbone, neck, RPN and {heads} an image; without anchors, suppression and RoIAlign'

    def made_sample(self, size):
        from mmdet.structures import DetDataSample
        from mmdet.structures.mask import BitmapMasks

        height, width = size
        mask = np.zeros((1, height, width), np.uint8)
        mask[:, height // 8 : 3 * height // 4, width // 8 : 5 * width // 8] = 1
        box = torch.tensor([[width // 8, height // 8, 5 * width // 8, 3 * height // 4]], dtype=torch.float32)
        sample = DetDataSample(metainfo=dict(img_shape=size, ori_shape=size, scale_factor=(1.0, 1.0)))
        labels = torch.zeros(1, dtype=torch.long)
        sample.gt_instances = InstanceData(bboxes=box, labels=labels, masks=BitmapMasks(mask, height, width))
        sample.ignored_instances = InstanceData(bboxes=box[:0], labels=labels[:0])
        return sample
