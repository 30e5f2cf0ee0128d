"""Scores of predictions: top-1 and top-5, mIoU, AP, loss, and what a condition changes; in points of 100."""

import contextlib
import io
import json
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from mmengine.registry import METRICS
from torch import Tensor

from vitplug.config.parts import as_list
from vitplug.statistics.images import Arrays, Estimate, jackknife, without_groups

from ..measure import Measure, Seen, together
from ..quantities.edits import relative_change
from ..runs import Run

#: The score of each library's task.
SCORES_OF = dict(mmpretrain='accuracy', mmseg='miou', mmdet='ap')


def _of(library: str):
    def why_not(run: Run) -> str:
        if isinstance(run.source, Path):
            return f'{run.source} is a folder of images without labels: name a split'
        return '' if run.library == library else f'it is of {library}, and the model of {run.library}'

    return why_not


def _accuracy(seen: Seen) -> Arrays:
    return {f'top-{k}': np.array(100 * seen.run.truth.right(seen.sample, k)) for k in (1, 5)}


# --- mIoU ---


def _areas(seen: Seen) -> Arrays:
    """Intersection and union ``(2, classes)``, as mmseg counts them."""
    from mmseg.evaluation.metrics import IoUMetric

    label = seen.sample.gt_sem_seg.data.squeeze()
    predicted = seen.sample.pred_sem_seg.data.squeeze().to(label)
    classes = len(seen.run.dataset.metainfo['classes'])
    both, either, *_ = IoUMetric.intersect_and_union(predicted, label, classes, void_label(seen.run))
    return {'areas': torch.stack((both, either)).numpy()}


def mean_iou(units: Sequence[Arrays]) -> Arrays:
    """Mean IoU in points over all images; classes that are nowhere do not count."""
    both, either = np.sum([unit['areas'] for unit in units], axis=0, dtype=np.float64)
    there = either > 0
    return {'mIoU': 100 * np.mean(both[there] / either[there]) if there.any() else np.array(np.nan)}


def label_map(seen: Seen) -> Tensor:
    """The label map, of the size of the padded input: padding is void."""
    label = seen.batch['data_samples'][0].gt_sem_seg.data[0]
    pixels = seen.batch['inputs'][0]
    grown = F.interpolate(label[None, None].float(), tuple(pixels.shape[-2:]), mode='nearest-exact')[0, 0].long()
    return F.pad(
        grown, (0, seen.size[1] - grown.shape[1], 0, seen.size[0] - grown.shape[0]), value=void_label(seen.run)
    )


def void_label(run: Run) -> int:
    return int(metric_settings(run, 'IoUMetric').get('ignore_index', 255))


# --- AP ---


def metric_settings(run: Run, kind: str) -> dict:
    """The settings of a metric of the config's test.

    Raises:
        ValueError: If there is none of the kind.
    """
    metrics = as_list(run.cfg.get('test_evaluator'))
    for settings in metrics:
        if str(settings.get('type')).rpartition('.')[2] == kind:
            return dict(settings)
    raise ValueError(f'{run.label}: test_evaluator has {[m.get("type") for m in metrics]}: expected a {kind}')


def _metric(run: Run):
    """COCO's metric of the config."""
    if 'metric' not in run.cache:
        settings = metric_settings(run, 'CocoMetric')
        if not settings.get('ann_file'):
            raise ValueError(f'{run.label}: test_evaluator (CocoMetric) has no ann_file: name the annotations')
        metric = METRICS.build(settings)
        metric.dataset_meta = run.dataset.metainfo
        with contextlib.redirect_stdout(io.StringIO()):
            metric.cat_ids = metric._coco_api.get_cat_ids(cat_names=metric.dataset_meta['classes'])
        run.cache['metric'] = metric
    return run.cache['metric']


def _found(seen: Seen) -> Arrays:
    """What was found in an image, as COCO's metric takes it, in JSON."""
    metric = _metric(seen.run)
    metric.results = []
    metric.process({}, [seen.sample.to_dict()])
    [(_, found)] = metric.results
    text = json.dumps(found, default=_plain)
    return {'found': np.frombuffer(text.encode(), np.uint8), 'image': np.array(int(found['img_id']))}


def _plain(value):
    if isinstance(value, bytes):
        return value.decode()
    return value.item() if getattr(value, 'ndim', 1) == 0 else value.tolist()


def _average_precision(run: Run, units: Sequence[Arrays]) -> dict[str, Estimate]:
    metric, estimates = _metric(run), {}
    results = [json.loads(unit['found'].tobytes()) for unit in units]
    for result in results:
        result['bboxes'] = np.array(result['bboxes']).reshape(-1, 4)
    images = [int(unit['image']) for unit in units]
    with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(io.StringIO()):
        files = metric.results2json(results, str(Path(folder, 'found')))
        for kind in (kind for kind in metric.metrics if kind in ('bbox', 'segm')):
            evaluation = _evaluated(metric, files[kind], kind, images)
            matches, left_out = evaluation.evalImgs, []
            for kept in without_groups(range(len(images))):
                chosen = {images[index] for index in kept}
                evaluation.evalImgs = [m if m is None or m['image_id'] in chosen else None for m in matches]
                left_out.append(_precision(evaluation))
            evaluation.evalImgs = matches
            name = f'{kind} AP'
            estimates |= jackknife({name: _precision(evaluation)}, [{name: one} for one in left_out], len(images))
    return estimates


