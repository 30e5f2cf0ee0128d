"""Semantic segmentation with mmseg."""

from collections.abc import Mapping

import torch
from mmengine.structures import PixelData

from .class_counts import COLOURS, ENOUGH_COLOURS, ENTRIES, METRICS_OF_IMAGES, ClassCounts, Place
from .experiments.own_data import OwnData, read_segmentation
from .networks import ARGMAX, BACKBONE, LOGITS, heads_of
from .targets import PixelClass
from .task import Experiment, Task


def _with_no_object(part, classes) -> int:
    """Class weights: a head that classifies masks has one more, for masks of nothing."""
    return len(classes) + (part.name == 'loss_cls')


def _has_own_classes(part) -> bool:
    return bool((getattr(part.kind, 'METAINFO', None) or {}).get('classes'))


def _label_maps(data: OwnData, step: Mapping) -> dict:
    """Label 0 is a class, also where it is none in the base's own data."""
    return dict(reduce_zero_label=False) if step.get('reduce_zero_label') else {}


class Segmentation(Task):
    """One class for each pixel."""

    library = 'mmseg'
    name = 'segmentation'
    tta_model = dict(type='SegTTAModel')
    class_counts = ClassCounts(
        model=(Place('num_classes'), Place('class_weight', ENTRIES, _with_no_object)),
        metrics=METRICS_OF_IMAGES,
        dataset=(
            Place('palette', COLOURS, applies=lambda part: not _has_own_classes(part)),
            # A palette for all classes, of which it takes the colours of the used ones.
            Place('palette', ENOUGH_COLOURS, applies=_has_own_classes),
        ),
        # STDC's second head finds borders. SAN classifies by words: it is compared with nothing.
        apart=frozenset(('STDCHead', 'MultimodalEncoderDecoder')),
    )
    experiment = Experiment(
        'BaseSegDataset',
        read_segmentation,
        lambda cfg, data, split: dict(type='IoUMetric', iou_metrics=['mIoU']),
        _label_maps,
        tested=dict(test_mode=True),
    )
    target = PixelClass
    parts = dict(logits=LOGITS, argmax=ARGMAX, backbone=BACKBONE)

    def show_predictions(self, cfg, hook, folder) -> None:
        # Upstream's mmseg applies the interval in tests, too.
        cfg.default_hooks.visualization.update(hook, draw=True, interval=1)
        if folder:
            cfg.visualizer.save_dir = folder

    def run_inference(self, model, images) -> None:
        maps = model.extract_feat(images)
        first, *cascaded = heads_of(model.decode_head)
        out = first(maps)
        for head in cascaded:
            out = head(maps, out)

    def made_sample(self, size):
        from mmseg.structures import SegDataSample

        sample = SegDataSample(metainfo=dict(img_shape=size, ori_shape=size))
        sample.gt_sem_seg = PixelData(data=torch.zeros(1, *size, dtype=torch.long))
        return sample

    def training_losses(self, model, images):
        from .step_losses import of_segmentor

        return of_segmentor(model, images, self.made_samples(images))

    def describe_inference(self, model) -> str:
        return 'backbone, neck and decode head; an auxiliary head is for training and has parameters only'

    def predictions(self, cfg, model, classes, palette, score_thr):
        from .predictions import MapPredictions

        return MapPredictions(cfg, model, classes, palette, score_thr)

    def draw_panels(self, panels, image, sample, metainfo) -> None:
        from .panels import draw_maps

        draw_maps(panels, image, sample, metainfo)
