"""Looks at every file of a config's data before a training does: behind `tools/misc/check_dataset.py`."""

import argparse
import json
import os
import sys
from collections import defaultdict
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import asdict, dataclass
from multiprocessing.pool import ThreadPool
from pathlib import Path

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
from vitplug.files.orientation import Header, header_of, misplaced, remedy, turned_formats
from vitplug.files.readers import refuse_code_in_files
from vitplug.tasks import check_scope
from vitplug.tasks.labels import CLASS_INDICES, IGNORED_LABEL

from .checks.classes import class_complaints, count_of_model
from .checks.data import check_split
from .checks.settings import long_schedules
from .dataset_table import Seen, labels_of, table_lines

SHOWN_EXAMPLES, LONGEST_DETAIL = 3, 200
ERROR, NOTE = 'error', 'note'
MISPLACED = 'annotations on other pixels than those that are loaded'
DOUBTFUL = 'image that EXIF turns, with annotations that fit its stored pixels, too'
# mmseg's and mmdet's LoadAnnotations cut label maps to 8 bits.
LARGEST_LABEL = 255
CUT = f'label map with labels above {LARGEST_LABEL}, which LoadAnnotations cuts to 8 bits'
# An image whose largest value is below this one, of 255, has lost its contrast.
DARK = 64

# The conversion of images that are not plain RGB, by PIL's names of modes.
CONVERTED = {
    '1': 'black and white: loaded as three equal channels',
    'L': 'grey: loaded as three equal channels',
    'LA': 'grey with transparency: the transparency is dropped',
    'P': 'palette: loaded as its colours',
    'RGBA': 'transparency: dropped',
    'I;16': '16 bit: cut to 8 bit',
    'I;16B': '16 bit: cut to 8 bit',
    'I': '32 bit: cut to 8 bit',
    'CMYK': 'CMYK: converted',
}


def one_line(error: Exception) -> str:
    """Type and message of an error on one line."""
    return f'{type(error).__name__}: {" ".join(str(error).split())}'


# --- single files ---


@dataclass(frozen=True)
class Finding:
    """One thing found.

    Attributes:
        severity: 'error' where training would refuse or replace the sample, 'note' where it is handled.
        where: The file.
        kind: Its kind, the same text for all similar findings.
        detail: More about this one.
    """

    severity: str
    where: str
    kind: str
    detail: str = ''


def inspect_image(
    path: str, annotated_size: tuple[int, int] | None = None, load: Callable[[dict], dict] | None = None
) -> Generator[Finding, None, tuple[int, int] | None]:
    """Decodes an image completely, more strictly than training does, which takes a truncated JPEG as it is.

    Args:
        path: The file.
        annotated_size: (width, height) that the annotations give.
        load: The loading step of the config's pipeline, which judges formats that Pillow does not know, and values.

    Yields:
        Findings: unreadable, truncated, other than RGB, turned by EXIF, of another size, or almost black as loaded.

    Returns:
        Width and height as loaded; None if it cannot be read.
    """
    header = yield from _opened(path, 'image', load)
    if header is None:
        return None
    turned = turned_formats([load] if load else ())
    if header.mode in CONVERTED:
        yield Finding(NOTE, path, f'image with {CONVERTED[header.mode]}')
    if load and _has_16_bits(path):
        largest = int(load(dict(img_path=path))['img'].max())
        if cv2.imread(path, cv2.IMREAD_UNCHANGED).max() > largest < DARK:
            kind = 'image of 16 bits a channel that is almost black as loaded: scale its values and save it with 8 bits'
            yield Finding(ERROR, path, kind, f'at most {largest} of 255')
    if annotated_size:
        yield from _compare_sizes(path, header, annotated_size, turned, 'image of another size than annotated')
    return header.loaded_size(header.format in turned)


def _has_16_bits(path: str) -> bool:
    """Whether a PNG has 16 bits a channel, which Pillow does not tell of one in colours."""
    with open(path, 'rb') as file:
        begin = file.read(25)
    return begin.startswith(b'\x89PNG') and begin[24:25] == b'\x10'


