"""Looks at every file of a config's data before a training does: behind `tools/misc/check_dataset.py`."""

import argparse
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from multiprocessing.pool import ThreadPool
from pathlib import Path
from typing import Any

import cv2
import numpy as np
from mmengine.config import Config
from mmengine.registry import DATASETS, init_default_scope
from PIL import Image, UnidentifiedImageError
from tqdm import tqdm

from vitplug.config.options import OptionsAction, config_parser
from vitplug.config.parts import loader_leaves
from vitplug.config.reading import read_config
from vitplug.errors import printable
from vitplug.files.orientation import turned_formats
from vitplug.tasks import check_scope

from .checks.accounts import loaded_size, size_fault
from .checks.classes import class_complaints, count_of_model, listed
from .checks.data import check_split
from .checks.settings import long_schedules

ERROR, NOTE = 'error', 'note'
SHOWN_NOTES, LONGEST_DETAIL = 3, 200
IGNORED_LABEL = 255
# An image whose largest value is below this one, of 255, has lost its contrast.
DARK = 64


@dataclass(frozen=True)
class Finding:
    """One thing found.

    Attributes:
        severity: 'error' where training would refuse or replace the sample, 'note' where it is handled.
        where: The file or the setting.
        kind: Its kind, the same text for all similar findings.
        detail: More about this one.
    """

    severity: str
    where: str
    kind: str
    detail: str = ''


def one_line(error: Exception) -> str:
    """Type and message of an error on one line."""
    return f'{type(error).__name__}: {" ".join(str(error).split())}'


# --- single files ---


def inspect_image(
    path: str, annotated: tuple[int, int] | None = None, load: Callable[[dict], dict] | None = None
) -> Iterator[Finding]:
    """Decodes an image completely, more strictly than training does, which takes a truncated JPEG as it is.

    Formats that Pillow does not know are left to the pipeline.

    Args:
        path: The file.
        annotated: (width, height) that the annotations give, or those of its label map.
        load: The step of the config's pipeline that loads it.
    """
    try:
        with Image.open(path) as image:
            image.load()
    except UnidentifiedImageError:
        return
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
        yield Finding(ERROR, path, 'image cannot be read', one_line(error))
        return
    if load and _has_16_bits(path):
        largest = int(load(dict(img_path=path))['img'].max())
        if cv2.imread(path, cv2.IMREAD_UNCHANGED).max() > largest < DARK:
            kind = 'image of 16 bits a channel that is almost black as loaded: scale its values and save it with 8 bits'
            yield Finding(ERROR, path, kind, f'at most {largest} of 255')
    if fault := size_fault(Path(path), annotated, turned_formats([load] if load else ())):
        yield Finding(ERROR, path, 'image of another size than annotated', fault)


def _has_16_bits(path: str) -> bool:
    """Whether a PNG has 16 bits a channel, which Pillow does not tell of one in colours."""
    with open(path, 'rb') as file:
        begin = file.read(25)
    return begin.startswith(b'\x89PNG') and begin[24:25] == b'\x10'


def inspect_labels(path: str, num_classes: int | None, info: Mapping) -> tuple[list[Finding], set[int]]:
    """Findings on the values of a label map, and the classes in it.

    Args:
        path: The label map.
        num_classes: Number of classes, None if it is not known.
        info: mmseg's information on the sample: `reduce_zero_label` and `label_map`.
    """
    try:
        with Image.open(path) as image:
            values = np.asarray(image)
    except (OSError, SyntaxError, ValueError) as error:
        return [Finding(ERROR, path, 'label map cannot be read', one_line(error))], set()
    if values.ndim > 2:
        kind = f'label map of several channels: expected one channel of class indices, where {IGNORED_LABEL} is ignored'
        return [Finding(ERROR, path, kind, f'{values.shape[2]} channels')], set()
    findings = []
    if values.max(initial=0) > IGNORED_LABEL:
        kind = f'label map with labels above {IGNORED_LABEL}, which LoadAnnotations cuts to 8 bits'
        findings.append(Finding(ERROR, path, kind, f'{values.max()}'))
    labels = {int(value): _label(int(value), info) for value in np.unique(values)}
    wrong = [value for value, label in labels.items() if num_classes and num_classes <= label != IGNORED_LABEL]
    if wrong:
        kind = f'label map with labels outside of the {num_classes} classes'
        findings.append(Finding(ERROR, path, kind, f'{wrong[:8]}'))
    return findings, {label for value, label in labels.items() if value not in wrong and label != IGNORED_LABEL}


def _label(value: int, info: Mapping) -> int:
    """The label that a pixel's value becomes; the order of both steps is that of mmseg's `LoadAnnotations`."""
    if info.get('reduce_zero_label'):
        value = IGNORED_LABEL if value in (0, IGNORED_LABEL) else value - 1
    return (info.get('label_map') or {}).get(value, value)


# --- whole data sets ---


def inspect_sample(dataset: Any, num_classes: int | None, index: int) -> tuple[list[Finding], list[int]]:
    """Inspects the files of a sample and, if they are sound, makes it as training does; its findings and its labels."""
    info, findings, annotated = dataset.get_data_info(index), [], None
    transforms = getattr(getattr(dataset, 'pipeline', None), 'transforms', ())
    path, labels = info.get('img_path'), labels_of(info)
    if info.get('width') and info.get('height'):
        annotated = info['width'], info['height']
    if info.get('seg_map_path'):
        findings, found = inspect_labels(info['seg_map_path'], num_classes, info)
        labels = sorted(found)
        annotated = loaded_size(Path(info['seg_map_path']), ())
    if path:
        load = next((step for step in transforms if type(step).__name__ == 'LoadImageFromFile'), None)
        findings += inspect_image(path, annotated, load)
    where = str(path or f'sample {index}')
    if not findings:
        try:
            if dataset.prepare_data(index) is None:
                findings = [Finding(NOTE, where, 'left out by the pipeline for another one')]
        except Exception as error:  # transforms of any kind
            findings = [Finding(ERROR, where, 'the pipeline fails', one_line(error))]
    return findings, labels


