"""Scores of predictions: top-1 and top-5, mIoU, AP, and loss; in points of 100."""

import contextlib
import io
import json
import tempfile
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from mmengine.registry import METRICS
from torch import Tensor

from vitplug.config.parts import as_list
from vitplug.statistics.images import Arrays, Estimate, jackknife
from vitplug.tasks.networks import heads_of

from ..measure import Seen, measure, together
from ..runs import Run

#: The score of each library's task.
SCORES_OF = dict(mmpretrain='accuracy', mmseg='miou', mmdet='ap')


def check(run: Run, library: str, knows_labels: bool = False) -> None:
    """Raises a ValueError if a score of a library's task does not apply to a run, or not to a condition's labels."""
    if not run.has_labels:
        raise ValueError(f'{run.label} sees a folder of images without labels: name a split')
    if run.library != library:
        raise ValueError(f'it is of {library}, and the model of {run.library}')
    if not knows_labels and (run.right is not Run.right or run.among):
        raise ValueError('accuracy alone knows the labels of this condition')


@measure('points', 'all five papers', predicts=True)
def accuracy(seen: Seen) -> Arrays:
    """Share of the images whose class is the best one, or among the best five."""
    check(seen.run, 'mmpretrain', knows_labels=True)
    right, scores, among = seen.run.right(seen.sample), seen.sample.pred_score, seen.run.among
    if among is not None:
        right, scores = [among.index(one) for one in right if one in among], scores[list(among)]
    hits = [one in right for one in scores.topk(min(5, len(scores))).indices.tolist()]
    return {f'top-{k}': np.array(100.0 * any(hits[:k]) if right else np.nan) for k in (1, 5)}


# --- mIoU ---


def _metric_settings(run: Run, kind: str) -> dict:
    """The settings of a metric of the config's test."""
    metrics = as_list(run.cfg.get('test_evaluator'))
    found = [dict(settings) for settings in metrics if str(settings.get('type')).rpartition('.')[2] == kind]
    if not found:
        raise ValueError(f'{run.label}: test_evaluator has {[m.get("type") for m in metrics]}: expected a {kind}')
    return found[0]


def void_label(run: Run) -> int:
    """The label of pixels without a class."""
    return int(_metric_settings(run, 'IoUMetric').get('ignore_index', 255))


def areas_of(run: Run, predicted: Tensor, label: Tensor) -> Arrays:
    """Intersection and union ``(2, classes)``, as mmseg counts them."""
    from mmseg.evaluation.metrics import IoUMetric

    classes = len(run.dataset.metainfo['classes'])
    both, either, *_ = IoUMetric.intersect_and_union(predicted.to(label), label, classes, void_label(run))
    return {'areas': torch.stack((both, either)).numpy()}


def mean_iou(units: Sequence[Arrays]) -> Arrays:
    """Mean IoU in points over all images; classes that are nowhere do not count."""
    both, either = np.sum([unit['areas'] for unit in units], axis=0, dtype=np.float64)
    there = either > 0
    return {'mIoU': 100 * np.mean(both[there] / either[there]) if there.any() else np.array(np.nan)}


@measure('points', 'Context Broadcasting, Tables 7 and 12', estimate=together(mean_iou), predicts=True)
def miou(seen: Seen) -> Arrays:
    """Mean over classes of intersection over union of all pixels."""
    check(seen.run, 'mmseg')
    return areas_of(seen.run, *(seen.sample.get(key).data.squeeze() for key in ('pred_sem_seg', 'gt_sem_seg')))


# --- AP ---


def coco_metric(run: Run):
    """COCO's metric of the config's test."""
    if 'metric' not in run.cache:
        metric = METRICS.build(_metric_settings(run, 'CocoMetric') | dict(ann_file=run.dataset.ann_file))
        metric.dataset_meta = run.dataset.metainfo
        with contextlib.redirect_stdout(io.StringIO()):
            metric.cat_ids = metric._coco_api.get_cat_ids(cat_names=metric.dataset_meta['classes'])
        run.cache['metric'] = metric
    return run.cache['metric']


