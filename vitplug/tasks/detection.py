"""Detection and instance segmentation with mmdet."""

from collections.abc import Mapping

import numpy as np
import torch
from mmengine.config import Config
from mmengine.structures import InstanceData
from torch import nn

from vitplug.config.parts import pipeline_of
from vitplug.config.text import Code, text

from .class_counts import ENOUGH_COLOURS, ENTRIES, METRICS_OF_IMAGES, ClassCounts, Place, stuff, things
from .experiments.own_data import OwnData, Split, read_detection, without_names
from .networks import BACKBONE, FEATURES, heads_of
from .objects import OBJECTS
from .targets import BoxScore
from .task import Experiment, Task


def _foreground_and_background(part, classes) -> int | None:
    """Class weights: the last class is the background, unless each class has a sigmoid of its own."""
    if classes.things < len(classes):
        return None  # a panoptic detector has heads for all classes and heads for things
    return len(classes) + (not part.get('use_sigmoid'))


# --- experiments on one's own data ---


def _coco_metric(cfg: Config, data: OwnData, split: Split) -> dict:
    metric = ['bbox', 'segm'] if data.has_masks and _loads_masks(cfg) else 'bbox'
    return dict(type='CocoMetric', ann_file=Code(f'data_root + {text(split.settings["ann_file"])}'), metric=metric)


def _loads_masks(cfg: Config) -> bool:
    return any(step.get('with_mask') for step in pipeline_of(cfg.train_dataloader)[1])


def _object_annotations(data: OwnData, step: Mapping) -> dict:
    """Masks are loaded by bases that use them, and only where there are some.

    Raises:
        ValueError: if the base wants maps of the background, which a COCO file has not.
    """
    kind = str(step['type']).rpartition('.')[2]
    if kind == 'LoadPanopticAnnotations' or step.get('with_seg'):
        raise ValueError('--base: it trains on maps of the background, which are not read here: choose another one')
    return dict(with_mask=False) if kind == 'LoadAnnotations' and step.get('with_mask') and not data.has_masks else {}


def _masks_of_model(cfg: Config, data: OwnData) -> dict:
    """Leaves the mask head of a two-stage detector out where the data has no masks.

    Raises:
        ValueError: if the detector needs masks all the same.
    """
    if data.has_masks or not _loads_masks(cfg):
        return {}
    roi_head = cfg.model.get('roi_head') or {}
    if 'mask_head' not in roi_head:
        raise ValueError(
            f'--base: its {cfg.model.type} needs masks, and no annotation has a segmentation: choose a detector of '
            'boxes'
        )
    return dict(roi_head=dict(mask_head=None, mask_roi_extractor=None))


# --- the description ---


def _regions(model: nn.Module) -> dict[str, int]:
    """Number of regions of an image that each kind of head is given: the most that ``test_cfg`` lets through."""
    counts = {'bbox': model.test_cfg.rpn.max_per_img, 'mask': model.test_cfg.rcnn.max_per_img}
    return {kind: count for kind, count in counts.items() if getattr(model.roi_head, f'with_{kind}')}


class Detection(Task):
    """Boxes, and masks where the detector has them."""

    library = 'mmdet'
    name = 'detection'
    needs_ops = True
    result_dump = 'DumpDetResults'
    # Unlike mmdet's own, it merges masks, too.
    tta_model = dict(type='vitplug.DetTTAModel', tta_cfg=dict(nms=dict(type='nms', iou_threshold=0.5), max_per_img=100))
    class_counts = ClassCounts(
        model=(
            Place('num_classes', expected=things),
            Place('num_things_classes', expected=things),
            Place('num_stuff_classes', expected=stuff),
            Place('class_weight', ENTRIES, _foreground_and_background),
        ),
        metrics=METRICS_OF_IMAGES,
        dataset=(Place('palette', ENOUGH_COLOURS),),
        # Proposals have no class, and HTC's semantic head learns the classes of COCO-stuff. Trackers tell persons
        # apart, and GLIP and Grounding DINO count words: they are compared with nothing.
        apart=frozenset(('rpn_head', 'semantic_head', 'BaseMOTModel', 'GLIP', 'GroundingDINO')),
    )
    experiment = Experiment(
        'CocoDataset',
        without_names(read_detection),
        _coco_metric,
        _object_annotations,
        _masks_of_model,
        trained=dict(filter_cfg=dict(filter_empty_gt=True)),
        tested=dict(test_mode=True),
    )
    target = BoxScore
    parts = dict(features=FEATURES, backbone=BACKBONE, objects=OBJECTS)

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

    def training_losses(self, model, images):
        from .step_losses import of_detector

        return of_detector(model, images)

    def describe_inference(self, model) -> str:
        if not hasattr(model, 'roi_head'):
            return 'backbone, neck and head; without anchors and suppression'
        heads = ' and '.join(f'{kind} heads on {count} regions' for kind, count in _regions(model).items())
        return f'backbone, neck, RPN and {heads} an image; without anchors, suppression and RoIAlign'

    def predictions(self, cfg, model, classes, palette, score_thr):
        from .predictions import ObjectPredictions

        return ObjectPredictions(cfg, model, classes, palette, score_thr)

    def draw_panels(self, panels, image, sample, metainfo) -> None:
        from .panels import draw_objects

        draw_objects(panels, image, sample, metainfo)
