"""Scores of a test, in points of 100, with what intervals and paired differences need of each image.

Top-1 accuracy is a mean over images, so that each image's part is kept, for Student's t. mIoU and AP are of all images
together: kept are their values without each of 16 groups of neighbouring images in turn, for the jackknife.
"""

import contextlib
import io
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from mmengine.registry import METRICS
from mmengine.structures import BaseDataElement
from torch.utils.data import Dataset

from vitplug.config.parts import as_list
from vitplug.statistics.images import Arrays, Estimate, jackknife, student, without_groups

from .columns import Column

# Beginnings of the names of arrays: values of each image; of all images; of all but each group; number of images.
IMAGES, WHOLE, LEFT_OUT, COUNT = 'images/', 'whole/', 'left_out/', 'count/'


@dataclass(frozen=True)
class Truth:
    """What counts as right in classification.

    Attributes:
        class_of: The class of each label of the data set; None where they are the same.
        among: The classes that are told apart, all others being left out: images and logits; None for all.
        sets: By name of the image file, the classes that are right; images with an empty set are left out. None for the
            class of the label.
    """

    class_of: Sequence[int] | None = None
    among: Sequence[int] | None = None
    sets: Mapping[str, Sequence[int]] | None = field(default=None, repr=False)

    def right(self, sample: BaseDataElement) -> float:
        """1 if the best class is right, 0 if not, NaN if the image does not count."""
        label = int(sample.gt_label)
        expected = [label if self.class_of is None else self.class_of[label]]
        if self.sets is not None:
            expected = self.sets[Path(sample.img_path).name]
        scores = sample.pred_score
        if self.among is not None:
            expected = [self.among.index(one) for one in expected if one in self.among]
            scores = scores[list(self.among)]
        return float(int(scores.argmax()) in expected) if expected else np.nan


class Scorer(ABC):
    """Takes the predictions of a test, batch by batch."""

    @abstractmethod
    def add(self, samples: Sequence[BaseDataElement]) -> None:
        """Takes predictions with their annotations."""

    @abstractmethod
    def arrays(self) -> Arrays:
        """What is kept, by kind and name of the value."""


class ClassScorer(Scorer):
    """Top-1 accuracy."""

    values = ('top-1',)

    def __init__(self, column: Column, dataset: Dataset, truth: Truth):
        self.truth = truth
        self.right: list[float] = []

    def add(self, samples) -> None:
        self.right += map(self.truth.right, samples)

    def arrays(self) -> Arrays:
        return {f'{IMAGES}top-1': 100 * np.array(self.right, np.float32)}


class MapScorer(Scorer):
    """Mean IoU over classes."""

    values = ('mIoU',)
    metric = 'IoUMetric'

    def __init__(self, column: Column, dataset: Dataset, truth: Truth):
        self.counter = built_metric(column, dataset, self.metric)

    def add(self, samples) -> None:
        self.counter.process({}, [sample.to_dict() for sample in samples])

    def arrays(self) -> Arrays:
        counts = np.array([[area.numpy() for area in result[:2]] for result in self.counter.results])
        left_out = [mean_iou(counts[kept].sum(0)) for kept in without_groups(range(len(counts)))]
        return _of_groups('mIoU', mean_iou(counts.sum(0)), left_out, len(counts))


def mean_iou(counts: np.ndarray) -> np.ndarray:
    """Mean IoU in points, of intersections and unions ``(2, classes)``; classes that are nowhere do not count."""
    intersections, unions = counts
    there = unions > 0
    return 100 * np.mean(intersections[there] / unions[there])


def _of_groups(value: str, whole: np.ndarray, left_out: Sequence[np.ndarray], images: int) -> Arrays:
    """What is kept of a value of all images together."""
    return {f'{WHOLE}{value}': whole, f'{LEFT_OUT}{value}': np.array(left_out), f'{COUNT}{value}': np.array(images)}


