"""What mmpretrain, mmseg and mmdet differ in, beside their data: names, drawing, one step.

Methods import their library when they are called.
"""

import importlib
from collections.abc import Callable, Mapping
from importlib.util import find_spec
from typing import Any

import numpy as np
import torch
from mmengine.config import Config
from mmengine.structures import BaseDataElement, InstanceData, PixelData
from torch import Tensor, nn

from .networks import BackboneMaps, ClassScores, NeckMaps, Network, PixelLogits, heads_of, map_logits
from .targets import ClassLogit, PixelClass, Target


class Task:
    """One task, of one library.

    Attributes:
        library: Name of the package, and `default_scope` of its configs.
        name: Name of the task, as commands take it.
        result_dump: Type of the metric that writes predictions to a file (`tools/test.py --out`).
        tta_model: Settings of the model that merges the predictions of several views (`tools/test.py --tta`).
        target: Makes the score of a prediction that Grad-CAM explains, the most prominent one; None if there is none.
        networks: Parts of a model that an exported file can hold, by name; the first is the usual one.
        counted: What :meth:`run_inference` runs, in words.
    """

    library: str
    name: str
    result_dump: str = 'DumpResults'
    tta_model: Mapping[str, Any]
    target: Callable[[], Target] | None = None
    networks: Mapping[str, type[Network]]
    counted: str

    def show_predictions(self, cfg: Config, hook: Mapping[str, Any], folder: str | None) -> None:
        """Makes a test draw its predictions, and write them to a folder: changes the config.

        ``hook`` has the settings of the hook that draws, `show` and `wait_time`.
        """
        raise NotImplementedError

    def run_inference(self, model: nn.Module, images: Tensor) -> None:
        """Runs what costs are counted of on images ``(B, C, H, W)``, which may be on the meta device."""
        raise NotImplementedError

    def made_sample(self, size: tuple[int, int]) -> BaseDataElement:
        """The annotations of a made image of ``(height, width)`` pixels, all of the first class."""
        raise NotImplementedError


class Classification(Task):
    """One class for each image."""

    library = 'mmpretrain'
    name = 'classification'
    tta_model = dict(type='AverageClsScoreTTA')
    target = ClassLogit
    networks = dict(scores=ClassScores, backbone=BackboneMaps)
    counted = 'backbone, neck and head'

    def show_predictions(self, cfg, hook, folder) -> None:
        if 'module' in cfg.get('model', {}):
            raise ValueError('--show and --show-dir: mmpretrain cannot draw what --tta merges: leave one of them out')
        cfg.default_hooks.visualization.update(hook, enable=True, interval=1, out_dir=folder)

    def run_inference(self, model, images) -> None:
        model(images, mode='tensor')

    def made_sample(self, size):
        from mmpretrain.structures import DataSample

        return DataSample().set_gt_label(0)


class Segmentation(Task):
    """One class for each pixel."""

    library = 'mmseg'
    name = 'segmentation'
    tta_model = dict(type='SegTTAModel')
    target = PixelClass
    networks = dict(logits=PixelLogits, backbone=BackboneMaps)
    counted = 'backbone, neck and decode head; an auxiliary head is for training and has parameters only'

    def show_predictions(self, cfg, hook, folder) -> None:
        # Upstream's mmseg applies the interval in tests, too.
        cfg.default_hooks.visualization.update(hook, draw=True, interval=1)
        if folder:
            cfg.visualizer.save_dir = folder

    def run_inference(self, model, images) -> None:
        map_logits(model, images)

    def made_sample(self, size):
        from mmseg.structures import SegDataSample

        sample = SegDataSample(metainfo=dict(img_shape=size, ori_shape=size))
        sample.gt_sem_seg = PixelData(data=torch.zeros(1, *size, dtype=torch.long))
        return sample


class Detection(Task):
    """Boxes, and masks where the detector has them."""

    library = 'mmdet'
    name = 'detection'
    result_dump = 'DumpDetResults'
    tta_model = dict(type='DetTTAModel', tta_cfg=dict(nms=dict(type='nms', iou_threshold=0.5), max_per_img=100))
    networks = dict(features=NeckMaps, backbone=BackboneMaps)
    counted = 'backbone, neck, RPN and heads, on as many regions as test_cfg has; without suppression and RoIAlign'

    def show_predictions(self, cfg, hook, folder) -> None:
        cfg.default_hooks.visualization.update(hook, draw=True, test_out_dir=folder)

    def run_inference(self, model, images) -> None:
        maps = model.extract_feat(images)
        if not hasattr(model, 'roi_head'):
            model.bbox_head(maps)
            return
        model.rpn_head(maps)
        # The most regions of an image that test_cfg lets through to each kind of head.
        for kind, limits in (('bbox', model.test_cfg.rpn), ('mask', model.test_cfg.rcnn)):
            if getattr(model.roi_head, f'with_{kind}'):
                extractors = heads_of(getattr(model.roi_head, f'{kind}_roi_extractor'))
                for extractor, head in zip(extractors, heads_of(getattr(model.roi_head, f'{kind}_head')), strict=True):
                    size = extractor.roi_layers[0].output_size
                    head(images.new_empty(len(images) * limits.max_per_img, extractor.out_channels, *size))

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


#: The tasks by library, which is the `default_scope` of a config.
TASKS: dict[str, Task] = {task.library: task for task in (Classification(), Segmentation(), Detection())}
KNOWN = ', '.join(f'{task.library} ({task.name})' for task in TASKS.values())


def task_of(model: nn.Module) -> Task:
    """The task of a model: that of the library that its class, or one of its base classes, comes from.

    Raises:
        ValueError: If it is of none.
    """
    for kind in type(model).__mro__:
        task = TASKS.get(kind.__module__.partition('.')[0])
        if task is not None:
            return task
    raise ValueError(f'{type(model).__name__}: expected a model of one of {KNOWN}')


def check_scope(cfg) -> None:
    """Checks that `default_scope` names an installed package, and imports it.

    Raises:
        ValueError: If `default_scope` is missing or unknown.
        ImportError: If the package cannot be imported.
    """
    scope = cfg.get('default_scope')
    if not isinstance(scope, str) or (scope not in TASKS and find_spec(scope) is None):
        raise ValueError(f'default_scope = {scope!r}: set it to one of {KNOWN}')
    try:
        importlib.import_module(scope)
    except ImportError as error:
        raise ImportError(f'{scope} cannot be imported ({error}): run make setup, or see docs/stacks.md') from error
