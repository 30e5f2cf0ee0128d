"""The command `tools/ablate.py`: a grid of plugs and settings with seeds, from one config."""

import argparse
import os
import platform
import sys
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import mmengine
import torch

from vitplug.analysis.config_diff import report_difference
from vitplug.commands import call, command_parser
from vitplug.config.options import OptionsAction
from vitplug.config.paths import config_file
from vitplug.config.reading import CONFIG_HELP
from vitplug.errors.full_disks import explained_writes
from vitplug.errors.one_line import SETTINGS, one_line_errors
from vitplug.errors.stops import Interrupted, NotWritten
from vitplug.files.named import check_config_file
from vitplug.progress import StatusLine, spoken
from vitplug.runs.metrics import choose_metric, greater_is_better
from vitplug.runs.saving.lock import locked
from vitplug.stacks import installed
from vitplug.tables import format_table

from .cells import Cell, finished_in, plan_cells, write_cell, write_json
from .checks import (
    check_folder,
    check_labels,
    check_metric,
    check_variants,
    chosen_margin,
    describe_change,
    read_earlier,
)
from .controller import Controller, Outcome, split_failed
from .earlier_report import restore_cells
from .engines import Engine, add_engine_options, make_engine
from .grid import (
    KEEP,
    SEEDS,
    GridFile,
    Variant,
    baseline_of,
    is_grid_file,
    make_variants,
    pairs,
    read_grid_file,
    read_grid_json,
    seeds_of,
)
from .probe import estimate
from .records import GRID
from .starts import Starts, check_starts, find_starts

LOCK = '.ablation.lock'
# Options that make a grid of a config; grid files and folders of grids say the same themselves.
OF_CONFIGS = ('plugs', 'seeds', 'metric', 'better', 'margin', 'baseline', 'cfg_options')
# What is done in place of a training, and the other options that have a meaning with it.
INSTEAD = dict(across=('out',), report=(), mechanisms=())
OF_TRAININGS = ('from_report', 'retry', 'retry_all')


def main(argv: Sequence[str] | None = None) -> None:
    """Runs a grid. A wrong grid ends in one line and status 2, a failed or waiting cell in 1, a signal in 75."""
    options = parser()
    args = options.parse_args(argv)
    line = StatusLine()
    with one_line_errors(*SETTINGS):
        check_options([name for name, value in vars(args).items() if value != options.get_default(name)])
        if args.across:
            return across([Path(args.grid), *args.across], args.out)
        if args.report:
            return report(Path(args.grid))
        if args.mechanisms is not None:
            return mechanisms(Path(args.grid), args.mechanisms)
        grid, out = read_grid_and_folder(args)
        check_folder(out, grid)
        with closing(make_engine(args, ['--unsafe-unpickle'] * args.unsafe_unpickle)) as engine:
            if args.dry_run:
                return dry_run(grid, out, args, engine, line)
            with locked(out / LOCK, 'ablation', '--out'):
                cells, waiting = prepare(grid, out, args, command_line(argv), line)
                again = choose_again(cells, args.retry, args.retry_all)
                with explained_writes(str(out)):
                    outcome = Controller(engine, read_earlier(out)['keep'], line).run(cells, again)
                    status = conclude(outcome, cells, waiting, out)
    sys.exit(status)


