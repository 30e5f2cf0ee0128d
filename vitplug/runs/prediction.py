"""A trained model behind its library's inferencer: predictions, pictures and records of them, for the three tasks."""

import copy
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import mmcv
import numpy as np
import torch
from matplotlib import colormaps
from mmengine.config import Config
from mmengine.dataset import pseudo_collate
from mmengine.device import get_device
from mmengine.model import revert_sync_batchnorm
from mmengine.registry import DATASETS, MODELS, TRANSFORMS, init_default_scope
from mmengine.structures import BaseDataElement
from torch import nn

from vitplug.checkpoints.through_mmengine import load_from_file
from vitplug.config.parts import loader_leaves, model_settings

from .checkpoint_fit import load_for_inference

TOP = 5
# Pixels: smaller pictures of a classifier are drawn enlarged, so that there is room for names.
SMALLEST_SIDE = 384
PANEL = (256, 256)
# Boxes with lower scores are not drawn, unless a score is given.
SCORE = 0.3


class Predictor:
    """A trained model of a config: predicts pictures as `tools/test.py` does, and draws what it predicts.

    Args:
        cfg: Config of the training.
        checkpoint: Path or address of the checkpoint.
        device: Such as ``'cuda:0'`` or ``'cpu'``; None for an accelerator where there is one.
        score_thr: Lowest score of a box that is drawn.

    Attributes:
        model: The model, in evaluation mode.
        classes: Names of its classes; None where they are unknown.

    Raises:
        ValueError: If the config has no test pipeline.
        ValueError or OSError: If the checkpoint is missing, broken or of another model.
    """

    def __init__(self, cfg: Config, checkpoint: str | Path, device: str | None = None, score_thr: float = SCORE):
        init_default_scope(cfg.default_scope)
        if not cfg.get('test_dataloader'):
            raise ValueError(f'{cfg.filename}: no test_dataloader, whose pipeline pictures go through; add one')
        _, self.dataset = next(loader_leaves(cfg, 'test'))
        self.model, meta = load_model(cfg, str(checkpoint))
        self.model.to(device or get_device())
        self.classes, colours = _names_and_colours(meta, self.dataset, getattr(self.model, 'num_classes', 0))
        self.model.dataset_meta = dict(classes=self.classes, palette=colours)
        self._score_thr, self._library = score_thr, cfg.default_scope
        self._inferencer = self._around_model(copy.deepcopy(cfg))

    def _around_model(self, cfg: Config) -> Any:
        """The inferencer of the library, with what draws its predictions."""
        cfg.test_dataloader = dict(dataset=copy.deepcopy(self.dataset))
        if self._library == 'mmpretrain':
            from mmpretrain import ImageClassificationInferencer
            from mmpretrain.visualization import UniversalVisualizer

            self.model._config = cfg
            inferencer = ImageClassificationInferencer(self.model)
            inferencer.visualizer = UniversalVisualizer()
            return inferencer
        if self._library == 'mmdet':
            from mmdet.apis import DetInferencer as Inferencer

            cfg.visualizer = dict(type='DetLocalVisualizer', line_width=2, name='predict')
        else:
            from mmseg.apis import MMSegInferencer as Inferencer

            cfg.visualizer = dict(type='SegLocalVisualizer', alpha=0.6, name='predict')
        # One that builds no model.
        inferencer = type(Inferencer.__name__, (Inferencer,), {'_init_model': lambda *_: self.model})(cfg)
        inferencer.visualizer.dataset_meta = self.model.dataset_meta
        return inferencer

    @cached_property
    def read(self) -> Callable[[str | Path], np.ndarray]:
        """Reads the pixels of an image file as the config's test pipeline loads them; raises what a decoder raises.

        Raises:
            ValueError: If that pipeline loads no image files.
        """
        steps = [dict(step) for step in self.dataset.get('pipeline') or () if 'LoadImageFromFile' in str(step['type'])]
        if not steps:
            raise ValueError('test_dataloader.dataset.pipeline: no LoadImageFromFile, with which pictures are read')
        load = TRANSFORMS.build(steps[0])
        return lambda path: load(dict(img_path=str(path)))['img']

    def collate(self, pictures: Sequence[np.ndarray]) -> Mapping:
        """Pictures ``(height, width, 3)``, blue first, as a batch for :meth:`run`."""
        [batch] = self._inferencer.preprocess(list(pictures), batch_size=len(pictures))
        return batch if isinstance(batch, Mapping) else batch[1]  # mmdet has the pictures before it

    def run(self, batch: Mapping) -> list[BaseDataElement]:
        """Predictions for a batch of :meth:`collate`, which stays as it is."""
        return [sample.cpu() for sample in self._inferencer.forward(copy.copy(batch))]

    def __call__(self, pictures: Sequence[np.ndarray]) -> list[BaseDataElement]:
        """Predictions for pictures ``(height, width, 3)``, blue first, in one batch."""
        return self.run(self.collate(pictures))

    def draw(self, picture: np.ndarray, sample: BaseDataElement, truth: bool = False) -> np.ndarray:
        """A picture, blue first, with the predictions of a sample, or its annotations, drawn on it, as RGB."""
        picture, which = _as_rgb(picture), dict(draw_gt=truth, draw_pred=not truth)
        visualizer = self._inferencer.visualizer
        if self._library == 'mmpretrain':
            if not truth:
                sample = sample.clone().set_pred_label(_best(sample).indices)
            which |= dict(classes=self.classes, rescale_factor=max(1.0, SMALLEST_SIDE / min(picture.shape[:2])))
            return visualizer.visualize_cls(picture, sample, **which)
        if self._library == 'mmdet':
            which |= dict(pred_score_thr=self._score_thr)
        visualizer.add_datasample('predict', picture, sample, **which)
        return visualizer.get_image()

    def record(self, sample: BaseDataElement, name: str, out: Path) -> dict[str, Any]:
        """A prediction as JSON has it.

        The five best classes of an image; all objects, whatever their scores, with corners in pixels and masks as run
        lengths; or the shares of the classes of a label map, which is written below the folder ``out`` as a PNG of
        this ``name``.
        """
        if self._library == 'mmpretrain':
            scores, labels = (best.tolist() for best in _best(sample))
            names = dict(names=[self.classes[label] for label in labels]) if self.classes else {}
            return dict(labels=labels, scores=scores, **names)
        if self._library == 'mmdet':
            return self._inferencer.pred2dict(sample)
        labels, path = sample.pred_sem_seg.data[0].numpy(), Path('labels', f'{name}.png')
        mmcv.imwrite(labels.astype(np.uint8 if len(self.classes) <= 256 else np.uint16), str(out / path))
        present, pixels = np.unique(labels, return_counts=True)
        shares = {self.classes[label]: count / labels.size for label, count in zip(present, pixels, strict=True)}
        return dict(label_map=str(path), shares=shares)