def _compare_sizes(
    path: str, header: Header, annotated: tuple[int, int], turned: Sequence[str], kind: str
) -> Iterator[Finding]:
    """Compares an image with the (width, height) that its annotations give; a difference is of the given kind."""
    turns = header.format in turned
    size, wrong = header.loaded_size(turns), misplaced(header, annotated, turns)
    if wrong:
        kind = f'{MISPLACED}: {remedy(turns)}'
    if wrong or size != tuple(annotated):
        detail = f'{size[0]} x {size[1]} as loaded, annotated as {annotated[0]} x {annotated[1]}'
        yield Finding(ERROR, path, kind, detail)
    elif wrong is None:
        kind = f'{DOUBTFUL}: if they were drawn on these, {remedy(turns)}'
        yield Finding(NOTE, path, kind, f'orientation {header.orientation}')


def inspect_map(
    path: str, image_path: str, num_classes: int | None, info: dict, transforms: Sequence = ()
) -> Generator[Finding, None, set[int]]:
    """Compares a label map with its image and with the classes.

    Args:
        path: The label map.
        image_path: Its image.
        num_classes: Number of classes, None if it is not known.
        info: mmseg's information on the sample: `reduce_zero_label` and `label_map`.
        transforms: The steps of the pipeline that loads both.

    Yields:
        Findings: unreadable, of colours, of another size, or with labels outside of the classes.

    Returns:
        The classes in it.
    """
    header = yield from _opened(path, 'label map')
    if header is None:
        return set()
    try:
        with Image.open(image_path) as image:
            image_header = header_of(image)
    except OSError:
        return set()  # found with the image
    kind = 'label map of another size than its image'
    yield from _compare_sizes(path, image_header, header.size, turned_formats(transforms), kind)
    with Image.open(path) as seg_map:
        values = np.asarray(seg_map)
    if values.ndim > 2:
        yield Finding(ERROR, path, f'label map of several channels: {CLASS_INDICES}', f'{values.shape[2]} channels')
        return set()
    if values.max(initial=0) > LARGEST_LABEL:
        yield Finding(ERROR, path, CUT, f'{values.max()}')
    labels = {value: _label(int(value), info) for value in np.unique(values)}
    wrong = [int(value) for value, label in labels.items() if not _is_label(label, num_classes)]
    if wrong:
        yield Finding(ERROR, path, f'label map with labels outside of the {num_classes} classes', f'{wrong[:8]}')
    return {label for value, label in labels.items() if value not in wrong and label != IGNORED_LABEL}


def _label(value: int, info: dict) -> int:
    """The label that a pixel's value becomes; the order of both steps is that of mmseg's `LoadAnnotations`."""
    if info.get('reduce_zero_label'):
        value = IGNORED_LABEL if value in (0, IGNORED_LABEL) else value - 1
    return (info.get('label_map') or {}).get(value, value)


def _is_label(label: int, num_classes: int | None) -> bool:
    return num_classes is None or label < num_classes or label == IGNORED_LABEL


def _opened(
    path: str, what: str, load: Callable[[dict], dict] | None = None
) -> Generator[Finding, None, Header | None]:
    """Decodes a picture; returns its header, or None after a finding."""
    if not os.path.isfile(path):  # False, and no error, in a folder that may not be looked into
        yield Finding(ERROR, path, f'{what} is missing')
        return None
    if not os.path.getsize(path):
        yield Finding(ERROR, path, f'{what} is empty', '0 bytes')
        return None
    try:
        with Image.open(path) as image:
            image.load()
            return header_of(image)
    except UnidentifiedImageError as error:
        fault = _fault_of(load, path) if load else one_line(error)
        if fault is None:
            return Header(load(dict(img_path=path))['img'].shape[1::-1], '', '', 1)
        yield Finding(ERROR, path, f'{what} is of no known format', fault)
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
        yield Finding(ERROR, path, f'{what} is damaged', one_line(error))
    return None


