"""The command `vitplug study`."""

import argparse
import inspect
from collections.abc import Sequence
from pathlib import Path

from vitplug.commands import add_device, call, command_parser
from vitplug.config.options import OptionsAction, add_allow_changes
from vitplug.errors.one_line import one_line_ends, status_of_skipped
from vitplug.files.readers import refuse_code_in_files
from vitplug.runs.saving.lock import locked
from vitplug.tables import format_table

from . import report
from .conditions import CONDITIONS, advice_for, conditions_of
from .engine import BANK, Study
from .figures import FORMATS
from .measures import MEASURES, SCORE, measures_of
from .papers import PAPERS, Paper
from .runs import read_runs
from .store import Store

REPEATS = 5
GOES_ON = 'what is measured so far is kept, and the same command goes on'


def main(argv: Sequence[str] | None = None) -> int:
    """Measures models under conditions; the exit status says if all images could be used."""
    args = _parser().parse_args(argv)
    with one_line_ends(GOES_ON):
        paper, num = _paper(args)
        report.check_folder(args.out)
        refuse_code_in_files()
        conditions = conditions_of([*paper.conditions, *args.conditions], args.repeats)
        settings = dict(allow_changes=args.allow_changes, options=args.cfg_options)
        runs = read_runs(args.runs, args.images, num, args.device, **settings)
        measures = measures_of([*paper.measures, *args.measures], runs[0].library)
        with locked(args.out / '.lock', 'study', '--out'):
            study = Study(Store(args.out), args.bank)
            study.evaluate(runs, conditions, measures)
            _check_measured(study, runs, conditions, measures)
            about = dict(command=call('study', argv), images=len(runs[0].images), choices=paper.choices)
            rows, pictures = report.write(
                study, args.out, runs, conditions, measures, paper.figures, args.format, **about
            )
    for (label, condition, measure), reason in study.left_out.items():
        print(f'left out: {measure} of {label}, {condition}: {reason}')
    for condition in conditions:
        if found := getattr(condition.change, 'epsilon', None):
            reached = condition.change.reached
            print(f'{condition.name}: epsilon {255 * found:.4g}/255, top-1 {reached:.2f} of {runs[0].label}')
    for choice in paper.choices:
        print(f'choice: {choice}')
    print(report.tables(rows, paper.figures))
    print(f'{len(runs[0].images)} images; {len(pictures)} pictures, {report.JSON} and {report.CSV} in {args.out}')
    return status_of_skipped(len(study.skipped), len(runs[0].images), 'images')


def _paper(args: argparse.Namespace) -> tuple[Paper, int | None]:
    """What a paper's part measures, and how many images.

    Raises:
        ValueError: If nothing is named to measure, or a number is wrong.
    """
    for option, least, number in (('--num', 1, args.num), ('--repeats', 1, args.repeats), ('--bank', 2, args.bank)):
        if number is not None and number < least:
            raise ValueError(f'{option} {number}: expected at least {least}')
    if args.paper is None:
        args.measures = args.measures or [SCORE]
        return Paper('', ()), args.num
    if args.paper not in PAPERS:
        raise ValueError(f'--paper {args.paper}: there is none: {advice_for(args.paper, PAPERS)}')
    return PAPERS[args.paper], args.num or PAPERS[args.paper].num


def _check_measured(study: Study, runs, conditions, measures) -> None:
    """Checks that something was measured.

    Raises:
        ValueError: If nothing was; says why.
    """
    for measure in measures:
        for condition in conditions:
            for run in runs:
                changed = study.changed(run, condition)
                if changed is not None and study.units(changed, condition, measure):
                    return
    reasons = '; '.join(dict.fromkeys(f'{key[2]}: {why}' for key, why in study.left_out.items()))
    raise ValueError(f'nothing can be measured: {reasons}')


class _List(argparse.Action):
    """`--list`: prints what there is and ends, whatever else is there."""

    def __call__(self, parser, namespace, values, option_string=None):
        print(
            format_table(
                [('measure', 'unit', 'source', 'definition')]
                + [(m.name, m.unit, m.source, m.definition) for m in MEASURES.values()]
            )
        )
        words = {
            name: (inspect.getdoc(function) or 'The images as they are.').partition('\n')[0]
            for name, function in CONDITIONS.items()
        }
        print(f'\n{format_table([("condition", "what it does"), *words.items()])}')
        papers = [(name, paper.title, ' '.join((*paper.measures, *paper.conditions))) for name, paper in PAPERS.items()]
        print(f'\n{format_table([("paper", "what it shows", "measures and conditions"), *papers])}')
        parser.exit()


def _parser() -> argparse.ArgumentParser:
    parser = command_parser(
        'study',
        'Measure what trained models do, under conditions: scores, attention, tokens, gradients, frozen features, with '
        '95 % intervals, paired differences and pictures. A second call goes on where the first one stopped.',
    )
    parser.add_argument(
        'runs',
        nargs='+',
        metavar='RUN',
        help='CONFIG[:CHECKPOINT][=LABEL], timm:NAME[:FILE][=LABEL], or the folder of an ablation; others are compared '
        'with the first',
    )
    parser.add_argument('--paper', metavar='NAME', help=f"a paper's part, of {', '.join(PAPERS)}")
    parser.add_argument(
        '--measures',
        nargs='+',
        default=[],
        metavar='M',
        help=f'of {", ".join(MEASURES)}; {SCORE} (default) for the score of the task, all for those that are quick, or '
        'module:function of your own',
    )
    parser.add_argument(
        '--conditions',
        nargs='+',
        default=[],
        metavar='C',
        help=f'of {", ".join(CONDITIONS)}, with values, such as shift:right:15 or noise:5, or module:function of '
        'your own',
    )
    parser.add_argument(
        '--images', default='test', metavar='DIR|SPLIT', help='a split, or images of a folder (default test)'
    )
    parser.add_argument('--num', type=int, metavar='N', help='images, evenly spaced (default: all)')
    parser.add_argument(
        '--repeats', type=int, default=REPEATS, metavar='N', help=f'of what is drawn (default {REPEATS})'
    )
    parser.add_argument(
        '--bank',
        type=int,
        default=BANK,
        metavar='N',
        help=f'training images of knn, linear, dense_knn (default {BANK})',
    )
    parser.add_argument('--out', type=Path, required=True, metavar='DIR', help='folder of the results')
    parser.add_argument('--format', choices=FORMATS, default=FORMATS[0], help=f'of the pictures (default {FORMATS[0]})')
    parser.add_argument(
        '--cfg-options', nargs='+', action=OptionsAction, metavar='KEY=VALUE', help='settings of all configs'
    )
    parser.add_argument('--list', action=_List, nargs=0, help='print measures, conditions and papers, and end')
    add_allow_changes(parser)
    add_device(parser)
    return parser
