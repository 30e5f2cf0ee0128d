"""Panels of pictures: truth and prediction of one image, beside the image."""

from collections.abc import Sequence

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.patches import Rectangle
from mmengine.structures import BaseDataElement

RIGHT, WRONG, NEUTRAL = '#2a9d5c', '#d1495b', '#c9ced6'
SCORE_THRESHOLD = 0.5


def draw_classes(panels: Sequence[Axes], image: np.ndarray, sample: BaseDataElement, metainfo: dict) -> None:
    truth, scores = int(sample.gt_label), sample.pred_score.numpy()
    guess = int(scores.argmax())
    panels[0].text(0.5, 0.5, metainfo['classes'][truth], fontsize=40, ha='center', va='center')
    colors = [NEUTRAL] * len(scores)
    colors[guess] = RIGHT if guess == truth else WRONG
    panels[1].set_axis_on()
    panels[1].bar(metainfo['classes'], scores, color=colors)
    # Room above the tallest bar for its label.
    panels[1].set_ylim(0, 1.15)
    panels[1].set_yticks([])
    panels[1].tick_params(length=0, labelsize=8)
    panels[1].spines[['top', 'left', 'right']].set_visible(False)
    panels[1].text(guess, scores[guess] + 0.02, f'{scores[guess]:.0%}', fontsize=9, ha='center', color=colors[guess])


def draw_maps(panels: Sequence[Axes], image: np.ndarray, sample: BaseDataElement, metainfo: dict) -> None:
    palette = np.array(metainfo['palette'], dtype=np.float32)
    grey = _greyed(image)
    for ax, labels in zip(panels, (sample.gt_sem_seg, sample.pred_sem_seg), strict=True):
        labels = labels.data[0].numpy()
        painted = (labels > 0)[..., None] * (labels < len(palette))[..., None]
        colors = palette[np.clip(labels, 0, len(palette) - 1)]
        ax.imshow(np.where(painted, 0.2 * grey + 0.8 * colors, grey).astype(np.uint8))


def draw_objects(panels: Sequence[Axes], image: np.ndarray, sample: BaseDataElement, metainfo: dict) -> None:
    truth, predicted = sample.gt_instances, sample.pred_instances
    predicted = predicted[predicted.scores > SCORE_THRESHOLD]
    boxes = getattr(truth.bboxes, 'tensor', truth.bboxes)
    _draw_instances(panels[0], image, boxes, truth.masks.to_ndarray(), truth.labels, metainfo)
    _draw_instances(panels[1], image, predicted.bboxes, predicted.masks.numpy(), predicted.labels, metainfo)


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
    """The image without its colours and pale, so that painted classes stand out."""
    grey = image.astype(np.float32).mean(axis=-1, keepdims=True)
    return np.repeat(0.45 * grey + 120, 3, axis=-1)
