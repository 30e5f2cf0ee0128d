"""The command behind ``make bench`` and ``tools/analysis_tools/benchmark.py``."""

import argparse
import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from math import inf
from pathlib import Path

import torch

from vitplug.commands import command_parser
from vitplug.config.paths import configs_folder
from vitplug.plugs.text import SHORT_NAMES, parse_plugs

from . import attention
from .measure import Timer, machine
from .report import as_text, compiled_as_text, draw, growth_as_text, save

DTYPES = {'fp32': torch.float32, 'bf16': torch.bfloat16, 'fp16': torch.float16}
PARTS = ('attention', 'models', 'plugs', 'hosts', 'profile', 'growth', 'tasks', 'compile')
# Parts with one table at the end; each result of the other parts is a table.
SUMMARIES = {'growth': growth_as_text, 'compile': compiled_as_text}


def parser() -> argparse.ArgumentParser:
    """The options."""
    options = command_parser('benchmark', 'Measure the cost of plugs. Needs an idle machine.')
    options.add_argument('--parts', nargs='+', choices=PARTS, help='default: all; without OpenMMLab only attention')
    options.add_argument(
        '--plugs',
        nargs='+',
        metavar='TEXT',
        help="plugs of the parts plugs (default: all) and growth (the five papers')",
    )
    options.add_argument(
        '--device',
        choices=('cpu', 'cuda'),
        default='cuda' if torch.cuda.is_available() else 'cpu',
        help='default: cuda where there is a GPU',
    )
    options.add_argument(
        '--dtype', choices=tuple(DTYPES), default='fp32', help='precision, by autocast for models; default fp32'
    )
    options.add_argument('--batch', type=int, default=8, help='batch size at 224 x 224; default 8')
    options.add_argument('--rounds', type=int, default=5, help='minimum number of rounds; default 5')
    options.add_argument('--seconds', type=float, default=60, help='minimum time of the rounds per table; default 60')
    options.add_argument('--threads', type=int, help="CPU threads; default torch's")
    options.add_argument('--out', type=Path, default=Path('work_dirs/bench'), help='folder; default work_dirs/bench')
    return options


def main(argv: Sequence[str] | None = None) -> None:
    """Measures, prints the tables, and writes ``bench.json`` and ``bench.png``."""
    options = parser()
    args = options.parse_args(argv)
    if args.rounds < 1 or args.batch < 1:
        options.error(f'--rounds {args.rounds} --batch {args.batch}: expected positive numbers')
    if not 0 <= args.seconds < inf:
        options.error(f'--seconds {args.seconds}: expected a number of at least 0')
    for text in args.plugs or ():
        try:
            parse_plugs(text, '--plugs')
        except ValueError as error:
            options.error(str(error))
    if args.device == 'cuda' and not torch.cuda.is_available():
        options.error('--device cuda: torch finds no GPU; use --device cpu')
    has_openmmlab = all(find_spec(name) for name in ('mmengine', 'mmcv', 'mmpretrain', 'mmdet', 'mmseg'))
    parts = args.parts or (PARTS if has_openmmlab else PARTS[:1])
    if not has_openmmlab and set(parts) != {'attention'}:
        options.error(f'--parts {" ".join(parts)}: only attention can be measured without the OpenMMLab packages')
    if args.threads:
        torch.set_num_threads(args.threads)
    with quiet():
        measure_parts(args, parts)


@contextmanager
def quiet() -> Iterator[None]:
    """Keeps the log lines of models out of the tables."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        yield
    finally:
        logging.disable(before)


def measure_parts(args: argparse.Namespace, parts: Sequence[str]) -> None:
    """Measures some parts, prints their tables and writes the files."""
    where = machine(args.device)
    print(f'{", ".join(where.values())}; {args.dtype}; medians of {args.rounds} rounds or more\n', flush=True)
    measured = {kind: [] for kind in ('tables', *SUMMARIES)}
    for part in (part for part in PARTS if part in parts):
        for result in RUNNERS[part](args):
            if part in SUMMARIES:
                measured[part].append(result)
            else:
                measured['tables'].append(result)
                print(f'{as_text(result)}\n', flush=True)
            # Save after every result: a later failure loses nothing.
            save(args.out, where, **measured)
    for part, summarize in SUMMARIES.items():
        if measured[part]:
            print(f'{summarize(measured[part])}\n')
    for path in (save(args.out, where, **measured), *draw(args.out, where, measured['tables'])):
        print(f'written: {path}')


def _say(text: str) -> None:
    print(f'\r{text:<110}', end='\r', flush=True)


def _timer(args) -> Timer:
    return Timer(args.device, args.rounds, args.seconds, _say)


def _attention(args) -> Iterator:
    return attention.run(_timer(args), DTYPES[args.dtype], args.batch)


def _models(args) -> Iterator:
    from .models import Suite

    return Suite(_timer(args), DTYPES[args.dtype], args.batch).run()


def _plugs(args) -> Iterator:
    from .models import Suite

    return Suite(_timer(args), DTYPES[args.dtype], args.batch).of_texts(args.plugs or list(SHORT_NAMES))


def _hosts(args) -> Iterator:
    from .hosts import run

    return run(_timer(args), DTYPES[args.dtype], args.batch)


def _profile(args) -> Iterator:
    from .profile import run

    return run(args.device, DTYPES[args.dtype], _say)


def _growth(args) -> Iterator:
    from .growth import run

    return run(args.device, _say, args.plugs)


def _tasks(args) -> Iterator:
    from .tasks import run

    return run(_timer(args), configs_folder('vitplug'), args.out.absolute() / 'digits')


def _compile(args) -> Iterator:
    from .compilation import run

    return run(_timer(args), DTYPES[args.dtype], configs_folder('vitplug'), args.out.absolute() / 'digits')


RUNNERS = dict(zip(PARTS, (_attention, _models, _plugs, _hosts, _profile, _growth, _tasks, _compile), strict=True))
