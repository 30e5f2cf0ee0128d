"""Draws input, ground truth and prediction side by side for several images of the test set."""

from collections.abc import Callable, Sequence
from pathlib import Path

import mmcv
import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch, Rectangle
from mmengine.config import Config
from mmengine.dataset import BaseDataset, pseudo_collate
from mmengine.registry import DATASETS, init_default_scope
from mmengine.structures import BaseDataElement
from torch import nn

from vitplug.engine.prediction.predictor import load_model

PANELS = ('input', 'truth', 'prediction')
BLOCKS = 2
PANEL_INCHES = 2.1
DPI = 110
RIGHT, WRONG, NEUTRAL = '#2a9d5c', '#d1495b', '#c9ced6'
SCORE_THRESHOLD = 0.5


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


def save_predictions(
    model: nn.Module, dataset: BaseDataset, scope: str, path: str | Path, title: str, count: int = 8
) -> None:
    """Draws evenly spaced images of a test set, each as input, truth and prediction, into one PNG file.

    Args:
        model: Model in evaluation mode.
        dataset: Test set; its pipeline also loads the annotations.
        scope: 'mmpretrain', 'mmseg' or 'mmdet'; selects the drawing.
        path: File to write.
        title: Line above the panels.
        count: Number of images.

    Raises:
        KeyError: If there is no drawing for the scope.
    """
    draw = DRAWINGS[scope]
    indices = np.linspace(0, len(dataset) - 1, min(count, len(dataset))).round().astype(int)
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
            sample = model.test_step(pseudo_collate([dataset[int(index)]]))[0]
            image = mmcv.imread(sample.img_path, channel_order='rgb')
            panels[0].imshow(image)
            draw(panels[1:], image, sample, dataset.metainfo)
    _add_legend(figure, dataset.metainfo)
    figure.savefig(path, dpi=DPI)


def _draw_classification(panels: Sequence[Axes], image: np.ndarray, sample: BaseDataElement, metainfo: dict) -> None:
    truth, scores = int(sample.gt_label), sample.pred_score.numpy()
    guess = int(scores.argmax())
    panels[0].text(0.5, 0.5, metainfo['classes'][truth], fontsize=40, ha='center', va='center')
    colors = [NEUTRAL] * len(scores)
    colors[guess] = RIGHT if guess == truth else WRONG
    panels[1].set_axis_on()
    panels[1].bar(metainfo['classes'], scores, color=colors)
    # Space above the tallest bar for its label.
    panels[1].set_ylim(0, 1.15)
    panels[1].set_yticks([])
    panels[1].tick_params(length=0, labelsize=8)
    panels[1].spines[['top', 'left', 'right']].set_visible(False)
    panels[1].text(guess, scores[guess] + 0.02, f'{scores[guess]:.0%}', fontsize=9, ha='center', color=colors[guess])


def _draw_segmentation(panels: Sequence[Axes], image: np.ndarray, sample: BaseDataElement, metainfo: dict) -> None:
    palette = np.array(metainfo['palette'], dtype=np.float32)
    grey = _greyed(image)
    for ax, labels in zip(panels, (sample.gt_sem_seg, sample.pred_sem_seg), strict=True):
        labels = labels.data[0].numpy()
        painted = (labels > 0)[..., None] * (labels < len(palette))[..., None]
        colors = palette[np.clip(labels, 0, len(palette) - 1)]
        ax.imshow(np.where(painted, 0.2 * grey + 0.8 * colors, grey).astype(np.uint8))


def _draw_detection(panels: Sequence[Axes], image: np.ndarray, sample: BaseDataElement, metainfo: dict) -> None:
    truth, found = sample.gt_instances, sample.pred_instances
    found = found[found.scores > SCORE_THRESHOLD]
    boxes = getattr(truth.bboxes, 'tensor', truth.bboxes)
    _draw_instances(panels[0], image, boxes, truth.masks.to_ndarray(), truth.labels, metainfo)
    _draw_instances(panels[1], image, found.bboxes, found.masks.numpy(), found.labels, metainfo)


def _draw_instances(
    ax: Axes, image: np.ndarray, boxes: torch.Tensor, masks: np.ndarray, labels: torch.Tensor, metainfo: dict
) -> None:
    canvas = _greyed(image)
    palette = np.array(metainfo['palette'], dtype=np.float32)
    for mask, label in zip(masks.astype(bool), labels.tolist(), strict=True):
        canvas[mask] = 0.2 * canvas[mask] + 0.8 * palette[label]
    ax.imshow(canvas.astype(np.uint8))
    for (left, top, right, bottom), label in zip(boxes.tolist(), labels.tolist(), strict=True):
        color = palette[label] / 255
        ax.add_patch(Rectangle((left, top), right - left, bottom - top, fill=False, edgecolor=color, linewidth=1.2))
        ax.text(
            left, top, metainfo['classes'][label], fontsize=7, color='white', va='bottom', ha='left',
            bbox=dict(facecolor=color, edgecolor='none', pad=0.8),
        )  # fmt: skip


def _greyed(image: np.ndarray) -> np.ndarray:
    """The image in pale grey, so that painted classes stand out."""
    grey = image.astype(np.float32).mean(axis=-1, keepdims=True)
    return np.repeat(0.45 * grey + 120, 3, axis=-1)


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


DRAWINGS: dict[str, Callable] = {
    'mmpretrain': _draw_classification,
    'mmseg': _draw_segmentation,
    'mmdet': _draw_detection,
}
