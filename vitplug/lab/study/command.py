"""The command `vitplug study`."""

import argparse
import inspect
from collections.abc import Sequence
from pathlib import Path

from vitplug.commands import add_device, call, command_parser
from vitplug.config.options import OptionsAction, add_allow_changes
from vitplug.errors import one_line_errors
from vitplug.tables import format_table

from . import report
from .catalogue import MEASURES, SCORE, advice_for, conditions_of, measures_of
from .conditions import CONDITIONS
from .engine import BANK, Study
from .figures import FORMATS
from .papers import PAPERS, Paper
from .runs import read_runs
from .store import Store

REPEATS = 5
GOES_ON = 'what is measured so far is kept, and the same command goes on'


def main(argv: Sequence[str] | None = None) -> int:
    """Measures models under conditions; the exit status says if all images could be used."""
    args = _parser().parse_args(argv)
    with one_line_errors(GOES_ON):
        for option, least, number in (('--num', 1, args.num), ('--repeats', 1, args.repeats), ('--bank', 2, args.bank)):
            if number is not None and number < least:
                raise ValueError(f'{option} {number}: expected at least {least}')
        paper = _paper(args)
        report.check_folder(args.out)
        conditions = conditions_of([*paper.conditions, *args.conditions], args.repeats)
        settings = dict(allow_changes=args.allow_changes, options=args.cfg_options)
        runs = read_runs(args.runs, args.images, args.num or paper.num, args.device, **settings)
        measures = measures_of([*paper.measures, *args.measures], runs[0].library)
        study = Study(Store(args.out), args.bank)
        study.evaluate(runs, conditions, measures)
        _check_measured(study, runs, conditions, measures)
        about = dict(command=call('study', argv), images=len(runs[0].images), choices=paper.choices)
        rows, pictures = report.write(study, args.out, runs, conditions, measures, paper.figures, args.format, **about)
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
    if study.skipped:
        print(f'error: {len(study.skipped)} of {len(runs[0].images)} images cannot be used; they are named above')
    return 1 if study.skipped else 0


def _paper(args: argparse.Namespace) -> Paper:
    """What a paper's part measures; without one, the score, if nothing else is named.

    Raises:
        ValueError: If there is no such part.
    """
    if args.paper is None:
        return Paper('', () if args.measures else (SCORE,))
    if args.paper not in PAPERS:
        raise ValueError(f'--paper {args.paper}: there is none: {advice_for(args.paper, PAPERS)}')
    return PAPERS[args.paper]


def _check_measured(study: Study, runs, conditions, measures) -> None:
    """Checks that something was measured.

    Raises:
        ValueError: If nothing was; says why.
    """
    pairs = ((study.changed(run, condition), condition) for condition in conditions for run in runs)
    if not any(run and study.units(run, condition, m) for run, condition in pairs for m in measures):
        reasons = '; '.join(dict.fromkeys(f'{key[2]}: {why}' for key, why in study.left_out.items()))
        raise ValueError(f'nothing can be measured: {reasons}')


class _List(argparse.Action):
    """`--list`: prints what there is and ends, whatever else is there."""

    def __call__(self, parser, namespace, values, option_string=None):
        measures = [(m.name, m.unit, m.source, m.definition) for m in MEASURES.values()]
        words = [(name, inspect.getdoc(function).partition('\n')[0]) for name, function in CONDITIONS.items()]
        papers = [(name, paper.title, ' '.join((*paper.measures, *paper.conditions))) for name, paper in PAPERS.items()]
        for headings, rows in (
            (('measure', 'unit', 'source', 'definition'), measures),
            (('condition', 'what it does'), words),
            (('paper', 'what it shows', 'measures and conditions'), papers),
        ):
            print(f'{format_table([headings, *rows])}\n')
        parser.exit()


def _parser() -> argparse.ArgumentParser:
    parser = command_parser(
        'study',
        'Measure what trained models do, under conditions: scores, attention, tokens, gradients, frozen features, with '
        '95 % intervals, paired differences and pictures. A second call goes on where the first one stopped.',
    )
    add = parser.add_argument
    add(
        'runs',
        nargs='+',
        metavar='RUN',
        help='CONFIG[:CHECKPOINT][=LABEL], timm:NAME[:FILE][=LABEL], or the folder of an ablation; others are compared '
        'with the first',
    )
    add('--paper', metavar='NAME', help=f"a paper's part, of {', '.join(PAPERS)}")
    measures = f'of {", ".join(MEASURES)}; {SCORE} (default) for the score of the task, all for those that are quick'
    add('--measures', nargs='+', default=[], metavar='M', help=f'{measures}, or module:function of your own')
    conditions = f'of {", ".join(CONDITIONS)}, with values, such as shift:right:15 or noise:5'
    add('--conditions', nargs='+', default=[], metavar='C', help=f'{conditions}, or module:function of your own')
    add('--images', default='test', metavar='DIR|SPLIT', help='a split, or images of a folder (default test)')
    add('--num', type=int, metavar='N', help='images, evenly spaced (default: all)')
    add('--repeats', type=int, default=REPEATS, metavar='N', help=f'of what is drawn (default {REPEATS})')
    bank = f'training images of knn, linear, dense_knn (default {BANK})'
    add('--bank', type=int, default=BANK, metavar='N', help=bank)
    add('--out', type=Path, required=True, metavar='DIR', help='folder of the results')
    add('--format', choices=FORMATS, default=FORMATS[0], help=f'of the pictures (default {FORMATS[0]})')
    add('--cfg-options', nargs='+', action=OptionsAction, metavar='KEY=VALUE', help='settings of all configs')
    add('--list', action=_List, nargs=0, help='print measures, conditions and papers, and end')
    add_allow_changes(parser)
    add_device(parser)
    return parser
