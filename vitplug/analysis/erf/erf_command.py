"""The command `tools/analysis_tools/erf.py`: effective receptive fields with fitted Gaussians."""

import argparse
from collections.abc import Sequence

from mmengine.config import Config

from vitplug.analysis.measures.reset import RESETS
from vitplug.analysis.study import plan
from vitplug.analysis.study.images import SPLITS, find_images
from vitplug.analysis.study.observed import BASELINE, MODEL
from vitplug.analysis.study.options import add_baseline, add_images, add_settings
from vitplug.analysis.study.places import ImagePlace
from vitplug.analysis.study.store import check_folder, open_store
from vitplug.analysis.study.subject import Subject
from vitplug.analysis.timm_models import TimmSubject
from vitplug.commands import call, command_parser
from vitplug.config.reading import CONFIG_HELP
from vitplug.errors.one_line import one_line_ends, status_of_skipped
from vitplug.files.named import check_weights
from vitplug.files.readers import refuse_code_in_files
from vitplug.runs.checks.model import model_config

from .fields import Cropping, fields_of
from .output import JSON, MAPS, PICTURE, table, write
from .results import Result
from .run import MEASURE, run

GOES_ON = 'the maps so far are kept, and the same command goes on'


def main(argv: Sequence[str] | None = None) -> int:
    """Measures effective receptive fields with Gaussians; the exit status says if all images could be used."""
    args = _parser().parse_args(argv)
    with one_line_ends(args.out, GOES_ON):
        _check(args)
        check_folder(args.out)
        subjects = _read_subjects(args)
        configs = [subject.cfg for subject in subjects if isinstance(subject, Subject)]
        if not configs and args.images in SPLITS:
            raise ValueError(f'--images {args.images}: --timm has no data set: name a folder of images')
        paths = find_images(configs[0] if configs else Config(), args.images, args.num)
        fields = [field for subject in subjects for field in fields_of(subject, args.reset)]
        usable, skipped = plan.check_images(subjects, paths)
        for subject in subjects:
            _check_sizes(subject)
        with open_store(args.out, _identity(subjects, usable, args.size)) as store:
            run(fields, subjects, usable, store)
            results = [Result.of(field, store, usable, not args.no_bounds) for field in fields]
            images = dict(
                size=args.size, where=args.images, number=len(usable), files=list(map(str, usable)), skipped=skipped
            )
            write(args.out, results, images, call('erf', argv))
    print(table(results))
    print(f'{len(usable)} images; {PICTURE}, {JSON} and {MAPS} in {args.out}')
    return status_of_skipped(len(skipped), len(paths), 'images')


def _read_subjects(args: argparse.Namespace) -> list[Subject | TimmSubject]:
    named = [] if args.timm else [(MODEL, args.config, args.model_checkpoint, 'CHECKPOINT', args.cfg_options)]
    if args.baseline:
        named.append((BASELINE, *args.baseline, '--baseline', None))
    configs = [
        (label, model_config(path, weights, option, given), weights) for label, path, weights, option, given in named
    ]
    refuse_code_in_files()
    subjects: list[Subject | TimmSubject] = []
    if args.timm:
        check_weights(args.checkpoint, '--checkpoint')
        subjects.append(TimmSubject.read(MODEL, args.timm, args.checkpoint, args.device))
    of_configs = [Subject.read(*one, args.device, args.allow_changes) for one in configs]
    if args.size:
        for subject in of_configs:
            subject.predictor = Cropping(subject.predictor, tuple(args.size))
    return subjects + of_configs


def _check(args: argparse.Namespace) -> None:
    """Checks that one model is named, and the size.

    Raises:
        ValueError: If none or several are, the size is empty, or an option is of no use; names it.
    """
    if args.timm and args.config:
        raise ValueError(f'--timm {args.timm} is the model: leave CONFIG and CHECKPOINT out')
    if args.checkpoint and not args.timm:
        raise ValueError('--checkpoint is that of --timm: name the one of a config after it, CONFIG CHECKPOINT')
    if args.timm and args.cfg_options:
        raise ValueError('--cfg-options and --plugs are for CONFIG, which --timm replaces: leave them out')
    if args.timm and args.allow_changes and not args.baseline:
        raise ValueError('--allow-changes: is for checkpoints of configs, and --timm has none: leave it out')
    if args.size and min(args.size) < 1:
        raise ValueError(f'--size {args.size[0]} {args.size[1]}: expected height and width in pixels')
    if args.size and args.timm and not args.baseline:
        raise ValueError("--size: timm's models get images of their own size: leave it out")
    if not args.timm and not args.model_checkpoint:
        raise ValueError('no model: name CONFIG and CHECKPOINT, or a model of timm by --timm NAME')


def _check_sizes(subject: Subject | TimmSubject) -> None:
    """Checks that all images of a model have one size.

    Raises:
        ValueError: If they differ.
    """
    sizes = sorted(set(subject.sizes))
    if len(sizes) > 1:
        shown = ', '.join(f'{height}x{width}' for height, width in sizes[:4])
        raise ValueError(
            f'the test pipeline of the {subject.label} gives images of {len(sizes)} sizes ({shown}): the receptive '
            f'field is a mean over images of one size; crop them first, by --size {sizes[-1][0]} {sizes[-1][1]}, say'
        )


def _identity(
    subjects: Sequence[Subject | TimmSubject], paths: Sequence[ImagePlace], size: Sequence[int] | None
) -> dict:
    """What the maps depend on; resets may be added by a later call."""
    of_configs = plan.identity([subject for subject in subjects if isinstance(subject, Subject)], paths)
    of_timm = {
        subject.label: dict(timm=subject.name, checkpoint=subject.sha256[:16])
        for subject in subjects
        if isinstance(subject, TimmSubject)
    }
    return dict(command=MEASURE, size=size) | of_configs | of_timm


def _parser() -> argparse.ArgumentParser:
    parser = command_parser(
        'erf',
        'Measure the effective receptive field of a model over images, and fit a Gaussian to it and to the '
        'position bias of each block. A second call goes on where the first one stopped.',
    )
    parser.add_argument('config', nargs='?', help=CONFIG_HELP)
    parser.add_argument('model_checkpoint', nargs='?', metavar='checkpoint', help='checkpoint file')
    parser.add_argument('--timm', metavar='NAME', help="a model of timm in the config's place")
    parser.add_argument(
        '--checkpoint', metavar='FILE', help='weights of the model of timm, with its names (default: drawn at random)'
    )
    add_images(parser, num=100)
    parser.add_argument(
        '--size',
        nargs=2,
        type=int,
        metavar=('HEIGHT', 'WIDTH'),
        help='crop images at their centre to this shape and resize them to it, before the test pipeline; for images of '
        'several sizes',
    )
    parser.add_argument(
        '--reset',
        nargs='+',
        default=[],
        choices=list(RESETS),
        metavar='KIND',
        help='also measure copies of the model without its learned positions: '
        + '; '.join(f'{name}: {kind.about}' for name, kind in RESETS.items()),
    )
    add_baseline(parser)
    parser.add_argument(
        '--no-bounds', action='store_true', help='fit negative volumes and centres outside of the map, too (the paper)'
    )
    add_settings(parser)
    return parser
