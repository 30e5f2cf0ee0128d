"""The command `vitplug study`: measures, conditions and papers' parts by name."""

import argparse
import inspect
import os
import pkgutil
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import yaml

from vitplug.commands import add_device, call, command_parser
from vitplug.config.options import OptionsAction
from vitplug.config.parts import as_list
from vitplug.errors import one_line_errors

from . import conditions, report
from .conditions import CLEAN, Condition
from .engine import Study
from .measure import Measure
from .measures import attention, features, fields, grad_cam, learned, neighbours, scores
from .runs import read_runs
from .store import Store, digest

REPEATS, BANK = 5, 1000
GROUPS = scores, attention, features, fields, grad_cam, learned, neighbours
MEASURES: Mapping[str, Measure] = {
    measure.name: measure
    for group in GROUPS
    for value in vars(group).values()
    for measure in (value if isinstance(value, tuple) else [value])
    if isinstance(measure, Measure)
}
SCORE = 'score'
NAMES = 'shift shrink occlude noise shot blur corruption field fgsm reset edit imagenet-a imagenet-v2 real'
CONDITIONS: Mapping[str, Callable[..., Condition | list[Condition]]] = {
    name: getattr(conditions, name.replace('-', '_')) for name in NAMES.split()
}
#: The papers' tables and figures, see `papers.yml`.
PAPERS: Mapping[str, Mapping[str, Any]] = yaml.safe_load(Path(__file__).with_name('papers.yml').read_text())


def main(argv: Sequence[str] | None = None) -> int:
    """Measures models under conditions; the exit status says if all images could be used."""
    args = _parser().parse_args(argv)
    with one_line_errors():
        _check_folder(args.out)
        paper = dict(measures=[], conditions=[], num=None, figures={}, choices=[]) | PAPERS.get(args.paper, {})
        tests = conditions_of([*paper['conditions'], *args.conditions], args.repeats)
        runs = read_runs(args.runs, args.images, args.num or paper['num'], args.device, options=args.cfg_options)
        measures = measures_of([*paper['measures'], *args.measures] or [SCORE], runs[0].library)
        study = Study(Store(args.out), runs, tests, measures, args.bank)
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
        print(f'error: {len(study.skipped)} images cannot be used; they are named above')
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
    tests = f'of {", ".join(CONDITIONS)}, with values, such as shift:right:15 or noise:5'
    add('--conditions', nargs='+', default=[], metavar='C', help=f'{tests}, or module:function of your own')
    add('--images', default='test', metavar='DIR|SPLIT', help='a split, or images of a folder (default test)')
    add('--num', type=int, metavar='N', help='images, evenly spaced (default: all)')
    add('--repeats', type=int, default=REPEATS, metavar='N', help=f'of what is drawn (default {REPEATS})')
    bank = f'training images of knn, linear, dense_knn (default {BANK})'
    add('--bank', type=int, default=BANK, metavar='N', help=bank)
    add('--out', type=Path, required=True, metavar='DIR', help='folder of the results')
    add('--cfg-options', nargs='+', action=OptionsAction, metavar='KEY=VALUE', help='settings of all configs')
    add_device(parser)
    return parser


# --- by name ---


def measures_of(names: Sequence[str], library: str) -> list[Measure]:
    """The measures of a command line: names, ``score`` for that of the task, or one's own."""
    known = MEASURES | {SCORE: MEASURES[scores.SCORES_OF[library]]}
    chosen: list[Measure] = []
    for name in names:
        chosen += [known[name]] if name in known else own(name, '--measures', known)
    return list({measure.name: measure for measure in chosen}.values())


def conditions_of(texts: Sequence[str], repeats: int = 1) -> list[Condition]:
    """The conditions of a command line, clean images first: names with values (``shift:right:15``), or one's own."""
    chosen = [CLEAN]
    for text in texts:
        name, *values = text.split(':')
        if name not in CONDITIONS:
            chosen += own(text, '--conditions', CONDITIONS)
            continue
        make = CONDITIONS[name]
        is_drawn = 'seed' in inspect.signature(make).parameters
        try:
            for draw in [dict(seed=draw) for draw in range(repeats)] if is_drawn else [{}]:
                chosen += as_list(make(*values, **draw))
        except (TypeError, ValueError, ZeroDivisionError) as error:
            raise ValueError(f'--conditions {text}: {error}: {inspect.getdoc(make)}') from error
    return list({(condition.name, condition.repeat): condition for condition in chosen}.values())


def own(text: str, option: str, known: Iterable[str]) -> list:
    """What a user's ``module:name`` is or gives, also of the folder of the call; else a ValueError with the names.

    Their attribute ``code`` gets a hash of the module's source.
    """
    if os.getcwd() not in sys.path:  # a script's own folder is there, that of the call is not
        sys.path.insert(0, os.getcwd())
    try:
        made = pkgutil.resolve_name(text)
    except (ImportError, AttributeError, ValueError) as error:
        raise ValueError(f'{option} {text}: there is none ({error}): choose from {", ".join(known)}') from error
    code = digest(inspect.getsource(sys.modules[text.partition(':')[0]]))
    return [replace(one, code=code) for one in as_list(made() if callable(made) else made)]
