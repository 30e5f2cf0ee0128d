"""Metrics against the data that they are computed on."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from mmengine.registry import METRICS, MODELS

from vitplug.config.parts import as_list, find_parts
from vitplug.files.named import is_remote

from .accounts import read_coco
from .classes import match_categories
from .sources import Source


def check_metrics(cfg, split: str, sources: Sequence[Source]) -> None:
    """Checks that the evaluators of a split count with the data of its loader.

    Raises:
        ValueError: If pycocotools cannot count with a metric's file, it has other images or classes than the loader, or
            heads, metrics and data ignore different labels.
    """
    for metric in as_list(cfg.get(f'{split}_evaluator')):
        file = metric.get('ann_file') if str(metric.get('type')).endswith('CocoMetric') else None
        if file and not is_remote(file):
            _check_scored(file, f'{split}_evaluator.ann_file', sources)
    if cfg.default_scope == 'mmseg':
        _check_ignored(cfg, split, sources)


def _check_scored(file: str, setting: str, sources: Sequence[Source]) -> None:
    own = next((source.coco for source in sources if source.dataset.ann_file == file), None)
    content = own or read_coco(Path(file))
    if (own is None or len(sources) > 1) and sources and all(source.coco for source in sources):
        _compare(content, file, setting, sources)
    annotations = content.get('annotations', ())
    if wrong := [one['id'] for one in annotations if one['id'] < 1]:
        raise ValueError(
            f'{file}: annotation id {wrong[0]}: pycocotools matches whole numbers from 1 on only (0 counts as no '
            f'match, {len(wrong)} of {len(annotations)} are wrong): number the annotations from 1'
        )


def _compare(content: Mapping, file: str, setting: str, sources: Sequence[Source]) -> None:
    """Compares the images and categories of a metric's file with those of the loader."""
    ours = {image['id']: image['file_name'] for source in sources for image in source.coco['images']}
    theirs = {image['id']: image['file_name'] for image in content['images']}
    if differing := [number for number, name in ours.items() if theirs.get(number) != name]:
        number = differing[0]
        raise ValueError(
            f'{setting} = {file!r}: image {number} is {theirs.get(number, "missing")} there and {ours[number]} in the '
            f'data of the loader ({len(differing)} of {len(ours)} differ): name the file of the loader'
        )
    for source in sources:
        match_categories(source.classes, content, file, source.path)


def _check_ignored(cfg, split: str, sources: Sequence[Source]) -> None:
    """Checks that heads, metrics and data ignore the same label."""
    evaluators = as_list(cfg.get(f'{split}_evaluator'))
    parts = [
        *find_parts(cfg.get('model') or {}, 'model', MODELS, cfg.default_scope),
        *find_parts(evaluators, f'{split}_evaluator', METRICS, cfg.default_scope),
    ]
    kinds = ('BaseDecodeHead', 'IoUMetric')
    values = {f'{part.path}.ignore_index': part.get('ignore_index') for part in parts if part.is_a(*kinds)}
    values |= {f'{source.path}.ignore_index': getattr(source.dataset, 'ignore_index', None) for source in sources}
    known = {place: value for place, value in values.items() if value is not None}
    if len({*known.values()}) > 1:
        said = ', '.join(f'{place} = {value}' for place, value in known.items())
        raise ValueError(f'{said}: head, metric and data ignore different labels: set all to that of the label maps')
