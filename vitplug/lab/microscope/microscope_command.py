"""The command behind `tools/analysis_tools/microscope.py`."""

import argparse
import time
from collections.abc import Iterable, Sequence
from pathlib import Path

from tqdm import tqdm

from vitplug.commands import add_device, call
from vitplug.config.options import add_allow_changes, add_options, model_parser
from vitplug.errors.one_line import one_line_ends
from vitplug.files.atomic import AtomicBackend
from vitplug.files.folders import IMAGE_SUFFIXES
from vitplug.files.named import check_new_file
from vitplug.files.readers import refuse_code_in_files
from vitplug.lab.microscope.observed import BASELINE, MODEL
from vitplug.lab.microscope.subject import Subject
from vitplug.progress import spoken
from vitplug.runs.checks.model import model_config
from vitplug.tasks import TASKS

from .data import observe
from .report import MAX_MB, Facts, check_max_mb, render, versions_of
from .tiles import OverBudget

PACKAGES = ('vitplug', 'torch', 'numpy', 'mmengine', 'mmcv', 'mmpretrain', 'mmseg', 'mmdet')


def main(argv: Sequence[str] | None = None) -> None:
    """Writes the report."""
    args = _parser().parse_args(argv)
    start = time.monotonic()
    with one_line_ends('nothing was written'):
        check_new_file(args.out, '--out', ('.html',))
        check_max_mb(args.max_mb, '--max-mb')
        _check_images(args.images)
        named = [(BASELINE, *args.baseline)] if args.baseline else []
        named.append((MODEL, args.config, args.checkpoint))
        subjects = _read_subjects(named, args)
        limit = int(args.max_mb * 1e6)
        facts = Facts(
            TASKS[subjects[-1].cfg.default_scope].name,
            call('microscope', argv),
            versions_of(PACKAGES),
            to_compare='--baseline CONFIG CHECKPOINT',
            to_edit='--edits',
            to_measure=f'`{call("study")}` measures many images, with intervals',
        )
        try:
            page = render(observe(subjects, args.images, limit, _progress, args.edits), facts, limit).encode()
        except OverBudget as error:
            raise ValueError(f'--max-mb {args.max_mb:g}: {error}') from error
        AtomicBackend().put(page, args.out)
    print(f'report: {args.out} ({len(page) / 1e6:.2f} MB, {spoken(time.monotonic() - start)})')


def _check_images(paths: Sequence[Path]) -> None:
    """Checks that images are files with the suffix of an image.

    Raises:
        FileNotFoundError or ValueError: Names the file.
    """
    for path in paths:
        if path.is_dir():
            raise ValueError(f'IMAGE: {path} is a folder: name a few images in it')
        if not path.is_file():
            raise FileNotFoundError(f'IMAGE: no such file: {path}')
        if path.suffix.lower() not in IMAGE_SUFFIXES:
            raise ValueError(f'IMAGE: {path} is no image, of {", ".join(IMAGE_SUFFIXES)}')


def _read_subjects(named: Sequence[tuple[str, str, str]], args: argparse.Namespace) -> list[Subject]:
    """Builds the models.

    Raises:
        ValueError: If they are of different tasks, or a backbone is none of vitplug's.
        CheckpointNotRead: If a checkpoint cannot be read.
    """
    configs = []
    for label, config, checkpoint in named:
        option = 'CHECKPOINT' if label == MODEL else '--baseline'
        configs.append(model_config(config, checkpoint, option, args.cfg_options))
    tasks = {cfg.default_scope: TASKS[cfg.default_scope].name for cfg in configs}
    if len(tasks) > 1:
        raise ValueError(f'--baseline: its task is {" and that of the model ".join(tasks.values())}: expected one task')
    refuse_code_in_files()
    return [
        Subject.read(label, cfg, checkpoint, args.device, args.allow_changes)
        for (label, _, checkpoint), cfg in zip(named, configs, strict=True)
    ]


def _progress(images: Iterable) -> Iterable:
    return tqdm(images, desc='looking', unit='image', mininterval=1.0, disable=None)


def _parser() -> argparse.ArgumentParser:
    parser = model_parser(
        'microscope',
        'Write one HTML file that shows what a model sees: attention of every token on the image, measures '
        'by depth and head, receptive field, and what differs from a baseline. It opens without a network.',
    )
    parser.add_argument('images', nargs='+', type=Path, metavar='IMAGE', help='image files, about four')
    parser.add_argument(
        '--baseline', nargs=2, metavar=('CONFIG', 'CHECKPOINT'), help='model to compare with, such as one without plugs'
    )
    parser.add_argument(
        '--edits', action='store_true', help='also run the models without each head: two runs for each head and image'
    )
    parser.add_argument(
        '--out', type=Path, default=Path('report.html'), metavar='HTML', help='a new file (default report.html)'
    )
    parser.add_argument(
        '--max-mb',
        type=float,
        default=MAX_MB,
        metavar='MB',
        help='largest file, in millions of bytes (default 5); fewer queries and keys are kept until it fits',
    )
    add_device(parser)
    add_options(parser, 'settings that win over the configs')
    add_allow_changes(parser)
    return parser
