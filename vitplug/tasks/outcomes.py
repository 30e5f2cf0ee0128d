"""What a model predicts for an image, in a line of text and as labels and boxes: one class for each task."""

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import mmcv
import numpy as np
from mmengine.structures import BaseDataElement

#: Label of pixels without a class.
NO_LABEL = 255
TOP = 3
#: Smallest share of the pixels of a class that is named.
NAMED_SHARE = 0.005


@dataclass(frozen=True, eq=False)
class Outcome(ABC):
    """The prediction of one model for one image.

    Args:
        text: The prediction in words and numbers.
        best: What models are compared by.
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

    @abstractmethod
    def change_to(self, after: 'Outcome') -> str:
        """What differs in the outcome of another model for the same image, in words."""


class ClassOutcome(Outcome):
    """The class with the highest score. Models are compared by its name and score."""

    @classmethod
    def read(cls, sample: BaseDataElement, classes: Sequence[str] | None) -> 'ClassOutcome':
        """The outcome of a sample of mmpretrain."""
        scores = sample.pred_score
        shares, labels = scores.topk(min(TOP, len(scores)))
        named = [f'{_name(classes, int(label))}: {share:.1%}' for share, label in zip(shares, labels, strict=True)]
        return cls(', '.join(named), (_name(classes, int(labels[0])), float(shares[0])))

    def change_to(self, after: 'ClassOutcome') -> str:
        (before, share_before), (name, share) = self.best, after.best
        if before != name:
            return f'another class: {before} ({share_before:.1%}) becomes {name} ({share:.1%})'
        points = round(100 * (share - share_before), 1) + 0.0  # no negative zero
        return f'the same class, {name}; score {share_before:.1%} to {share:.1%} ({points:+.1f} points)'


class MapOutcome(Outcome):
    """A label map. Models are compared by it."""

    @classmethod
    def read(
        cls, sample: BaseDataElement, size: tuple[int, int], classes: Sequence[str], palette: Sequence[Sequence[int]]
    ) -> 'MapOutcome':
        """The outcome of a sample of mmseg; ``size`` is the input's height and width."""
        labels = sample.pred_sem_seg.data[0].numpy().astype(np.int64)
        present, counts = np.unique(labels, return_counts=True)
        order = np.argsort(-counts, kind='stable')
        shares = [(_name(classes, int(present[i])), counts[i] / labels.size) for i in order]
        seen = [int(label) for label in present if label < NO_LABEL]
        return cls(
            ', '.join(f'{name}: {share:.1%}' for name, share in shares if share >= NAMED_SHARE),
            labels,
            _on_input(np.minimum(labels, NO_LABEL).astype(np.uint8), sample, size),
            colours={label: tuple(palette[label]) for label in seen},
            names={label: _name(classes, label) for label in seen},
        )

    def change_to(self, after: 'MapOutcome') -> str:
        changed = float((self.best != after.best).mean())
        return f'{changed:.1%} of the pixels have another class'


class ObjectOutcome(Outcome):
    """Objects whose score is high enough. Models are compared by their number in each class."""

    @classmethod
    def read(
        cls,
        sample: BaseDataElement,
        size: tuple[int, int],
        classes: Sequence[str] | None,
        palette: Sequence[Sequence[int]],
        score_thr: float,
    ) -> 'ObjectOutcome':
        """The outcome of a sample of mmdet; ``size`` is the input's height and width."""
        found = sample.pred_instances
        found = found[found.scores >= score_thr]
        found = found[found.scores.argsort(descending=True)].numpy()
        boxes = _boxes_on_input(found, sample, classes)
        seen = sorted({label for *_, label in boxes if label < NO_LABEL})
        counts = Counter(_name(classes, int(label)) for label in found.labels)
        listed = ', '.join(f'{count} of class {name}' for name, count in sorted(counts.items()))
        objects = 'object' if len(boxes) == 1 else 'objects'
        text = f'{len(boxes)} {objects} with a score of {score_thr:g} or more'
        return cls(
            f'{text}: {listed}' if boxes else text,
            counts,
            _merge_masks(found, sample, size) if boxes and 'masks' in found else None,
            boxes,
            {label: tuple(palette[label]) for label in seen},
            {label: _name(classes, label) for label in seen},
        )

    def change_to(self, after: 'ObjectOutcome') -> str:
        total = f'{self.best.total()} objects become {after.best.total()}'
        changes = [
            f'class {name}: {self.best[name]} to {after.best[name]}'
            for name in sorted(self.best | after.best)
            if self.best[name] != after.best[name]
        ]
        return f'{total} ({", ".join(changes)})' if changes else f'{total}, the same number of each class'


def _name(classes: Sequence[str] | None, label: int) -> str:
    return str(classes[label]) if classes and label < len(classes) else f'class {label}'


def _on_input(labels: np.ndarray, sample: BaseDataElement, size: tuple[int, int]) -> np.ndarray:
    """Labels of the picture's pixels as labels of the input's; padding has none."""
    height, width = sample.metainfo['img_shape'][:2]
    placed = np.full(size, NO_LABEL, np.uint8)
    height, width = min(height, size[0]), min(width, size[1])
    placed[:height, :width] = mmcv.imresize(labels, (width, height), interpolation='nearest')
    return placed


def _boxes_on_input(
    found, sample: BaseDataElement, classes: Sequence[str] | None
) -> list[tuple[tuple[float, ...], str, int]]:
    """Boxes of the picture as boxes of the input, with name and score, and label."""
    across, down = sample.metainfo.get('scale_factor', (1.0, 1.0))[:2]
    return [
        (
            tuple(float(side) for side in box * (across, down, across, down)),
            f'{_name(classes, label)} {score:.0%}',
            label,
        )
        for box, score, label in zip(found.bboxes, found.scores, map(int, found.labels), strict=True)
    ]


def _merge_masks(found, sample: BaseDataElement, size: tuple[int, int]) -> np.ndarray:
    """The class of each pixel, that of the object with the highest score; objects come in order of their scores."""
    labels = np.full(found.masks.shape[1:], NO_LABEL, np.uint8)
    for mask, label in reversed(list(zip(found.masks, found.labels, strict=True))):
        labels[mask.astype(bool)] = min(int(label), NO_LABEL)
    return _on_input(labels, sample, size)
