"""The command `vitplug study`."""

import argparse
from collections.abc import Sequence
from pathlib import Path

from vitplug.commands import add_device, call, command_parser
from vitplug.config.options import OptionsAction
from vitplug.errors import one_line_errors

from . import report
from .catalogue import CONDITIONS, MEASURES, PAPERS, SCORE, conditions_of, measures_of
from .engine import BANK, Study
from .runs import read_runs
from .store import Store

REPEATS = 5


def main(argv: Sequence[str] | None = None) -> int:
    """Measures models under conditions; the exit status says if all images could be used."""
    args = _parser().parse_args(argv)
    with one_line_errors():
        _check_folder(args.out)
        paper = dict(measures=[], conditions=[], num=None, figures={}, choices=[]) | PAPERS.get(args.paper, {})
        conditions = conditions_of([*paper['conditions'], *args.conditions], args.repeats)
        runs = read_runs(args.runs, args.images, args.num or paper['num'], args.device, options=args.cfg_options)
        measures = measures_of([*paper['measures'], *args.measures] or [SCORE], runs[0].library)
        study = Study(Store(args.out), runs, conditions, measures, args.bank)
        study.evaluate()
        about = dict(command=call('study', argv), images=len(runs[0].images), choices=paper['choices'])
        rows, pictures = report.write(study, args.out, **about, paper=paper['figures'])
    for (label, condition, measure), reason in study.left_out.items():
        print(f'left out: {measure} of {label}, {condition}: {reason}')
    for choice in paper['choices']:
        print(f'choice: {choice}')
    print(report.table(rows, paper['figures']))
    print(f'{len(runs[0].images)} images; {len(pictures)} pictures, {report.JSON} and {report.CSV} in {args.out}')
    if study.skipped:
        print(f'error: {len(study.skipped)} of {len(runs[0].images)} images cannot be used; they are named above')
    return 1 if study.skipped else 0


def _check_folder(folder: Path) -> None:
    """Raises a FileExistsError unless a folder is new, empty, or of a study."""
    there = [path.name for path in folder.iterdir()] if folder.is_dir() else []
    if folder.is_file() or (there and 'arrays' not in there):
        raise FileExistsError(f'--out: {folder} holds other files, or is one: choose a new or an empty folder')


def _parser() -> argparse.ArgumentParser:
    parser = command_parser(
        'study',
        'Measure what trained models do, under conditions: scores, attention, tokens, gradients, frozen features, with '
        '95 % intervals, paired differences and pictures. A second call goes on where the first one stopped.',
    )
    add = parser.add_argument
    runs = 'CONFIG[:CHECKPOINT][=LABEL], timm:NAME[:FILE][=LABEL], or an ablation; the first is the baseline'
    add('runs', nargs='+', metavar='RUN', help=runs)
    add('--paper', choices=PAPERS, metavar='NAME', help=f"a paper's part, of {', '.join(PAPERS)}")
    measures = f'of {", ".join(MEASURES)}; {SCORE} (default) for the score of the task'
    add('--measures', nargs='+', default=[], metavar='M', help=f'{measures}, or module:function of your own')
    conditions = f'of {", ".join(CONDITIONS)}, with values, such as shift:right:15 or noise:5'
    add('--conditions', nargs='+', default=[], metavar='C', help=f'{conditions}, or module:function of your own')
    add('--images', default='test', metavar='DIR|SPLIT', help='a split, or images of a folder (default test)')
    add('--num', type=int, metavar='N', help='images, evenly spaced (default: all)')
    add('--repeats', type=int, default=REPEATS, metavar='N', help=f'of what is drawn (default {REPEATS})')
    bank = f'training images of knn, linear, dense_knn (default {BANK})'
    add('--bank', type=int, default=BANK, metavar='N', help=bank)
    add('--out', type=Path, required=True, metavar='DIR', help='folder of the results')
    add('--cfg-options', nargs='+', action=OptionsAction, metavar='KEY=VALUE', help='settings of all configs')
    add_device(parser)
    return parser