def _evaluated(metric, file: str, kind: str, images: Sequence[int]):
    """COCO's evaluation with its matches; as mmdet sets it up, for all areas together."""
    from mmdet.datasets.api_wrappers import COCOeval
    from mmengine.fileio import load

    boxes = load(file)
    if kind == 'segm':  # as mmdet: areas are those of the masks
        boxes = [{key: value for key, value in one.items() if key != 'bbox'} for one in boxes]
    # COCO loads no empty list.
    nothing = dict(image_id=images[0], category_id=metric.cat_ids[0], bbox=[0, 0, 1, 1], score=0.0)
    evaluation = COCOeval(metric._coco_api, metric._coco_api.loadRes(boxes or [nothing]), kind if boxes else 'bbox')
    evaluation.params.catIds, evaluation.params.imgIds = metric.cat_ids, images
    evaluation.params.areaRng, evaluation.params.areaRngLbl = [[0, 1e10]], ['all']
    evaluation.params.maxDets = [100]
    evaluation.evaluate()
    return evaluation


def _precision(evaluation) -> np.ndarray:
    """AP over IoUs from 0.5 to 0.95 and classes, in points; classes without objects do not count."""
    evaluation.accumulate()
    precision = evaluation.eval['precision']
    there = precision > -1
    return np.asarray(100 * precision[there].mean() if there.any() else np.nan)


# --- loss, and changes ---


def _loss(seen: Seen) -> Arrays:
    """Cross entropy of the probabilities that the model predicts; of segmentors the mean over pixels with a class."""
    if seen.run.library == 'mmpretrain':
        scores, labels = seen.sample.pred_score.double()[None], seen.sample.gt_label
        if scores.min() < 0 or abs(scores.sum() - 1) > 1e-3 or labels.numel() != 1:
            return {'cross entropy': np.array(np.nan)}
        logs = scores.clamp(min=torch.finfo(torch.float32).tiny).log()
    else:
        labels = seen.sample.gt_sem_seg.data.flatten().long()
        logs = seen.sample.seg_logits.data.double().flatten(1).log_softmax(0).T
        known = (labels >= 0) & (labels < logs.shape[1])
        labels, logs = labels[known], logs[known]
    return {'cross entropy': np.array(float(-logs.gather(1, labels[:, None]).mean()))}


def _no_loss(run: Run) -> str:
    if run.library == 'mmdet':
        return 'the losses of detectors draw samples of boxes'
    return _of(run.library)(run)


def _change(seen: Seen) -> Arrays:
    """What the condition changes, against the same image without it."""
    run, base = seen.run, seen.run.base or seen.run
    kept = base.cache.setdefault('unchanged', {})
    if seen.index not in kept:
        kept.clear() if len(kept) > 64 else None
        kept[seen.index] = _features(base, seen.index)
    before, after = kept[seen.index], _features(run, seen.index)
    whole, left = (_kept(run, before[1], sample) for sample in (before[1], after[1]))
    [features] = relative_change(before[0], after[0]).tolist()
    values = (features, whole.score - left.score, whole.share - left.share)
    return {name: np.array(value, float) for name, value in zip(CHANGES, values, strict=True)}


CHANGES = ('change of the last features', 'fall of the score', 'changed prediction')


def _kept(run: Run, before, after):
    from vitplug.tasks import kept

    if run.library == 'mmdet':
        return kept.kept_objects(before, after, 0.3)
    return (kept.kept_class if run.library == 'mmpretrain' else kept.kept_map)(before, after)


def _features(run: Run, index: int) -> tuple[list[Tensor], object]:
    """The outputs of the backbone for an image, and the prediction."""
    outputs: list[Tensor] = []
    part = getattr(run.model, 'backbone', run.model)
    hook = part.register_forward_hook(lambda module, args, outs: outputs.extend(_tensors(outs)))
    try:
        [sample] = run.predict(run.batch([index]), [index])
    finally:
        hook.remove()
    return outputs, sample


def _tensors(outs) -> list[Tensor]:
    return [outs] if isinstance(outs, Tensor) else [tensor for out in outs for tensor in _tensors(out)]


SCORES = (
    Measure(
        'accuracy',
        'Share of the images whose class is the best one, or among the best five',
        'points',
        'all five papers',
        _accuracy,
        predicts=True,
        why_not=_of('mmpretrain'),
    ),
    Measure(
        'miou',
        'Mean over classes of intersection over union of all pixels',
        'points',
        'Context Broadcasting, Tables 7 and 12',
        _areas,
        estimate=together(mean_iou),
        predicts=True,
        why_not=_of('mmseg'),
    ),
    Measure(
        'ap',
        "COCO's average precision over IoUs from 0.5 to 0.95, of boxes, and of masks where the metric has them",
        'points',
        'Gaussian Attention Bias, Table 4',
        _found,
        estimate=_average_precision,
        predicts=True,
        why_not=_of('mmdet'),
    ),
    Measure(
        'loss',
        'Cross entropy of the predicted probabilities, of the image or of its pixels',
        'nats',
        'Context Broadcasting, Fig. 9',
        _loss,
        predicts=True,
        slow=True,
        why_not=_no_loss,
    ),
    Measure(
        'change',
        'What the condition changes: the last features, relative to their norm, the mean score of what was predicted, '
        'and the share of the prediction that is another one',
        'share',
        'Michel et al. 2019 for heads; the other edits and the controls are ours',
        _change,
        slow=True,
    ),
)