def parser() -> argparse.ArgumentParser:
    """The options."""
    options = command_parser(
        'ablate',
        'Train a grid of plugs and settings with several seeds, and compare them. Started again, the '
        'command goes on where it stopped.',
    )
    options.add_argument('grid', help=f'{CONFIG_HELP}; or a grid file, or the folder of a grid to go on with')
    options.add_argument(
        '--plugs', nargs='+', metavar='PLUGS', help="variants such as none cb gab gab+residual 'residual(alpha=0.25)'"
    )
    options.add_argument('--seeds', metavar='N', help="number of seeds, or a list such as '0,1,2' (default 3)")
    options.add_argument('--metric', metavar='NAME', help='metric to compare by (default: the main one of the config)')
    options.add_argument(
        '--better', choices=('greater', 'smaller'), help='which values of the metric are better (default: by its name)'
    )
    options.add_argument(
        '--margin', type=float, metavar='POINTS', help='largest difference that counts as none (default: by the metric)'
    )
    options.add_argument('--baseline', metavar='LABEL', help='variant to compare with (default none, or the first)')
    options.add_argument(
        '--cfg-options', nargs='+', action=OptionsAction, metavar='KEY=VALUE', help='settings of all variants'
    )
    options.add_argument(
        '--out', type=Path, metavar='DIR', help='folder (default work_dirs/ablation/<name of the grid>)'
    )
    options.add_argument('--dry-run', action='store_true', help='list cells, parameters and estimated hours, and stop')
    options.add_argument('--report', action='store_true', help='write the report of a folder, also while cells run')
    options.add_argument(
        '--across', nargs='+', type=Path, metavar='GRID', help='compare with other grids: their folders or report.json'
    )
    options.add_argument(
        '--mechanisms',
        nargs='?',
        type=int,
        const=128,
        metavar='N',
        help="measure on N images (default 128) whether the papers' mechanisms show in a folder's trained cells",
    )
    options.add_argument(
        '--from-report',
        type=Path,
        metavar='FILE',
        help="take the finished cells of the grid's report.json over, if its folder is lost",
    )
    options.add_argument('--retry', action='store_true', help='repeat failed cells, except those that would fail alike')
    options.add_argument('--retry-all', action='store_true', help='repeat all failed cells')
    options.add_argument(
        '--keep', choices=KEEP, help='checkpoints of finished cells to keep (default: as before in the folder, or none)'
    )
    options.add_argument(
        '--unsafe-unpickle',
        action='store_true',
        help='let checkpoints and other files that the config names run code of their own; only if you trust them',
    )
    add_engine_options(options)
    return options


def command_line(argv: Sequence[str] | None) -> str:
    """The command as it was typed."""
    return call('ablate', sys.argv[1:] if argv is None else argv)


# --- from the command line to cells ---


def check_options(given: Sequence[str]) -> None:
    """Checks that no option is given that has no effect beside another one.

    Raises:
        ValueError: If one is.
    """
    for mode, others in INSTEAD.items():
        idle = [name for name in given if name not in ('grid', mode, *others)]
        if mode in given and idle:
            raise ValueError(f'{as_options(idle)}: without effect beside {as_options([mode])}; leave it away')
    idle = [name for name in given if name in OF_TRAININGS]
    if 'dry_run' in given and idle:
        raise ValueError(f'{as_options(idle)}: without effect beside --dry-run; leave it away')


def as_options(names: Sequence[str]) -> str:
    """Options as they are typed."""
    return ', '.join(f'--{name.replace("_", "-")}' for name in names)


def read_grid_and_folder(args: argparse.Namespace) -> tuple[GridFile, Path]:
    """The grid and its folder.

    Raises:
        FileNotFoundError: If there is no such config, grid file or folder.
        ValueError: If the grid is wrong, or an option does not go with a grid file.
    """
    path = Path(args.grid)
    if path.is_dir() or (path.suffix == '.py' and is_grid_file(path)):
        given = [name for name in OF_CONFIGS if getattr(args, name) is not None]
        if given:
            raise ValueError(f'{as_options(given)}: {path} says this itself; change it there')
        if path.is_dir():
            if args.out not in (None, path):
                raise ValueError(f'--out {args.out}: {path} is the folder of the grid: leave --out away')
            return read_grid_json(path), path
        grid = read_grid_file(path)
    else:
        check_config_file(config_file(args.grid))
        earlier = read_earlier(args.out or default_folder(path)) or {}  # what is not typed again is as before
        before = earlier.get('baseline')
        grid = GridFile(
            base=args.grid,
            plugs=args.plugs or earlier.get('plugs'),
            seeds=seeds_of(args.seeds) if args.seeds else earlier.get('seeds') or seeds_of(str(SEEDS)),
            metric=args.metric,
            greater_is_better=None if args.better is None else args.better == 'greater',
            margin=args.margin,
            baseline=args.baseline or (before if before in (args.plugs or [before]) else None),
            options=args.cfg_options or {},
        )
    return grid, args.out or default_folder(path)