def load_model(cfg: Config, checkpoint: str) -> tuple[nn.Module, Mapping]:
    """Builds the model of a config with the weights of a checkpoint, in evaluation mode, and gives the file's meta.

    Raises:
        ValueError or OSError: If the checkpoint is missing, broken, would have to run code, or is of another model.
    """
    settings = model_settings(cfg)
    settings.pop('pretrained', None)
    model = revert_sync_batchnorm(MODELS.build(settings))
    content = load_from_file(checkpoint)
    load_for_inference(checkpoint, model, content, cfg)
    meta = content.get('meta')
    return model.eval(), meta if isinstance(meta, Mapping) else {}


def save_panels(predictor: Predictor, path: str | Path, number: int = 6) -> None:
    """Draws input, ground truth and prediction, side by side, of some images of a test set, into one file."""
    dataset, rows = DATASETS.build(predictor.dataset), []
    for index in range(0, len(dataset), max(1, len(dataset) // number))[:number]:
        with torch.no_grad():
            [sample] = predictor.model.test_step(pseudo_collate([dataset[index]]))
        pixels = predictor.read(sample.img_path)
        panels = _as_rgb(pixels), predictor.draw(pixels, sample, truth=True), predictor.draw(pixels, sample)
        rows.append(np.hstack([mmcv.imresize(panel, PANEL) for panel in panels]))
    mmcv.imwrite(np.vstack(rows)[..., ::-1], str(path))


def _best(sample: BaseDataElement) -> Any:
    """The highest scores of a classifier, and their labels."""
    return sample.pred_score.topk(min(TOP, len(sample.pred_score)))


def _names_and_colours(meta: Mapping, dataset: Mapping, number: int) -> tuple[list[str] | None, list[tuple[int, ...]]]:
    """Names of the classes (None if unknown) and their colours: the checkpoint's, else the config's or the class's.

    A segmentor has a ``number`` of classes, each of which gets a name.
    """
    trained = {str(key).lower(): value for key, value in (meta.get('dataset_meta') or {}).items() if value}
    known = {**getattr(DATASETS.get(dataset['type']), 'METAINFO', {}), **(dataset.get('metainfo') or {}), **trained}
    classes, palette = [str(name) for name in known.get('classes') or ()], known.get('palette')
    classes += [f'class {label}' for label in range(len(classes), number)]
    if not isinstance(palette, list | tuple) or len(palette) < len(classes):
        palette = [[int(255 * part) for part in colour] for colour in colormaps['tab20'].colors]
    return classes or None, [tuple(colour) for colour in palette] * (len(classes) // len(palette) + 1)


def _as_rgb(picture: np.ndarray) -> np.ndarray:
    """Three channels of 8 bit, red first, from pixels that may be grey, float or transparent."""
    picture = picture[..., None] if picture.ndim == 2 else picture
    picture = picture.repeat(3, axis=-1) if picture.shape[-1] == 1 else picture[..., :3]
    return np.ascontiguousarray(picture[..., ::-1].clip(0, 255).astype(np.uint8))
