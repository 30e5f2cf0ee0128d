"""Semantic segmentation with mmseg."""

import torch
from mmengine.structures import PixelData

from .networks import ARGMAX, BACKBONE, LOGITS, map_logits
from .targets import PixelClass
from .task import Task


class Segmentation(Task):
    """One class for each pixel."""

    library = 'mmseg'
    name = 'segmentation'
    tta_model = dict(type='SegTTAModel')
    target = PixelClass
    parts = dict(logits=LOGITS, argmax=ARGMAX, backbone=BACKBONE)

    def show_predictions(self, cfg, hook, folder) -> None:
        # Upstream's mmseg applies the interval in tests, too.
        cfg.default_hooks.visualization.update(hook, draw=True, interval=1)
        if folder:
            cfg.visualizer.save_dir = folder

    def run_inference(self, model, images) -> None:
        map_logits(model, images)

    def describe_inference(self, model) -> str:
        return 'backbone, neck and decode head; an auxiliary head is for training and has parameters only'

    def made_sample(self, size):
        from mmseg.structures import SegDataSample

        sample = SegDataSample(metainfo=dict(img_shape=size, ori_shape=size))
        sample.gt_sem_seg = PixelData(data=torch.zeros(1, *size, dtype=torch.long))
        return sample