def _fault_of(load: Callable[[dict], dict], path: str) -> str | None:
    """Why the config's own loader does not read a file; None if it does."""
    try:
        load(dict(img_path=path))
    except Exception as error:  # whatever decoders raise
        return one_line(error)
    return None


# --- whole data sets ---


class SampleInspector:
    """Inspects the samples of a data set, by index, so that several threads can share the work.

    Args:
        dataset: The data set.
        num_classes: Number of classes where the data set names none; None if it is not known.

    Attributes:
        seen: Of each sample so far: the image's size, its labels, and whether they are those of objects.
    """

    def __init__(self, dataset, num_classes: int | None = None):
        self.dataset = dataset
        self.transforms = getattr(getattr(dataset, 'pipeline', None), 'transforms', ())
        self.load = next((step for step in self.transforms if type(step).__name__ == 'LoadImageFromFile'), None)
        self.classes = list(map(str, (dataset.metainfo or {}).get('classes') or range(num_classes or 0)))
        self.num_classes = len(self.classes) or None
        self.seen: list[tuple[tuple[int, int] | None, list[int], bool]] = []

    def __call__(self, index: int) -> list[Finding]:
        findings = list(self.inspect_files(index))
        if not any(finding.severity == ERROR for finding in findings):
            findings.extend(self.run_pipeline(index))
        return findings

    def inspect_files(self, index: int) -> Iterator[Finding]:
        """Inspects the image and, if there is one, the label map."""
        info = self.dataset.get_data_info(index)
        size = (info['width'], info['height']) if info.get('width') and info.get('height') else None
        read_size, (labels, are_objects) = np.shape(info.get('img'))[1::-1] or None, labels_of(info)
        if info.get('img_path'):
            read_size = yield from inspect_image(info['img_path'], size, self.load)
        if info.get('seg_map_path'):
            maps = info['seg_map_path'], info['img_path']
            labels = yield from inspect_map(*maps, self.num_classes, info, self.transforms)
        self.seen.append((read_size, list(labels), are_objects))

    def run_pipeline(self, index: int) -> Iterator[Finding]:
        """Makes the sample as training does."""
        where = str(self.dataset.get_data_info(index).get('img_path') or f'sample {index}')
        try:
            sample = self.dataset.prepare_data(index)
        except Exception as error:  # transforms of any kind
            yield Finding(ERROR, where, 'the pipeline fails', one_line(error))
            return
        if sample is None:
            yield Finding(NOTE, where, 'the pipeline leaves the sample out, and another one is taken')


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
    for complaint in class_complaints(cfg, classes_by_path):
        kind = f'settings for other classes than the {len(next(iter(classes_by_path.values())))} of the data'
        yield Finding(ERROR, complaint.setting, kind, complaint.reason)
    for remark in long_schedules(cfg):
        yield Finding(NOTE, 'param_scheduler', 'schedule that does not come to its end', remark)


def inspect_split(cfg: Config, split: str, num_threads: int) -> Generator[Finding, None, Seen]:
    """Inspects the data sets of a split, with a progress bar on stderr; returns what is in it."""
    seen = Seen(split)
    for _, settings in loader_leaves(cfg, split):
        kind = str(settings.get('type')).rpartition('.')[2]
        where = f'{split}_dataloader ({kind})'
        try:
            dataset = DATASETS.build(settings)
            dataset.full_init()
        except Exception as error:  # data sets of any kind
            yield Finding(ERROR, where, 'the data set cannot be built', one_line(error))
            continue
        if not hasattr(dataset, 'get_data_info'):
            yield Finding(NOTE, where, 'the data set does not tell its files: only its annotations were looked at')
            continue
        inspector = SampleInspector(dataset, count_of_model(cfg))
        yield from _inspect_samples(inspector, f'{split} ({len(dataset)} samples)', num_threads)
        seen.classes = inspector.classes
        for sample in inspector.seen:
            seen.add(*sample)
    return seen


