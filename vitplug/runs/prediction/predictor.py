"""A trained model behind its library's inferencer."""

import copy
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path

import numpy as np
import torch
from matplotlib import colormaps
from mmengine.config import Config
from mmengine.device import get_device
from mmengine.model import revert_sync_batchnorm
from mmengine.registry import DATASETS, MODELS, TRANSFORMS, init_default_scope
from mmengine.structures import BaseDataElement
from torch import Tensor, nn

from vitplug.checkpoints.safe_loading import load_from_file
from vitplug.config.parts import loader_leaves, model_settings
from vitplug.files.picture_sources import Reader

from ..checkpoint_fit import load_for_inference
from .inference import INFERENCES


class Predictor:
    """A trained model of a config: predicts pictures as `tools/test.py` does, and draws what it predicts.

    Args:
        cfg: Config of the training.
        checkpoint: Path or address of the checkpoint.
        device: Such as ``'cuda:0'`` or ``'cpu'``; None for an accelerator where there is one.
        score_thr: Lowest score that is drawn; None for the task's own.

    Raises:
        ValueError: If the config has no test pipeline, the device is unknown, or the task has no scores.
        ValueError or OSError: If the checkpoint is missing, broken or of another model.
    """

    def __init__(
        self,
        cfg: Config,
        checkpoint: str | Path,
        device: str | None = None,
        score_thr: float | None = None,
    ):
        init_default_scope(cfg.default_scope)
        if not cfg.get('test_dataloader'):
            raise ValueError(f'{cfg.filename}: no test_dataloader, whose pipeline pictures go through; add one')
        _, self._dataset = next(loader_leaves(cfg, 'test'))
        self.model, meta = load_model(cfg, str(checkpoint))
        self.model.to(check_device(device))
        classes, palette = _names_and_colours(meta, self._dataset)
        test_cfg = copy.deepcopy(cfg)
        test_cfg.test_dataloader = dict(dataset=copy.deepcopy(self._dataset))
        #: Inferencer, drawing and records of the task.
        self.task = INFERENCES[cfg.default_scope](test_cfg, self.model, classes, palette, score_thr)

    @cached_property
    def read(self) -> Reader:
        """Reads the pixels of an image file as the config's test pipeline loads them; raises what a decoder raises.

        Raises:
            ValueError: If that pipeline loads no image files.
        """
        steps = [dict(step) for step in self._dataset.get('pipeline') or () if 'LoadImageFromFile' in str(step['type'])]
        if not steps:
            raise ValueError('test_dataloader.dataset.pipeline: no LoadImageFromFile, with which pictures are read')
        load = TRANSFORMS.build(steps[0])
        return lambda path: load(dict(img_path=str(path)))['img']

    def collate(self, pictures: Sequence[np.ndarray]) -> Mapping:
        """Pictures ``(height, width, 3)``, blue first, as a batch for :meth:`run`."""
        [batch] = self.task.inferencer.preprocess(list(pictures), batch_size=len(pictures))
        return batch if isinstance(batch, Mapping) else batch[1]  # mmdet has the pictures before it

    def images(self, pictures: Sequence[np.ndarray]) -> Tensor:
        """Pictures ``(height, width, 3)``, blue first, as the backbone gets them, ``(B, C, H, W)``."""
        return self.model.data_preprocessor(self.collate(pictures), training=False)['inputs']

    def run(self, batch: Mapping) -> list[BaseDataElement]:
        """Predictions for a batch of :meth:`collate`, which stays as it is."""
        return [sample.cpu() for sample in self.task.inferencer.forward(copy.copy(batch))]

    def __call__(self, pictures: Sequence[np.ndarray]) -> list[BaseDataElement]:
        """Predictions for pictures ``(height, width, 3)``, blue first, in one batch."""
        return self.run(self.collate(pictures))

    def draw(self, picture: np.ndarray, sample: BaseDataElement) -> np.ndarray:
        """A picture, blue first, with its predictions drawn on it, as RGB."""
        return self.task.draw(_as_rgb(picture), sample)

    def draw_truth(self, picture: np.ndarray, sample: BaseDataElement) -> np.ndarray:
        """A picture, blue first, with the annotations of a sample drawn on it, as RGB."""
        return self.task.draw_truth(_as_rgb(picture), sample)


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


def check_device(device: str | None) -> str:
    """The name of the device to use; None for an accelerator where there is one.

    Raises:
        ValueError: If it is unknown or not there.
    """
    try:
        return str(torch.empty(0, device=device or get_device()).device)
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        raise ValueError(f'--device {device}: cannot be used ({str(error).splitlines()[0]})') from error


def _names_and_colours(meta: Mapping, dataset: Mapping) -> tuple[list[str] | None, list[tuple[int, ...]]]:
    """Names of the classes (None if unknown) and their colours: the checkpoint's, else the config's or the class's."""
    trained = {str(key).lower(): value for key, value in (meta.get('dataset_meta') or {}).items() if value}
    known = {**getattr(DATASETS.get(dataset['type']), 'METAINFO', {}), **(dataset.get('metainfo') or {}), **trained}
    classes, palette = known.get('classes'), known.get('palette')
    if not isinstance(palette, list | tuple) or len(palette) < len(classes or ()):
        palette = [[int(255 * part) for part in colour] for colour in colormaps['tab20'].colors]
    return [str(name) for name in classes] if classes else None, [tuple(colour) for colour in palette]


def _as_rgb(picture: np.ndarray) -> np.ndarray:
    """Three channels of 8 bit, red first, from pixels that may be grey, float or transparent."""
    picture = picture[..., None] if picture.ndim == 2 else picture
    picture = picture.repeat(3, axis=-1) if picture.shape[-1] == 1 else picture[..., :3]
    return np.ascontiguousarray(picture[..., ::-1].clip(0, 255).astype(np.uint8))