def labels_of(info: Mapping) -> list[int]:
    """The classes that a data set tells of the objects of a sample, or of its image."""
    if 'instances' in info:
        return [int(one['bbox_label']) for one in info['instances'] if not one.get('ignore_flag')]
    label = info.get('gt_label')
    return [] if label is None else [int(value) for value in np.ravel(label)]


def inspect_settings(cfg: Config, splits: Sequence[str]) -> Iterator[Finding]:
    """Compares what a config says with the files it names and with itself, as a training does before it begins."""
    classes_by_path = {}
    for split in splits:
        try:
            classes, remarks = check_split(cfg, split)
        except (ValueError, OSError) as error:
            yield Finding(ERROR, f'{split}_dataloader', 'missing or unmatched files or classes', one_line(error))
            continue
        classes_by_path |= classes
        yield from (Finding(NOTE, f'{split}_dataloader', 'left out', remark) for remark in remarks)
    for setting, reason in class_complaints(cfg, classes_by_path):
        kind = f'settings for other classes than the {len(next(iter(classes_by_path.values())))} of the data'
        yield Finding(ERROR, setting, kind, reason)
    for remark in long_schedules(cfg):
        yield Finding(NOTE, 'param_scheduler', 'schedule that does not come to its end', remark)


def inspect_split(cfg: Config, split: str, num_threads: int, seen: list[str]) -> Iterator[Finding]:
    """Inspects the data sets of a split, with a progress bar on stderr; adds lines on what is in them to ``seen``."""
    for path, settings in loader_leaves(cfg, split):
        try:
            dataset = DATASETS.build(settings)
            dataset.full_init()
        except Exception as error:  # data sets of any kind
            yield Finding(ERROR, path, 'the data set cannot be built', one_line(error))
            continue
        if not hasattr(dataset, 'get_data_info'):
            yield Finding(NOTE, path, 'the data set does not tell its files: only its annotations were looked at')
            continue
        classes = list(map(str, (dataset.metainfo or {}).get('classes') or range(count_of_model(cfg) or 0)))
        counts: Counter = Counter()
        inspect, number = partial(inspect_sample, dataset, len(classes) or None), len(dataset)
        # Threads, for decoding leaves Python's lock alone, and forked processes would inherit torch's locks.
        with ThreadPool(num_threads) as pool:
            samples = pool.imap(inspect, range(number), chunksize=16)
            for findings, labels in tqdm(samples, desc=split, total=number, mininterval=1.0, disable=None):
                yield from findings
                counts.update(labels)
        of_objects = f', {counts.total():,} objects' if number and 'instances' in dataset.get_data_info(0) else ''
        of_classes = f', {len(counts)} of {len(classes)} classes' if counts and classes else ''
        seen.append(f'{split}: {number:,} images{of_objects}{of_classes}')
        if missing := [name for label, name in enumerate(classes) if counts and label not in counts]:
            seen.append(f'nothing in {split} of the classes {listed(missing)}')


# --- the command ---


def report_lines(findings: Sequence[Finding]) -> Iterator[str]:
    """The findings by kind, errors first and the most frequent first: every error, and a few examples of a note."""
    by_kind = defaultdict(list)
    for finding in findings:
        by_kind[finding.severity, finding.kind].append(finding)
    for (severity, kind), alike in sorted(by_kind.items(), key=lambda item: (item[0][0] != ERROR, -len(item[1]))):
        yield f'{severity}  {len(alike)} x {kind}'
        for finding in alike if severity == ERROR else alike[:SHOWN_NOTES]:
            more = ' ...' if len(finding.detail) > LONGEST_DETAIL else ''
            detail = f' ({finding.detail[:LONGEST_DETAIL]}{more})' if finding.detail else ''
            yield f'         {finding.where}{detail}'
    errors = sum(finding.severity == ERROR for finding in findings)
    yield f'{errors} errors, {len(findings) - errors} notes'


def main(argv: Sequence[str] | None = None) -> int:
    """Checks the data of a config.

    Returns:
        Exit status: 0 without errors, 1 with errors, 2 if the config or the arguments are wrong.
    """
    args = _parser().parse_args(argv)
    try:
        if args.workers < 1:
            raise ValueError(f'--workers {args.workers}: expected at least 1')
        cfg = read_config(args.config, args.cfg_options)
        check_scope(cfg)
        init_default_scope(cfg.default_scope)
    except (ValueError, OSError, ImportError) as error:
        print(printable(f'error: {" ".join(str(error).split())}'), file=sys.stderr)
        return 2
    findings, seen = list(inspect_settings(cfg, args.splits)), []
    for split in args.splits:
        findings.extend(inspect_split(cfg, split, args.workers, seen))
    print('\n'.join(map(printable, (*seen, '', *report_lines(findings)))))
    return int(any(finding.severity == ERROR for finding in findings))


def _parser() -> argparse.ArgumentParser:
    parser = config_parser('check', 'Look at every image and annotation of a config before training.')
    parser.add_argument(
        '--splits', nargs='+', choices=('train', 'val', 'test'), default=('train', 'val'), help='default: train val'
    )
    parser.add_argument('--workers', type=int, default=1, metavar='N', help='threads (default 1)')
    parser.add_argument(
        '--cfg-options', nargs='+', action=OptionsAction, metavar='KEY=VALUE', help='settings that win over the config'
    )
    return parser
