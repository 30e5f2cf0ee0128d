"""Looks at every file of a config's data before a training does: behind `tools/misc/check_dataset.py`."""

import argparse
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from multiprocessing.pool import ThreadPool
from pathlib import Path
from typing import NamedTuple

import cv2
import numpy as np
from mmengine.config import Config
from mmengine.registry import DATASETS, init_default_scope
from PIL import Image, UnidentifiedImageError
from tqdm import tqdm

from vitplug.config.options import OptionsAction, config_parser
from vitplug.config.parts import loader_leaves
from vitplug.config.reading import read_config
from vitplug.config.text import printable
from vitplug.files.orientation import header_of, misplaced, remedy, turned_formats
from vitplug.files.readers import refuse_code_in_files
from vitplug.tables import format_table
from vitplug.tasks import check_scope

from .checks.accounts import loaded_size, said
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

    Yields:
        Findings: unreadable, of another size, or almost black as loaded.
    """
    try:
        with Image.open(path) as image:
            image.load()
            header = header_of(image)
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
    turns = header.format in turned_formats([load] if load else ())
    size = header.loaded_size(turns)
    if annotated and size != tuple(annotated):
        kind = 'image of another size than annotated'
        if misplaced(header, annotated, turns):
            kind = f'annotations on other pixels than those that are loaded: {remedy(turns)}'
        yield Finding(ERROR, path, kind, f'{said(size)} as loaded, annotated as {said(annotated)}')


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


@dataclass
class Seen:
    """What is in a split.

    Attributes:
        split: Its name.
        classes: Names of the classes; numbers where they have none.
        images: Number of samples.
        labels: Number of objects of each class, or of images that have it.
        has_objects: Whether objects are annotated, not whole images or pixels.
        sizes: Width and height of each image that can be read, as loaded.
    """

    split: str
    classes: list[str] = field(default_factory=list)
    images: int = 0
    labels: Counter = field(default_factory=Counter)
    has_objects: bool = False
    sizes: list[tuple[int, int]] = field(default_factory=list)

    def row(self) -> tuple[str, ...]:
        """Its line of the table."""
        objects = f'{self.labels.total():,}' if self.has_objects else '-'
        classes = f'{len(self.labels)} of {len(self.classes)}' if self.classes else str(len(self.labels) or '-')
        sides = [(min(side), int(np.median(side)), max(side)) for side in zip(*self.sizes, strict=True)]
        ranges = [str(low) if low == high else f'{low}, {middle}, {high}' for low, middle, high in sides]
        return self.split, f'{self.images:,}', objects, classes, *(ranges or ('-', '-'))

    def missing(self) -> list[str]:
        """The classes of which there is nothing."""
        return [name for label, name in enumerate(self.classes) if self.labels and label not in self.labels]


class Sample(NamedTuple):
    """What was found in a sample: findings, the image's width and height as loaded, and labels."""

    findings: list[Finding]
    size: tuple[int, int] | None
    labels: Collection[int]


def inspect_sample(dataset, num_classes: int | None, index: int) -> Sample:
    """Inspects the files of a sample and, if they are sound, makes it as training does."""
    info, findings = dataset.get_data_info(index), []
    transforms = getattr(getattr(dataset, 'pipeline', None), 'transforms', ())
    load = next((step for step in transforms if type(step).__name__ == 'LoadImageFromFile'), None)
    path, labels = info.get('img_path'), labels_of(info)
    size = loaded_size(Path(path), turned_formats(transforms)) if path else np.shape(info.get('img'))[1::-1] or None
    annotated = (info['width'], info['height']) if info.get('width') and info.get('height') else None
    if info.get('seg_map_path'):
        findings, labels = inspect_labels(info['seg_map_path'], num_classes, info)
        annotated = loaded_size(Path(info['seg_map_path']), ())
    if path:
        findings += inspect_image(path, annotated, load)
    if not findings:
        try:
            if dataset.prepare_data(index) is None:
                findings = [Finding(NOTE, str(path or f'sample {index}'), 'left out by the pipeline for another one')]
        except Exception as error:  # transforms of any kind
            findings = [Finding(ERROR, str(path or f'sample {index}'), 'the pipeline fails', one_line(error))]
    return Sample(findings, size, labels)


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