def default_folder(path: Path) -> Path:
    """The folder of a grid, unless one is chosen."""
    return Path('work_dirs', 'ablation', path.stem)


def checked(
    grid: GridFile, out: Path, args: argparse.Namespace, line: StatusLine
) -> tuple[GridFile, list[Variant], dict[str, int]]:
    """The grid with its metric, its variants and their parameters, all of them checked."""
    variants = make_variants(grid)
    metric = choose_metric(variants[0].cfg, grid.metric)
    better = greater_is_better(metric) if grid.greater_is_better is None else grid.greater_is_better
    check_folder(out, grid)
    check_metric(out, metric)
    check_labels(out, [variant.label for variant in variants])
    margin = chosen_margin(out, metric, grid.margin)
    starts = starts_of(grid, variants, out)
    plan_cells(variants, grid.seeds[:1], out, starts)
    check_starts(variants, starts or {})
    baseline = baseline_of(grid, [variant.label for variant in variants])
    parameters = check_variants(variants, metric, out, args.unsafe_unpickle, line.show)
    keep = args.keep or grid.keep or (read_earlier(out) or {}).get('keep') or KEEP[0]
    grid = replace(grid, metric=metric, baseline=baseline, greater_is_better=better, margin=margin, keep=keep)
    return grid, variants, parameters


def prepare(
    grid: GridFile, out: Path, args: argparse.Namespace, command: str, line: StatusLine
) -> tuple[list[Cell], int]:
    """Checks a grid, and writes `grid.json` and what each cell trains.

    Returns:
        The cells that can be trained, and how many wait for one that they start from.
    """
    grid, variants, _ = checked(grid, out, args, line)
    cells = plan_cells(variants, grid.seeds, out, starts_of(grid, variants, out))
    first = (read_earlier(out) or {}).get('command', command)
    if args.from_report:
        hashes = {(cell.variant.label, cell.seed): cell.hash for cell in cells}
        number = restore_cells(args.from_report, out, grid, [variant.label for variant in variants], hashes)
        print(f'{number} finished cells taken over from {args.from_report}')
        cells = plan_cells(variants, grid.seeds, out, starts_of(grid, variants, out))
    write_json(out / GRID, grid_content(grid, variants, first))
    changes = Changes(next(variant for variant in variants if variant.label == grid.baseline))
    for cell in cells:
        write_cell(cell, changes.of(cell.variant))
    known = {(cell.variant.label, cell.seed) for cell in cells} | finished_in(out)
    return cells, sum((variant.label, seed) not in known for variant, seed in pairs(variants, grid.seeds))


def starts_of(grid: GridFile, variants: Sequence[Variant], out: Path) -> Starts | None:
    """The checkpoints that the cells of a grid start from; None if it names no other grid."""
    if grid.start_from is None:
        return None
    folder = Path(os.path.normpath(out / grid.start_from))
    return find_starts(folder, [variant.label for variant in variants], grid.seeds)


def grid_content(grid: GridFile, variants: Sequence[Variant], command: str) -> dict:
    """The content of `grid.json`."""
    versions = dict(
        vitplug=installed(('vitplug',)).get('vitplug', 'not installed'),  # used from a clone
        torch=torch.__version__,
        mmengine=mmengine.__version__,
        python=platform.python_version(),
    )
    labels = [variant.label for variant in variants]
    return grid.as_json() | dict(labels=labels, command=command, versions=versions)


class Changes:
    """In what variants differ from the baseline: settings and their effects; each is told once."""

    def __init__(self, baseline: Variant):
        self.baseline, self.told = baseline, {baseline.label: ''}

    def of(self, variant: Variant) -> str:
        """The difference as text; empty for the baseline."""
        if variant.label not in self.told:
            try:
                text = report_difference(self.baseline.cfg, variant.cfg)
            except (ValueError, ImportError):  # a model that cannot be run on the meta device
                text = describe_change(self.baseline.cfg, variant.cfg)
            self.told[variant.label] = text
        return self.told[variant.label]


