"""The command behind `tools/analysis_tools/analyze.py`."""

import argparse
from collections.abc import Sequence

from vitplug.commands import call
from vitplug.config.options import model_parser
from vitplug.errors.one_line import one_line_ends, status_of_skipped
from vitplug.files.readers import refuse_code_in_files
from vitplug.runs.checks.model import model_config
from vitplug.tables import format_table

from . import results
from .attention import FEW
from .drawing import FORMATS
from .edits import EDITS
from .estimators import ESTIMATORS, UNBIASED
from .features import CKA, OfGroups
from .figures import FIGURES
from .images import find_images
from .measure import Measure
from .measures_by_name import ALL, MEASURES, by_all_estimators, choose, choose_edits, choose_figures
from .observed import BASELINE, MODEL
from .options import add_baseline, add_images, add_settings
from .plan import LeftOut, check_images, check_named, finished, identity, plan
from .run import run
from .store import check_folder, open_store
from .subject import Subject

IMAGES = 128
# Each head of each block takes two runs of the model.
EDITED = 16
GOES_ON = 'what is measured so far is kept, and the same command goes on'


def main(argv: Sequence[str] | None = None) -> int:
    """Measures a trained model over images; the exit status says if all images could be used."""
    args = _parsed(argv)
    with one_line_ends(args.out, GOES_ON):
        measures, named_by = _chosen(args)
        check_folder(args.out)
        cfg = model_config(args.config, args.checkpoint, 'CHECKPOINT', args.cfg_options)
        named = [(MODEL, cfg, args.checkpoint)]
        if args.baseline:
            config, checkpoint = args.baseline
            named.append((BASELINE, model_config(config, checkpoint, '--baseline'), checkpoint))
        refuse_code_in_files()
        paths = find_images(cfg, args.images, args.num)
        subjects = [Subject.read(*one, args.device, args.allow_changes, args.blocks) for one in named]
        _check_blocks(args.blocks, subjects)
        usable, skipped = check_images(subjects, paths)
        check_named(measures, subjects, named_by)
        with open_store(args.out, identity(subjects, usable)) as store:
            jobs, left_out = plan(measures, subjects, store)
            _check_cka(args.cka, [job.measure for job in jobs], left_out)
            _say(left_out)
            run(jobs, subjects, usable, store)
            findings = results.results_of([*jobs, *finished(by_all_estimators(), jobs, subjects, store)])
            images = dict(where=args.images, number=len(usable), files=list(map(str, usable)), skipped=skipped)
            command = call('analyze', argv)
            pictures = results.write(args.out, findings, subjects, images, left_out, command, args.format)
    print(results.table(findings))
    print(f'{len(usable)} images; {len(pictures)} pictures, {results.JSON} and {results.CSV} in {args.out}')
    return status_of_skipped(len(skipped), len(paths), 'images')


def _chosen(args: argparse.Namespace) -> tuple[Sequence[Measure], str]:
    """The measures, and the option that names them; '' if none does."""
    if args.figure:
        return choose_figures(args.figure), '--figure'
    if args.edit:
        return choose_edits(args.edit), '--edit'
    return choose(args.measures, args.cka), '--measures' if args.measures != ALL else ''


def _check_cka(name: str, measures: Sequence[Measure], left_out: LeftOut) -> None:
    """Checks that an estimator that was asked for is used.

    Raises:
        ValueError: If no measure of CKA applies; says why.
    """
    if name != UNBIASED.name and not any(isinstance(measure, OfGroups) for measure in measures):
        raise ValueError(f'--cka {name}: does not apply: {left_out[CKA(ESTIMATORS[name]).name][MODEL]}')


def _check_blocks(pattern: str, subjects: Sequence[Subject]) -> None:
    """Checks that named blocks are of some model.

    Raises:
        ValueError: If all backbones are vitplug's.
    """
    if pattern and all(subject.is_plugged for subject in subjects):
        raise ValueError(
            f"--blocks {pattern}: is for backbones that are not vitplug's; these are "
            + ' and '.join(subject.about for subject in subjects)
        )


def _say(left_out: LeftOut) -> None:
    for measure, reasons in left_out.items():
        for label, reason in reasons.items():
            print(f'left out: {measure} of the {label}: {reason}')


class _List(argparse.Action):
    """`--list`: prints the measures and ends, whatever else is there."""

    def __call__(self, parser, namespace, values, option_string=None):
        lines = [('measure', 'unit', 'source', 'needs', 'definition')]
        lines += [(m.name, m.unit, m.source, m.needs, m.definition) for m in by_all_estimators()]
        print(format_table(lines))
        parser.exit()


def _parsed(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = _parser()
    args = parser.parse_args(argv)
    if (args.figure or args.edit) and args.cka != UNBIASED.name:
        what = 'figure' if args.figure else 'edit'
        parser.error(f'--cka {args.cka}: no {what} is of CKA; leave it out, or name --measures')
    args.measures = ALL if args.measures is None else args.measures
    if args.num is None:
        args.num = FEW if args.figure else EDITED if args.edit else IMAGES
    return args


def _parser() -> argparse.ArgumentParser:
    parser = model_parser(
        'analyze',
        'Measure what a trained model does: entropy, distance, similarity, receptive field and more, '
        'over images, with 95 % intervals and pictures. A second call goes on where the first one stopped.',
    )
    add_images(parser, num=None, default=f'{IMAGES}; {FEW} with --figure, {EDITED} with --edit')
    chosen = parser.add_mutually_exclusive_group()
    chosen.add_argument(
        '--measures',
        metavar='NAME,...',
        help=f'of {", ".join(MEASURES)} (default {ALL}: those that apply to the model and are not slow)',
    )
    chosen.add_argument(
        '--figure',
        metavar='NAME,...',
        help=f'figures of papers in place of measures, of {", ".join(FIGURES)}',
    )
    chosen.add_argument(
        '--edit',
        metavar='NAME,...',
        help=f'effects of edits of heads, tokens and blocks in place of measures, of {", ".join(EDITS)}',
    )
    parser.add_argument(
        '--cka',
        choices=ESTIMATORS,
        default=UNBIASED.name,
        help='how CKA is estimated: '
        + '; '.join(f'{name}: {estimator.words} ({estimator.source})' for name, estimator in ESTIMATORS.items())
        + f' (default {UNBIASED.name})',
    )
    add_baseline(parser)
    parser.add_argument(
        '--blocks',
        default='',
        metavar='PATTERN',
        help="names of the blocks in a backbone that is not vitplug's, such as 'layer*.*' of ResNet",
    )
    parser.add_argument('--format', choices=FORMATS, default=FORMATS[0], help=f'of the pictures (default {FORMATS[0]})')
    parser.add_argument('--list', action=_List, nargs=0, help='print the measures with their definitions, and end')
    add_settings(parser)
    return parser
