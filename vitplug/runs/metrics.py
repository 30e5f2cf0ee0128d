"""The metrics that the evaluators of a config give, without running one."""

import re
from collections.abc import Callable, Mapping
from itertools import chain

from mmengine.config import Config

from vitplug.config.parts import as_list
from vitplug.spelling import hint

from .hooks import validation_loss

# What metrics of the libraries have in their names, the first of those that are better when smaller.
SMALLER = re.compile(
    r'loss|error|perplexity|mmr|rmse|(?<![a-z])(m[as]e|err|fpr|dist)(?![a-z])|(abs|sq)_rel|silog|log10'
)
GREATER = re.compile(r'acc|top\d|precision|recall|f1|fscore|iou|dice|(?<![a-z])m?a[pr](?![a-z])|(?<![a-z])pq(?![a-z])')


def _accuracy(evaluator: Mapping) -> list[str]:
    return [f'top{k}{end}' for k in as_list(evaluator.get('topk', (1,))) for end in _thresholds(evaluator)]


def _single_label(evaluator: Mapping) -> list[str]:
    average = evaluator.get('average', 'macro')
    if average is None:  # lists, one number for each class
        return []
    items = evaluator.get('items', ('precision', 'recall', 'f1-score'))
    ends = [end + ('_micro' if average == 'micro' else '') for end in _thresholds(evaluator)]
    return [item + end for item in items for end in ends]


def _thresholds(evaluator: Mapping) -> list[str]:
    """What mmpretrain's metrics append to their names: nothing with one threshold."""
    thresholds = evaluator.get('thrs', 0.0)
    if not isinstance(thresholds, list | tuple) or len(thresholds) < 2:
        return ['']
    return ['_no-thr' if threshold is None else f'_thr-{threshold:.2f}' for threshold in thresholds]


def _iou(evaluator: Mapping) -> list[str]:
    kinds = {
        'mIoU': ('mIoU', 'mAcc'),
        'mDice': ('mDice', 'mAcc'),
        'mFscore': ('mFscore', 'mPrecision', 'mRecall'),
    }
    chosen = as_list(evaluator.get('iou_metrics', ['mIoU']))
    return [*chain.from_iterable(kinds.get(kind, ()) for kind in chosen), 'aAcc']


def _coco(evaluator: Mapping) -> list[str]:
    kinds = as_list(evaluator.get('metric', 'bbox'))
    # Masks before boxes: the first metric is the default.
    boxes = sorted((kind for kind in kinds if kind in ('bbox', 'segm')), reverse=True)
    return [f'{kind}_mAP{suffix}' for suffix in ('', '_50', '_75', '_s', '_m', '_l') for kind in boxes]


# By type of the evaluator: the prefix of its metrics, and their names, the main one first.
KNOWN: Mapping[str, tuple[str | None, Callable[[Mapping], list[str]]]] = {
    'Accuracy': ('accuracy', _accuracy),
    'SingleLabelMetric': ('single-label', _single_label),
    'IoUMetric': (None, _iou),
    'CocoMetric': ('coco', _coco),
}


def check_save_best(cfg: Config) -> None:
    """Checks that a validation gives the metric of the best checkpoint, which mmengine looks for after the first one.

    Raises:
        ValueError: If no validation gives it. Metrics of an evaluator that is not known are not checked.
    """
    wanted = as_list(((cfg.get('default_hooks') or {}).get('checkpoint') or {}).get('save_best') or [])
    evaluators = [dict(one) for one in as_list(cfg.get('val_evaluator')) if isinstance(one, Mapping)]
    names = [_names(str(one.get('type')).rpartition('.')[2], one) for one in evaluators]
    if not all(names) or any(one.get('classwise') for one in evaluators):
        return
    known = [name for own in names for name in own]
    for name in wanted:
        if name != 'auto' and name not in known and name != validation_loss.NAME:
            raise ValueError(
                f'default_hooks.checkpoint.save_best = {name!r}: no validation gives it; there are '
                f'{", ".join(known)}{hint(name, known)}'
            )


def choose_metric(cfg: Config, metric: str | None) -> str:
    """The metric by which variants are compared.

    Args:
        cfg: The config.
        metric: Its name; None for the main one of the first known evaluator.

    Raises:
        ValueError: If no validation of the config gives it. Metrics of an unknown evaluator are taken as they are
            named; a wrong name then shows at the first validation.
    """
    evaluators = [dict(one) for one in as_list(cfg.get('val_evaluator')) if isinstance(one, Mapping)]
    if not evaluators or not cfg.get('val_dataloader'):
        raise ValueError(f'{cfg.filename}: has no validation (val_evaluator, val_dataloader), so there is no metric')
    kinds = [str(evaluator.get('type')).rpartition('.')[2] for evaluator in evaluators]
    names = [name for kind, settings in zip(kinds, evaluators, strict=True) for name in _names(kind, settings)]
    if names and cfg.get('default_scope') == validation_loss.SCOPE:
        names.append(validation_loss.NAME)
    unknown = [kind for kind in kinds if kind not in KNOWN]
    if not names and not unknown:
        raise ValueError(f'--metric: {", ".join(kinds)} give no number for all classes together: set an average')
    if metric is None and not names:
        raise ValueError(f'--metric: the metrics of {", ".join(unknown)} are not known: name one')
    if metric is None:
        return names[0]
    if metric not in names and not unknown:
        raise ValueError(f'--metric: no validation gives {metric!r}; there are {", ".join(names)}{hint(metric, names)}')
    return metric


def greater_is_better(metric: str) -> bool:
    """Whether larger values of a metric are better, by its name.

    Raises:
        ValueError: If the name does not say.
    """
    name = metric.lower()
    if SMALLER.search(name):
        return False
    if GREATER.search(name):
        return True
    raise ValueError(
        f'--metric: the name {metric!r} does not say whether larger values are better: add --better greater or '
        '--better smaller, or in a grid file greater_is_better = True or False'
    )


def _names(kind: str, evaluator: Mapping) -> list[str]:
    if kind not in KNOWN:
        return []
    prefix, names = KNOWN[kind]
    prefix = evaluator.get('prefix') or prefix
    return [f'{prefix}/{name}' if prefix else name for name in names(evaluator)]