def _average_precision(run: Run, units: Sequence[Arrays]) -> dict[str, Estimate]:
    metric, images, estimates = coco_metric(run), [int(unit['image']) for unit in units], {}
    with contextlib.redirect_stdout(io.StringIO()):
        for kind in (kind for kind in metric.metrics if kind in units[0]):
            found = [one for unit in units for one in json.loads(unit[kind].tobytes())]
            estimates |= jackknife(partial(_precision, _evaluated(metric, found, kind, images), f'{kind} AP'), images)
    return estimates


def _evaluated(metric, found: list[dict], kind: str, images: Sequence[int]):
    """COCO's evaluation with its matches; as mmdet sets it up, for all areas together."""
    from mmdet.datasets.api_wrappers import COCOeval

    # COCO loads no empty list.
    nothing = dict(image_id=images[0], category_id=metric.cat_ids[0], bbox=[0, 0, 1, 1], score=0.0)
    evaluation = COCOeval(metric._coco_api, metric._coco_api.loadRes(found or [nothing]), kind if found else 'bbox')
    params = evaluation.params
    params.catIds, params.imgIds, params.areaRng, params.areaRngLbl = metric.cat_ids, images, [[0, 1e10]], ['all']
    params.maxDets = [100]
    evaluation.evaluate()
    return evaluation


def _precision(evaluation, name: str, images: Sequence[int]) -> Arrays:
    """AP of some images over IoUs from 0.5 to 0.95 and classes, in points; classes without objects do not count."""
    matches, chosen = evaluation.evalImgs, set(images)
    evaluation.evalImgs = [one if one and one['image_id'] in chosen else None for one in matches]
    evaluation.accumulate()
    evaluation.evalImgs, precision = matches, evaluation.eval['precision']
    there = precision > -1
    return {name: np.asarray(100 * precision[there].mean() if there.any() else np.nan)}


@measure('points', 'Gaussian Attention Bias, Table 4', estimate=_average_precision, predicts=True)
def ap(seen: Seen) -> Arrays:
    """COCO's average precision over IoUs from 0.5 to 0.95, of boxes, and of masks where the metric has them."""
    check(seen.run, 'mmdet')
    metric = coco_metric(seen.run)
    metric.results = []
    metric.process({}, [seen.sample.to_dict()])
    [(_, found)] = metric.results
    with tempfile.TemporaryDirectory() as folder:
        files = metric.results2json([found], str(Path(folder, 'found')))
        texts = {kind: np.fromfile(files[kind], np.uint8) for kind in ('bbox', 'segm') if kind in files}
    return texts | {'image': np.array(int(found['img_id']))}


# --- loss ---


@measure('nats', 'Context Broadcasting, Fig. 9', predicts=True)
def loss(seen: Seen) -> Arrays:
    """Cross entropy of the predicted probabilities, of the image or of its pixels with a class."""
    check(seen.run, seen.run.library)
    if seen.run.library == 'mmdet':
        raise ValueError('the losses of detectors draw samples of boxes')
    if seen.run.library == 'mmpretrain':
        scores, label = seen.sample.pred_score.double(), seen.sample.gt_label
        if scores.min() < 0 or abs(scores.sum() - 1) > 1e-3 or label.numel() != 1:
            return {'cross entropy': np.array(np.nan)}
        found = -scores[label].clamp(min=torch.finfo(torch.float32).tiny).log()
    else:
        if not hasattr(heads_of(seen.run.model.decode_head)[-1], 'loss_decode'):
            raise ValueError('its decode head classifies masks, not pixels')
        logits, labels = seen.sample.seg_logits.data.double(), seen.sample.gt_sem_seg.data.long()
        if len(logits) == 1:
            raise ValueError('its decode head has one output for two classes')
        known = (labels >= 0) & (labels < len(logits))
        found = F.cross_entropy(logits[None], labels.where(known, -1), ignore_index=-1)
    return {'cross entropy': np.array(float(found))}