def choose_again(cells: Sequence[Cell], retry: bool, retry_all: bool) -> list[Cell]:
    """The failed cells that are repeated; says which are not."""
    repeatable, lasting = split_failed(cells)
    if lasting and retry and not retry_all:
        print(f'not repeated, because they would end alike: {", ".join(map(str, lasting))} (--retry-all repeats them)')
    if retry_all:
        return [*repeatable, *lasting]
    return repeatable if retry else []


# --- what is printed ---


def dry_run(grid: GridFile, out: Path, args: argparse.Namespace, engine: Engine, line: StatusLine) -> None:
    """Prints cells, parameters and estimated hours, and writes nothing."""
    grid, variants, parameters = checked(grid, out, args, line)
    cells = plan_cells(variants, grid.seeds, out, starts_of(grid, variants, out))
    rows, seconds = [('variant', 'cells', 'done', 'parameters', 's/iteration', 'time/cell')], {}
    for number, variant in enumerate(variants, 1):
        line.show(f'timing variant {number} of {len(variants)}: {variant.label}')
        found = estimate(variant.cfg)
        seconds[variant.label] = found.seconds
        own = [cell for cell in cells if cell.variant is variant]
        done = sum(cell.is_done for cell in own)
        numbers = (f'{parameters[variant.label]:,}', f'{found.iteration:.4f}', spoken(found.seconds))
        rows.append((variant.label, str(len(own)), str(done), *numbers))
    left = [seconds[cell.variant.label] for cell in cells if not cell.is_done]
    together = max([sum(left) / engine.slots, *left])  # more slots than cells do not shorten a cell
    line.say(format_table(rows, numeric=range(1, 6)))
    print(
        f'\n{len(cells)} cells in {out}, compared by {grid.metric} with {grid.baseline}\n'
        f'about {spoken(sum(left))} of one job; {spoken(together)} with {engine.slots} at a time, if they do not '
        'slow each other down'
    )


def report(folder: Path) -> None:
    """Writes the report of a grid and prints its table."""
    from .report import write_report  # pictures are drawn with matplotlib, which takes a second to load

    write_report(folder)


def mechanisms(folder: Path, num: int) -> None:
    """Measures the claims of the papers on the trained cells of a grid."""
    if num < 1:
        raise ValueError(f'--mechanisms {num}: expected at least 1 image')
    from .mechanisms import look_for_mechanisms

    look_for_mechanisms(folder, num)


def across(grids: Sequence[Path], out: Path | None) -> None:
    """Compares the variants of several grids."""
    from .across import write_comparison

    write_comparison(grids, out)


def conclude(outcome: Outcome, cells: Sequence[Cell], waiting: int, out: Path) -> int:
    """Prints how a run ended, and the report of a grid that has ended; returns the exit status."""
    without = [cell for cell in outcome.done if cell.value is None]
    done, failed = len(outcome.done) - len(without), len(outcome.failed) + len(without)
    if not (outcome.interrupted or outcome.is_full):
        print()
        report(out)
    print(f'\n{done} of {len(cells) + waiting} cells done, {failed} failed: {out}')
    for cell in without:
        print(f'  {cell}: finished without a finite metric; move {cell.folder} away to train it again')
    for cell in outcome.failed:
        failure = cell.failure
        print(f'  {cell}: exit status {failure["exit_status"]}, attempt {failure["attempt"]}: {failure["error"]}')
    if outcome.interrupted:
        print('stopped by a signal; the same command goes on')
        return Interrupted.status
    if outcome.is_full:
        print('no room to write; with room, the same command goes on')
        return NotWritten.status
    if outcome.failed:
        print('--retry repeats failed cells')
    if waiting:
        print(
            f'{waiting} cells wait for cells of start_from that are not done or have no checkpoint: go on with that '
            'grid first, once the folders of cells that lost theirs are moved away'
        )
    return int(failed > 0 or waiting > 0)
