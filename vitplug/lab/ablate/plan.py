"""What an ablation compares: configs, each as it is or with each of some texts of plugs; and by which metrics."""

import itertools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from mmengine.config import Config
from mmengine.hooks import CheckpointHook

from vitplug.config.parts import as_list
from vitplug.config.reading import PLUGS_KEY, read_config
from vitplug.plugs.text import label_of

# The main metric of an evaluator, by its type.
MAIN = {'Accuracy': 'accuracy/top1', 'IoUMetric': 'mIoU', 'CocoMetric': 'coco/bbox_mAP'}
MASKS = 'coco/segm_mAP'


def make_variants(
    configs: Sequence[str], plugs: Sequence[str] = (), names: Sequence[str] = (), options: Mapping[str, Any] = {}
) -> dict[str, Config]:
    """The configs of all variants, without seeds: those of the first config come first.

    Args:
        configs: Files, or names in installed packages.
        plugs: Texts of plugs, of which each makes a variant of each config; without them a config is a variant.
        names: What tables and pictures call the variants; their labels, too, where these would not be unique.
        options: Settings of all variants, by their dotted names.

    Returns:
        By the label of the variant: its plugs, or the name of its config, or both where there are several configs.

    Raises:
        FileNotFoundError: If there is no such config.
        ValueError: If two variants are called the same, or a config, a text or a setting is refused.
    """
    pairs = [*itertools.product(configs, plugs or [None])]
    labels = [_label(path, text, len(configs) > 1) for path, text in pairs]
    if names and len(names) != len(pairs):
        raise ValueError(f'--names: got {len(names)} for {len(pairs)} variants; name each of them: {"; ".join(labels)}')
    if names and len({*labels}) < len(labels):
        labels = [*names]
    for one in (labels, names):
        if repeated := [name for name in one if one.count(name) > 1]:
            raise ValueError(f'two variants are called {repeated[0]!r}: leave one out, or tell them apart by --names')
    settings = (options if text is None else {**options, PLUGS_KEY: text} for _, text in pairs)
    return {label: read_config(path, own) for label, (path, _), own in zip(labels, pairs, settings, strict=True)}


def _label(path: str, text: str | None, has_others: bool) -> str:
    if text is None:
        return Path(path).stem
    return f'{label_of(text)}, {Path(path).stem}' if has_others else label_of(text)


def main_metric(cfg: Config) -> str:
    """The main metric of a config's validation: that of its first evaluator.

    Raises:
        ValueError: If none is known.
    """
    first = as_list(cfg.val_evaluator)[0]
    kind = str(first.get('type')).rpartition('.')[2]
    if kind not in MAIN:
        raise ValueError(f'--metric: the metrics of {kind} are not known: name one')
    return MASKS if kind == 'CocoMetric' and 'segm' in as_list(first.get('metric')) else MAIN[kind]


def greater_is_better(metric: str, rule: str | None = None) -> bool:
    """Whether larger values of a metric are better, by the rule ``'greater'`` or ``'less'``.

    None is the rule that mmengine finds in the name, for the best checkpoint.

    Raises:
        ValueError: If the name does not say.
    """
    try:
        return CheckpointHook(save_best=metric, rule=rule).rules == ['greater']
    except ValueError as error:
        raise ValueError(f'--metric: the name {metric!r} does not say which values are better: add --rule') from error
