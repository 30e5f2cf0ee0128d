"""Draws input, ground truth and prediction side by side for several images of the test set."""

from pathlib import Path

import torch
from matplotlib.figure import Figure
from mmengine.config import Config
from mmengine.dataset import pseudo_collate
from mmengine.registry import DATASETS

from vitplug.runs.prediction import Predictor
from vitplug.statistics.images import evenly_spaced

PANELS = ('input', 'truth', 'prediction')
PANEL_INCHES = 2.1
ROWS, BLOCKS = 4, 2
# By library: lowest score that is drawn.
SCORES = dict(mmdet=0.5)


def save_predictions(cfg: Config, checkpoint: str | Path, path: str | Path, title: str) -> torch.nn.Module:
    """Draws evenly spaced images of a test set, as the library draws them, into one PNG file.

    Args:
        cfg: Config of the training; the pipeline of its test loads the annotations.
        checkpoint: Checkpoint file.
        path: File to write.
        title: Line above the panels.

    Returns:
        The model.

    Raises:
        ValueError or OSError: If the checkpoint is missing, broken, would run code, or belongs to another model.
    """
    predictor = Predictor(cfg, checkpoint, score_thr=SCORES.get(cfg.default_scope))
    dataset = DATASETS.build(cfg.test_dataloader.dataset)
    columns = len(PANELS) * BLOCKS
    figure = Figure(figsize=(PANEL_INCHES * columns, PANEL_INCHES * ROWS + 0.5), layout='constrained')
    figure.suptitle(title, fontsize=13, fontweight='bold')
    axes = figure.subplots(ROWS, columns)
    for ax in axes.flat:
        ax.set_axis_off()
    for ax, name in zip(axes[0], PANELS * BLOCKS, strict=True):
        ax.set_title(name, fontsize=10)
    for panels, index in zip(axes.reshape(-1, len(PANELS)), evenly_spaced(len(dataset), ROWS * BLOCKS), strict=False):
        with torch.no_grad():
            [sample] = predictor.model.test_step(pseudo_collate([dataset[index]]))
        pixels = predictor.read(sample.img_path)
        drawn = predictor.draw_truth(pixels, sample), predictor.draw(pixels, sample)
        for ax, image in zip(panels, (pixels[..., ::-1], *drawn), strict=True):
            ax.imshow(image, cmap='gray')
    figure.savefig(path, dpi=110)
    return predictor.model
