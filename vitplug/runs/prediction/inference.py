"""The inferencers of the three libraries around a model that is built: batches, pictures and records of results."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import mmcv
import numpy as np
from mmengine.dataset import pseudo_collate
from mmengine.structures import BaseDataElement
from torch import nn

TOP = 5
# Pixels: smaller pictures of a classifier are drawn enlarged, so that there is room for names.
SMALLEST_SIDE, LARGEST_SIDE = 384, 1536


def _around(kind: type, model: nn.Module) -> type:
    """The class of an inferencer that takes this model and builds none, and batches of several image sizes."""
    return type(kind.__name__, (kind,), {'_init_model': lambda *_: model, '_init_collate': lambda *_: pseudo_collate})


class Inference:
    """A model behind the inferencer of its library, and how a prediction is drawn and recorded.

    Each takes the config, with the data set of the test as `test_dataloader.dataset`, the model with its weights, names
    of its classes (None where they are unknown), colours of classes, which are repeated, and the lowest score that is
    drawn, None for the task's own. Its ``record`` gives a prediction as JSON has it; what it has not is written below
    the folder ``out``, as a file of this ``name``.
    """

    inferencer: Any
    classes: Sequence[str] | None
    #: What the inferencer's `visualize` is given.
    drawing: Mapping[str, Any]

    def draw(self, image: np.ndarray, sample: BaseDataElement) -> np.ndarray:
        """An RGB image ``(height, width, 3)`` with the prediction for it."""
        [drawn] = self.inferencer.visualize([image], [sample], return_vis=True, **self.drawing)
        return drawn

    def draw_truth(self, image: np.ndarray, sample: BaseDataElement) -> np.ndarray:
        """An RGB image with the annotations of a sample, in pixels of the image."""
        visualizer = self.inferencer.visualizer
        visualizer.add_datasample('truth', image, sample, draw_gt=True, draw_pred=False)
        return visualizer.get_image()


class ClassInference(Inference):
    """The classes with the highest scores, by mmpretrain."""

    def __init__(self, cfg, model, classes, palette, score_thr):
        from mmpretrain import ImageClassificationInferencer
        from mmpretrain.visualization import UniversalVisualizer

        self.classes, self.score_thr = classes, score_thr or 0.0
        model._config, model._dataset_meta = cfg, dict(classes=classes)
        self.inferencer, self.visualizer = ImageClassificationInferencer(model), UniversalVisualizer()

    def draw(self, image, sample):
        scores, labels = sample.pred_score.topk(min(TOP, len(sample.pred_score)))
        return self._drawn(image, sample.clone().set_pred_label(labels[scores >= self.score_thr]), draw_gt=False)

    def draw_truth(self, image, sample):
        return self._drawn(image, sample, draw_pred=False)

    def _drawn(self, image: np.ndarray, sample: BaseDataElement, **which: bool) -> np.ndarray:
        sides = image.shape[:2]
        scale = max(1.0, min(SMALLEST_SIDE / min(sides), LARGEST_SIDE / max(sides)))
        return self.visualizer.visualize_cls(image, sample, classes=self.classes, rescale_factor=scale, **which)

    def record(self, sample, name, out):
        scores, labels = (best.tolist() for best in sample.pred_score.topk(min(TOP, len(sample.pred_score))))
        names = dict(names=[self.classes[label] for label in labels]) if self.classes else {}
        return dict(labels=labels, scores=scores, **names)


class MapInference(Inference):
    """Label maps, by mmseg; there are no scores."""

    drawing = dict(opacity=0.6)

    def __init__(self, cfg, model, classes, palette, score_thr):
        from mmseg.apis import MMSegInferencer

        if score_thr is not None:
            raise ValueError(f'--score-thr {score_thr}: a label map has no scores; leave it out')
        named = list(classes or ())
        self.classes = [*named, *(f'class {label}' for label in range(len(named), model.num_classes))]
        meta = dict(classes=self.classes, palette=(list(palette) * len(self.classes))[: len(self.classes)])
        model.dataset_meta = meta
        cfg.visualizer = dict(type='SegLocalVisualizer', name='predict', **meta)
        self.inferencer = _around(MMSegInferencer, model)(cfg, **meta)

    def record(self, sample, name, out):
        """The label map is a PNG of class indices; the record has the shares of the classes."""
        labels = sample.pred_sem_seg.data[0].numpy()
        path = Path('labels', f'{name}.png')
        mmcv.imwrite(labels.astype(np.uint8 if len(self.classes) <= 256 else np.uint16), str(out / path))
        present, pixels = np.unique(labels, return_counts=True)
        shares = {self.classes[label]: count / labels.size for label, count in zip(present, pixels, strict=True)}
        return dict(label_map=str(path), shares=shares)


class ObjectInference(Inference):
    """Boxes and masks, by mmdet."""

    def __init__(self, cfg, model, classes, palette, score_thr):
        from mmdet.apis import DetInferencer

        self.classes, self.drawing = classes, dict(pred_score_thr=0.3 if score_thr is None else score_thr)
        model.dataset_meta = dict(classes=classes, palette=list(palette) * (len(classes or ()) // len(palette) + 1))
        cfg.visualizer = dict(type='DetLocalVisualizer', name='predict', line_width=2)
        self.inferencer = _around(DetInferencer, model)(cfg)

    def record(self, sample, name, out):
        """All objects, whatever their scores: corners in pixels, and masks as run lengths."""
        return self.inferencer.pred2dict(sample)


#: By library.
INFERENCES = dict(mmpretrain=ClassInference, mmseg=MapInference, mmdet=ObjectInference)