def inspect_split(cfg: Config, seen: Seen, num_threads: int) -> Iterator[Finding]:
    """Inspects the data sets of a split, and counts what is in it, with a progress bar on stderr."""
    for _, settings in loader_leaves(cfg, seen.split):
        where = f'{seen.split}_dataloader ({str(settings.get("type")).rpartition(".")[2]})'
        try:
            dataset = DATASETS.build(settings)
            dataset.full_init()
        except Exception as error:  # data sets of any kind
            yield Finding(ERROR, where, 'the data set cannot be built', one_line(error))
            continue
        if not hasattr(dataset, 'get_data_info'):
            yield Finding(NOTE, where, 'the data set does not tell its files: only its annotations were looked at')
            continue
        seen.classes = list(map(str, (dataset.metainfo or {}).get('classes') or range(count_of_model(cfg) or 0)))
        inspect = partial(inspect_sample, dataset, len(seen.classes) or None)
        bar = dict(desc=f'{seen.split} ({len(dataset)} samples)', total=len(dataset), mininterval=1.0, disable=None)
        # Threads, for decoding leaves Python's lock alone, and forked processes would inherit torch's locks.
        with ThreadPool(num_threads) as pool:
            for sample in tqdm(pool.imap(inspect, range(len(dataset)), chunksize=16), unit='sample', **bar):
                yield from sample.findings
                seen.images += 1
                seen.labels.update(sample.labels)
                seen.sizes += [sample.size] if sample.size else []
        seen.has_objects |= len(dataset) > 0 and 'instances' in dataset.get_data_info(0)


# --- the report ---


def table_lines(splits: Sequence[Seen]) -> Iterator[str]:
    """The splits that have samples as a table, then the classes of which there is nothing."""
    splits = [seen for seen in splits if seen.images]
    if not splits:
        return
    headings = ('split', 'images', 'objects', 'classes', 'width: min, median, max', 'height: min, median, max')
    yield from format_table([headings, *(seen.row() for seen in splits)], numeric=(1, 2)).splitlines()
    for seen in splits:
        if missing := seen.missing():
            yield f'nothing in {seen.split} of the classes {listed(missing)}'
    yield ''


def report_lines(findings: Sequence[Finding]) -> Iterator[str]:
    """The findings by kind, errors first and the most frequent first: every error, and a few examples of a note."""
    by_kind = defaultdict(list)
    for finding in findings:
        by_kind[finding.severity, finding.kind].append(finding)
    for (severity, kind), alike in sorted(by_kind.items(), key=lambda item: (item[0][0] != ERROR, -len(item[1]))):
        yield f'{severity}  {len(alike)} x {kind}'
        for finding in alike if severity == ERROR else alike[:SHOWN_NOTES]:
            detail = (
                finding.detail if len(finding.detail) <= LONGEST_DETAIL else f'{finding.detail[:LONGEST_DETAIL]} ...'
            )
            yield f'         {finding.where}' + (f' ({detail})' if detail else '')
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
        refuse_code_in_files()
        init_default_scope(cfg.default_scope)
    except (ValueError, OSError, ImportError) as error:
        print(printable(f'error: {" ".join(str(error).split())}'), file=sys.stderr)
        return 2
    findings, splits = list(inspect_settings(cfg, args.splits)), [Seen(split) for split in args.splits]
    for seen in splits:
        findings.extend(inspect_split(cfg, seen, args.workers))
    print('\n'.join(map(printable, (*table_lines(splits), *report_lines(findings)))))
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
