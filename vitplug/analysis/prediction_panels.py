"""Draws input, ground truth and prediction side by side for several images of the test set."""

from pathlib import Path

import mmcv
import numpy as np
import torch
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from mmengine.config import Config
from mmengine.dataset import BaseDataset, pseudo_collate
from mmengine.registry import DATASETS, init_default_scope
from torch import nn

from vitplug.runs.prediction.predictor import load_model
from vitplug.statistics.images import evenly_spaced
from vitplug.tasks import TASKS

PANELS = ('input', 'truth', 'prediction')
BLOCKS = 2
PANEL_INCHES = 2.1
IMAGES = 8


def load_trained(cfg: Config, checkpoint: str | Path) -> tuple[nn.Module, BaseDataset]:
    """Builds the model of a config with the weights of a checkpoint, and the test set.

    Args:
        cfg: Config of the training.
        checkpoint: Checkpoint file.

    Returns:
        The model in evaluation mode and the test set.

    Raises:
        CheckpointNotRead: If the checkpoint is missing, broken, would run code, or belongs to another model.
    """
    init_default_scope(cfg.default_scope)
    model, _ = load_model(cfg, str(checkpoint))
    return model, DATASETS.build(cfg.test_dataloader.dataset)


def save_predictions(model: nn.Module, dataset: BaseDataset, scope: str, path: str | Path, title: str) -> None:
    """Draws evenly spaced images of a test set, each as input, truth and prediction, into one PNG file.

    Args:
        model: Model in evaluation mode.
        dataset: Test set; its pipeline also loads the annotations.
        scope: 'mmpretrain', 'mmseg' or 'mmdet'; selects the drawing.
        path: File to write.
        title: Line above the panels.

    Raises:
        KeyError: If the library is unknown.
    """
    draw = TASKS[scope].draw_panels
    indices = evenly_spaced(len(dataset), IMAGES)
    rows = -(-len(indices) // BLOCKS)
    figure = Figure(figsize=(PANEL_INCHES * len(PANELS) * BLOCKS, PANEL_INCHES * rows + 0.9), layout='constrained')
    figure.suptitle(title, fontsize=13, fontweight='bold')
    blocks = figure.subfigures(1, BLOCKS, wspace=0.04, squeeze=False)[0]
    axes = np.concatenate([block.subplots(rows, len(PANELS), squeeze=False) for block in blocks])
    for ax in axes.flat:
        ax.set_axis_off()
    for ax, name in zip(axes[::rows].flat, PANELS * BLOCKS, strict=True):
        ax.set_title(name, fontsize=10)
    with torch.no_grad():
        for panels, index in zip(axes, indices, strict=False):
            sample = model.test_step(pseudo_collate([dataset[index]]))[0]
            image = mmcv.imread(sample.img_path, channel_order='rgb')
            panels[0].imshow(image)
            draw(panels[1:], image, sample, dataset.metainfo)
    _add_legend(figure, dataset.metainfo)
    figure.savefig(path, dpi=110)


def _add_legend(figure: Figure, metainfo: dict) -> None:
    if 'palette' not in metainfo:
        return
    patches = [
        Patch(color=np.array(color) / 255, label=name)
        for name, color in zip(metainfo['classes'], metainfo['palette'], strict=True)
        if name != 'background'
    ]
    figure.legend(
        handles=patches, loc='outside lower center', ncols=len(patches), frameon=False, fontsize=9, handlelength=1.2
    )
