"""Predictions of the three tasks: in a line of text, and as a picture's labels and boxes."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import mmcv
import numpy as np
from mmengine.structures import BaseDataElement

from vitplug.runs.prediction import Predictor

#: Label of pixels without a class.
NO_LABEL = 255
TOP = 3
#: Smallest share of the pixels of a class that is named.
NAMED_SHARE = 0.005


@dataclass(frozen=True, eq=False)
class Outcome:
    """The prediction of one model for one image.

    Args:
        text: The prediction in words and numbers.
        best: What the models are compared by: the class, the label map or the counts of objects.
        labels: Label of every pixel of the input ``(height, width)`` of uint8, 255 for none; None if there are none.
        boxes: Left, top, right, bottom in pixels of the input, with name, score and label.
        colours: Colour of each label that occurs.
        names: Names of these labels.
    """

    text: str
    best: object
    labels: np.ndarray | None = None
    boxes: Sequence[tuple[tuple[float, ...], str, int]] = ()
    colours: Mapping[int, tuple[int, ...]] = field(default_factory=dict)
    names: Mapping[int, str] = field(default_factory=dict)


def read_outcome(predictor: Predictor, scope: str, pixels: np.ndarray, size: tuple[int, int]) -> Outcome:
    """The prediction for a picture.

    Args:
        predictor: The model.
        scope: Library of the config, which decides the task.
        pixels: The picture, ``(height, width, 3)``, blue first.
        size: Height and width of the inputs that the picture becomes.
    """
    [sample] = predictor([pixels])
    read, _ = TASKS[scope]
    return read(predictor, sample, size)


def compare_outcomes(scope: str, baseline: Outcome, model: Outcome) -> str:
    """What differs between two predictions for one image, in words."""
    _, compare = TASKS[scope]
    return compare(baseline, model)


def _name(classes: Sequence[str] | None, label: int) -> str:
    return str(classes[label]) if classes and label < len(classes) else f'class {label}'


# --- classification ---


def _read_class(predictor: Predictor, sample: BaseDataElement, size: tuple[int, int]) -> Outcome:
    scores = sample.pred_score
    shares, labels = scores.topk(min(TOP, len(scores)))
    named = [
        f'{_name(predictor.task.classes, int(label))}: {share:.1%}' for share, label in zip(shares, labels, strict=True)
    ]
    return Outcome(', '.join(named), (_name(predictor.task.classes, int(labels[0])), float(shares[0])))


def _compare_classes(baseline: Outcome, model: Outcome) -> str:
    (before, share_before), (after, share_after) = baseline.best, model.best
    if before != after:
        return f'another class: {before} ({share_before:.1%}) becomes {after} ({share_after:.1%})'
    points = round(100 * (share_after - share_before), 1) + 0.0  # no negative zero
    return f'the same class, {after}; score {share_before:.1%} to {share_after:.1%} ({points:+.1f} points)'


# --- segmentation ---


def _read_map(predictor: Predictor, sample: BaseDataElement, size: tuple[int, int]) -> Outcome:
    labels = sample.pred_sem_seg.data[0].numpy().astype(np.int64)
    classes, palette = predictor.task.classes, predictor.model.dataset_meta['palette']
    present, counts = np.unique(labels, return_counts=True)
    order = np.argsort(-counts, kind='stable')
    shares = [(_name(classes, int(present[i])), counts[i] / labels.size) for i in order]
    text = ', '.join(f'{name}: {share:.1%}' for name, share in shares if share >= NAMED_SHARE)
    seen = [int(label) for label in present if label < NO_LABEL]
    return Outcome(
        text,
        labels,
        _on_input(np.minimum(labels, NO_LABEL).astype(np.uint8), sample, size),
        colours={label: tuple(palette[label]) for label in seen},
        names={label: _name(classes, label) for label in seen},
    )


def _compare_maps(baseline: Outcome, model: Outcome) -> str:
    changed = float((baseline.best != model.best).mean())
    return f'{changed:.1%} of the pixels have another class'


def _on_input(labels: np.ndarray, sample: BaseDataElement, size: tuple[int, int]) -> np.ndarray:
    """Labels of the picture's pixels as labels of the input's; padding has none."""
    height, width = sample.metainfo['img_shape'][:2]
    placed = np.full(size, NO_LABEL, np.uint8)
    height, width = min(height, size[0]), min(width, size[1])
    placed[:height, :width] = mmcv.imresize(labels, (width, height), interpolation='nearest')
    return placed


# --- detection ---


def _read_objects(predictor: Predictor, sample: BaseDataElement, size: tuple[int, int]) -> Outcome:
    meta = predictor.model.dataset_meta
    classes, palette = meta['classes'], meta['palette']
    found = sample.pred_instances
    found = found[found.scores >= predictor.task.score_thr]
    found = found[found.scores.argsort(descending=True)].numpy()
    across, down = sample.metainfo.get('scale_factor', (1.0, 1.0))[:2]
    boxes = [
        (
            tuple(float(side) for side in box * (across, down, across, down)),
            f'{_name(classes, label)} {score:.0%}',
            label,
        )
        for box, score, label in zip(found.bboxes, found.scores, map(int, found.labels), strict=True)
    ]
    seen = sorted({label for *_, label in boxes if label < NO_LABEL})
    counts = Counter(_name(classes, int(label)) for label in found.labels)
    listed = ', '.join(f'{count} of class {name}' for name, count in sorted(counts.items()))
    objects = 'object' if len(boxes) == 1 else 'objects'
    text = f'{len(boxes)} {objects} with a score of {predictor.task.score_thr:g} or more'
    return Outcome(
        f'{text}: {listed}' if boxes else text,
        counts,
        _merge_masks(found, sample, size) if boxes and 'masks' in found else None,
        boxes,
        {label: tuple(palette[label]) for label in seen},
        {label: _name(classes, label) for label in seen},
    )


def _merge_masks(found, sample: BaseDataElement, size: tuple[int, int]) -> np.ndarray:
    """The class of each pixel, that of the object with the highest score; objects come in order of their scores."""
    labels = np.full(found.masks.shape[1:], NO_LABEL, np.uint8)
    for mask, label in reversed(list(zip(found.masks, found.labels, strict=True))):
        labels[mask.astype(bool)] = min(int(label), NO_LABEL)
    return _on_input(labels, sample, size)


def _compare_objects(baseline: Outcome, model: Outcome) -> str:
    before, after = baseline.best, model.best
    total = f'{before.total()} objects become {after.total()}'
    changes = [
        f'class {name}: {before[name]} to {after[name]}'
        for name in sorted(before | after)
        if before[name] != after[name]
    ]
    return f'{total} ({", ".join(changes)})' if changes else f'{total}, the same number of each class'


#: By library: reads a prediction, and compares two.
TASKS: dict[str, tuple[Callable, Callable]] = {
    'mmpretrain': (_read_class, _compare_classes),
    'mmseg': (_read_map, _compare_maps),
    'mmdet': (_read_objects, _compare_objects),
}