def _inspect_samples(inspector: SampleInspector, title: str, num_threads: int) -> Iterator[Finding]:
    indices = range(len(inspector.dataset))
    bar = dict(desc=title, total=len(indices), unit='sample', mininterval=1.0, disable=None)
    if num_threads == 1:
        for findings in tqdm(map(inspector, indices), **bar):
            yield from findings
        return
    # Threads, for decoding leaves Python's lock alone, and forked processes would inherit torch's locks.
    with ThreadPool(num_threads) as pool:
        for findings in tqdm(pool.imap(inspector, indices, chunksize=16), **bar):
            yield from findings


# --- the report ---


def report_lines(findings: Sequence[Finding]) -> Iterator[str]:
    """The findings by kind, errors first and the most frequent first, with a few examples each."""
    by_kind = defaultdict(list)
    for finding in findings:
        by_kind[finding.severity, finding.kind].append(finding)
    for (severity, kind), alike in sorted(by_kind.items(), key=lambda item: (item[0][0] != ERROR, -len(item[1]))):
        yield f'{severity}  {len(alike)} x {kind}'
        for finding in alike[:SHOWN_EXAMPLES]:
            yield f'         {finding.where}' + (f' ({_shortened(finding.detail)})' if finding.detail else '')
    errors = sum(finding.severity == ERROR for finding in findings)
    yield f'{errors} errors, {len(findings) - errors} notes'


def _shortened(detail: str) -> str:
    return detail if len(detail) <= LONGEST_DETAIL else f'{detail[:LONGEST_DETAIL]} ...'


def main(argv: Sequence[str] | None = None) -> int:
    """Checks the data of a config.

    Returns:
        Exit status: 0 without errors, 1 with errors, 2 if the config or the arguments are wrong.
    """
    args = _parser().parse_args(argv)
    try:
        _check_arguments(args)
        cfg = read_config(args.config, args.cfg_options)
        check_scope(cfg)
        refuse_code_in_files()
        init_default_scope(cfg.default_scope)
    except (ValueError, OSError, ImportError) as error:
        print(printable(f'error: {" ".join(str(error).split())}'), file=sys.stderr)
        return 2
    findings = list(inspect_settings(cfg, args.splits))
    splits = []
    for split in args.splits:
        splits.append(_collect(inspect_split(cfg, split, args.workers), findings))
    print('\n'.join(map(printable, (*table_lines(splits), *report_lines(findings)))))
    if args.report:
        args.report.write_text(''.join(json.dumps(asdict(finding)) + '\n' for finding in findings))
        print(f'all of them: {args.report}')
    return int(any(finding.severity == ERROR for finding in findings))


def _collect(inspection: Generator[Finding, None, Seen], findings: list[Finding]) -> Seen:
    """Runs an inspection to its end, adding its findings to a list."""
    while True:
        try:
            findings.append(next(inspection))
        except StopIteration as end:
            return end.value


def _check_arguments(args: argparse.Namespace) -> None:
    if args.workers < 1:
        raise ValueError(f'--workers {args.workers}: expected at least 1')
    if args.report and args.report.exists():
        raise FileExistsError(f'--report: {args.report} exists and is not overwritten: choose another name')
    if args.report and not args.report.parent.is_dir():
        raise FileNotFoundError(f'--report: {args.report}: there is no folder {args.report.parent}; make it first')


def _parser() -> argparse.ArgumentParser:
    parser = config_parser('check', 'Look at every image and annotation of a config before training.')
    parser.add_argument(
        '--splits', nargs='+', choices=('train', 'val', 'test'), default=('train', 'val'), help='default: train val'
    )
    parser.add_argument('--workers', type=int, default=1, metavar='N', help='threads (default 1)')
    parser.add_argument('--report', type=Path, metavar='FILE', help='write every finding into this file, JSON by line')
    parser.add_argument(
        '--cfg-options', nargs='+', action=OptionsAction, metavar='KEY=VALUE', help='settings that win over the config'
    )
    return parser
