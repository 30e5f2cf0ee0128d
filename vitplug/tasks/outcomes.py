"""What a model predicts for an image, or a data set says of it, as text, labels and boxes: one class for each task."""

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:  # mmengine, which models of other libraries do without
    from mmengine.structures import BaseDataElement

#: Label of pixels without a class.
NO_LABEL = 255
TOP = 3
#: Smallest share of the pixels of a class that is named.
NAMED_SHARE = 0.005
#: Most digits after the point of a percentage.
MOST_DIGITS = 4


@dataclass(frozen=True, eq=False)
class Outcome(ABC):
    """The prediction of one model for one image, or what its data set says of it.

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
    def read(cls, sample: 'BaseDataElement', classes: Sequence[str] | None) -> 'ClassOutcome':
        """The outcome of a sample of mmpretrain."""
        scores = sample.pred_score
        shares, labels = scores.topk(min(TOP, len(scores)))
        named = [f'{_name(classes, int(label))}: {share:.1%}' for share, label in zip(shares, labels, strict=True)]
        return cls(', '.join(named), (_name(classes, int(labels[0])), float(shares[0])))

    def change_to(self, after: 'ClassOutcome') -> str:
        (before, share_before), (name, share) = self.best, after.best
        if before != name:
            return f'another class: {before} ({share_before:.1%}) becomes {name} ({share:.1%})'
        return f'the same class, {name}; score {_change_of_share(share_before, share)}'

    @classmethod
    def truth(cls, labels: Sequence[int], classes: Sequence[str] | None) -> 'ClassOutcome':
        """The annotated class, or classes, of an image."""
        names = [_name(classes, label) for label in labels]
        return cls(', '.join(names), (names[0], 1.0))


class NoOutcome(Outcome):
    """That a model predicts nothing; the text says why."""

    @classmethod
    def because(cls, why: str) -> 'NoOutcome':
        """The outcome with a reason."""
        return cls(f'no prediction, as {why}', None)

    def change_to(self, after: Outcome) -> str:
        return after.text


class MapOutcome(Outcome):
    """A label map. Models are compared by it."""

    @classmethod
    def read(
        cls, sample: 'BaseDataElement', size: tuple[int, int], classes: Sequence[str], palette: Sequence[Sequence[int]]
    ) -> 'MapOutcome':
        """The outcome of a sample of mmseg; ``size`` is the input's height and width."""
        return cls.of_labels(sample.pred_sem_seg.data[0].numpy(), sample, size, classes, palette)

    @classmethod
    def of_labels(
        cls,
        labels: np.ndarray,
        sample: 'BaseDataElement',
        size: tuple[int, int],
        classes: Sequence[str] | None,
        palette: Sequence[Sequence[int]],
        ignored: int | None = None,
    ) -> 'MapOutcome':
        """A label map of the picture of a sample; pixels of the label ``ignored`` count for no share."""
        labels = labels.astype(np.int64)
        present, counts = np.unique(labels[labels != ignored], return_counts=True)
        order = np.argsort(-counts, kind='stable')
        shares = [(_name(classes, int(present[i])), counts[i] / counts.sum()) for i in order]
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


@dataclass(frozen=True)
class Objects:
    """Objects in a picture, in pixels of the picture.

    Attributes:
        boxes: Left, top, right, bottom ``(N, 4)``.
        labels: Their classes.
        texts: What is written beside each.
        masks: ``(N, height, width)``; None if there are none.
    """

    boxes: np.ndarray
    labels: Sequence[int]
    texts: Sequence[str]
    masks: np.ndarray | None = None


class ObjectOutcome(Outcome):
    """Objects whose score is high enough. Models are compared by their number in each class."""

    @classmethod
    def read(
        cls,
        sample: 'BaseDataElement',
        size: tuple[int, int],
        classes: Sequence[str] | None,
        palette: Sequence[Sequence[int]],
        score_thr: float,
    ) -> 'ObjectOutcome':
        """The outcome of a sample of mmdet; ``size`` is the input's height and width."""
        instances = sample.pred_instances
        instances = instances[instances.scores >= score_thr]
        instances = instances[instances.scores.argsort(descending=True)].numpy()
        labels = instances.labels.tolist()
        texts = [f'{_name(classes, label)} {score:.0%}' for label, score in zip(labels, instances.scores, strict=True)]
        objects = Objects(instances.bboxes, labels, texts, instances.get('masks'))
        return cls.of_objects(objects, sample, size, classes, palette, f' with a score of {score_thr:g} or more')

    @classmethod
    def of_objects(
        cls,
        objects: 'Objects',
        sample: 'BaseDataElement',
        size: tuple[int, int],
        classes: Sequence[str] | None,
        palette: Sequence[Sequence[int]],
        which: str = '',
    ) -> 'ObjectOutcome':
        """Objects in the picture of a sample; ``which`` of them is added to their number."""
        seen = sorted({label for label in objects.labels if label < NO_LABEL})
        counts = Counter(_name(classes, label) for label in objects.labels)
        listed = ', '.join(f'{count} of class {name}' for name, count in sorted(counts.items()))
        text = f'{len(objects.labels)} {"object" if len(objects.labels) == 1 else "objects"}{which}'
        return cls(
            f'{text}: {listed}' if listed else text,
            counts,
            _merge_masks(objects, sample, size) if objects.labels and objects.masks is not None else None,
            _boxes_on_input(objects, sample),
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


def _on_input(labels: np.ndarray, sample: 'BaseDataElement', size: tuple[int, int]) -> np.ndarray:
    """Labels of the picture's pixels as labels of the input's; padding has none."""
    import mmcv

    height, width = sample.metainfo['img_shape'][:2]
    placed = np.full(size, NO_LABEL, np.uint8)
    height, width = min(height, size[0]), min(width, size[1])
    placed[:height, :width] = mmcv.imresize(labels, (width, height), interpolation='nearest')
    return placed


def _boxes_on_input(objects: Objects, sample: 'BaseDataElement') -> list[tuple[tuple[float, ...], str, int]]:
    """Boxes of the picture as boxes of the input, with text and label."""
    across, down = sample.metainfo.get('scale_factor', (1.0, 1.0))[:2]
    return [
        (tuple(float(side) for side in box * (across, down, across, down)), text, label)
        for box, text, label in zip(objects.boxes, objects.texts, objects.labels, strict=True)
    ]


def _merge_masks(objects: Objects, sample: 'BaseDataElement', size: tuple[int, int]) -> np.ndarray:
    """The class of each pixel, that of the first object that has it."""
    labels = np.full(objects.masks.shape[1:], NO_LABEL, np.uint8)
    for mask, label in reversed(list(zip(objects.masks, objects.labels, strict=True))):
        labels[mask.astype(bool)] = min(label, NO_LABEL)
    return _on_input(labels, sample, size)


def _change_of_share(before: float, after: float) -> str:
    """Two shares and their difference, with as many digits as all three need to agree."""
    for digits in range(1, MOST_DIGITS + 1):
        old, new, points = (round(100 * share, digits) for share in (before, after, after - before))
        if round(new - old, digits) == points:
            break
    points = round(new - old, digits) + 0.0  # no negative zero
    return f'{old:.{digits}f}% to {new:.{digits}f}% ({points:+.{digits}f} points)'