class BoxScorer(Scorer):
    """COCO's AP of boxes, and of masks where the metric of the config has them."""

    metric = 'CocoMetric'

    def __init__(self, column: Column, dataset: Dataset, truth: Truth):
        self.counter = built_metric(column, dataset, self.metric)
        self.kinds = [kind for kind in self.counter.metrics if kind in ('bbox', 'segm')]

    def add(self, samples) -> None:
        self.counter.process({}, [sample.to_dict() for sample in samples])

    def arrays(self) -> Arrays:
        results = [result for _, result in self.counter.results]
        images = [result['img_id'] for result in results]
        precisions = {}
        with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(io.StringIO()):
            self.counter.cat_ids = self.counter._coco_api.get_cat_ids(cat_names=self.counter.dataset_meta['classes'])
            files = self.counter.results2json(results, str(Path(folder, 'found')))
            for kind in self.kinds:
                evaluation = self._evaluated(files[kind], kind, images)
                matches = evaluation.evalImgs
                left_out = []
                for kept in without_groups(range(len(images))):
                    chosen = {images[index] for index in kept}
                    evaluation.evalImgs = [m if m is None or m['image_id'] in chosen else None for m in matches]
                    left_out.append(average_precision(evaluation))
                evaluation.evalImgs = matches
                precisions |= _of_groups(f'{kind} AP', average_precision(evaluation), left_out, len(images))
        return precisions

    def _evaluated(self, file: str, kind: str, images: Sequence[int]):
        """COCO's evaluation with its matches; as mmdet sets it up, for all areas together."""
        from mmdet.datasets.api_wrappers import COCOeval
        from mmengine.fileio import load

        coco, boxes = self.counter._coco_api, load(file)
        if kind == 'segm':  # as mmdet: areas are those of the masks
            boxes = [{key: value for key, value in one.items() if key != 'bbox'} for one in boxes]
        # COCO loads no empty list.
        nothing = dict(image_id=images[0], category_id=self.counter.cat_ids[0], bbox=[0, 0, 1, 1], score=0.0)
        evaluation = COCOeval(coco, coco.loadRes(boxes or [nothing]), kind if boxes else 'bbox')
        evaluation.params.catIds, evaluation.params.imgIds = self.counter.cat_ids, images
        evaluation.params.areaRng, evaluation.params.areaRngLbl = [[0, 1e10]], ['all']
        evaluation.params.maxDets = [100]
        evaluation.evaluate()
        return evaluation


def average_precision(evaluation) -> np.ndarray:
    """AP over IoUs from 0.5 to 0.95 and classes, in points; classes without objects do not count."""
    evaluation.accumulate()
    precision = evaluation.eval['precision']
    there = precision > -1
    return np.asarray(100 * precision[there].mean() if there.any() else np.nan)


SCORERS = dict(mmpretrain=ClassScorer, mmseg=MapScorer, mmdet=BoxScorer)


def check_metric(column: Column) -> None:
    """Checks that the config has the metric whose scores are compared.

    Raises:
        ValueError: If it has not; names the one that is needed.
    """
    needed = getattr(SCORERS[column.library], 'metric', None)
    if needed is not None:
        settings = metric_settings(column, needed)
        if needed == BoxScorer.metric and not settings.get('ann_file'):
            raise ValueError(f'{column.cfg.filename}: test_evaluator ({needed}) has no ann_file: name the annotations')


def metric_settings(column: Column, kind: str) -> dict:
    """The settings of a metric of the config's test.

    Raises:
        ValueError: If there is none of the kind.
    """
    metrics = as_list(column.cfg.get('test_evaluator'))
    for settings in metrics:
        if str(settings.get('type')).rpartition('.')[2] == kind:
            return dict(settings)
    raise ValueError(f'{column.cfg.filename}: test_evaluator has {[m.get("type") for m in metrics]}: expected a {kind}')


def built_metric(column: Column, dataset: Dataset, kind: str):
    """The metric, for a data set."""
    metric = METRICS.build(metric_settings(column, kind))
    metric.dataset_meta = dataset.metainfo
    return metric


def estimates(repeats: Sequence[Arrays]) -> dict[str, Estimate]:
    """Scores with their intervals over images.

    Args:
        repeats: The arrays of each repeat, on the same images; their mean is taken.
    """
    mean = {name: np.mean([arrays[name] for arrays in repeats], axis=0) for name in repeats[0]}
    by_value = {name.removeprefix(IMAGES): student(array) for name, array in mean.items() if name.startswith(IMAGES)}
    for name, whole in mean.items():
        if name.startswith(WHOLE):
            value = name.removeprefix(WHOLE)
            left_out = [{value: one} for one in mean[f'{LEFT_OUT}{value}']]
            by_value |= jackknife({value: whole}, left_out, int(mean[f'{COUNT}{value}']))
    return by_value


def over_repeats(repeats: Sequence[Arrays]) -> dict[str, Estimate]:
    """Scores with the interval of Student's t over repeats, as CB's Table 12 has it."""
    return {
        name: student(np.array([float(estimates([one])[name].mean) for one in repeats]))
        for name in estimates(repeats[:1])
    }


def mean_of(estimates: Sequence[Estimate]) -> Estimate:
    """The mean of scores on the same images, such as mPC, with its interval over images."""
    if estimates[0].images is not None:
        return student(np.mean([one.images for one in estimates], axis=0))
    left_out = np.mean([one.left_out for one in estimates], axis=0)
    whole = {'': np.mean([one.mean for one in estimates], axis=0)}
    return jackknife(whole, [{'': one} for one in left_out], int(estimates[0].n))['']
