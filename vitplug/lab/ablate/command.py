"""The command ``vitplug ablate``: a grid of plugs and settings with seeds, from one config."""

import argparse
import json
import shlex
import signal
from collections.abc import Sequence
from pathlib import Path

from mmengine.config import Config

from vitplug.commands import command_parser
from vitplug.config.options import OptionsAction
from vitplug.config.reading import CONFIG_HELP
from vitplug.errors import one_line_errors
from vitplug.files.whole import write_text
from vitplug.lab.costs import build_model
from vitplug.runs.checks import check_training
from vitplug.runs.metrics import choose_metric, greater_is_better
from vitplug.tables import format_table

from .cells import DONE, Cell, plan_cell, write_cell
from .engines import train
from .grid import Grid, Variant, baseline_of, make_variants, read_grid_file
from .report import write_report
from .summary import GRID, default_margin, read_note


def main(argv: Sequence[str] | None = None) -> int:
    """Runs a grid, or writes its report.

    Returns:
        0 if every cell is done, 1 if one failed. A wrong grid ends in one line and status 2.
    """
    args = parser().parse_args(argv)
    with one_line_errors():
        path = Path(args.grid)
        if path.is_dir():
            write_report(path, args.metric or ())
            return 0
        grid = read_grid_file(path) or grid_of(args)
        out = args.out or Path('work_dirs', 'ablation', path.stem)
        signal.signal(signal.SIGTERM, signal.default_int_handler)
        cells = prepare(grid, out, is_written=not args.dry_run)
        if args.dry_run or args.print:
            print('\n'.join(lines(cells)) if args.print else listed(cells))
            return 0
        train(cells, args.jobs, slurm=(out / 'jobs', args.slurm) if args.slurm else None)
        write_report(out, args.metric or ())
    return int(any(not cell.is_done for cell in cells))


def parser() -> argparse.ArgumentParser:
    """The options."""
    options = command_parser(
        'ablate',
        'Train a grid of plugs and settings with several seeds, and compare the variants over paired seeds. The same '
        'call goes on where it stopped, and repeats cells that failed.',
    )
    add = options.add_argument
    add('grid', help=f'{CONFIG_HELP}; a grid file; or the folder of an ablation, to write its report')
    add('--plugs', nargs='+', help="variants such as none cb gab gab+residual 'residual(alpha=0.25)'")
    add('--names', nargs='+', metavar='NAME', help='what tables and pictures call them, in the same order')
    add('--seeds', type=int, default=3, metavar='N', help='seeds of each variant, from 0 on (default 3)')
    add('--metric', nargs='+', metavar='NAME', help='metrics to compare by (default: the main one of the config)')
    add('--margin', type=float, metavar='POINTS', help='difference that counts as none (default: by the metric)')
    add('--baseline', metavar='LABEL', help='variant to compare with (default: none, or the first)')
    add('--cfg-options', nargs='+', action=OptionsAction, metavar='KEY=VALUE', help='settings of all variants')
    add('--out', type=Path, metavar='DIR', help='folder (default work_dirs/ablation/NAME)')
    add('--jobs', type=int, default=1, metavar='N', help='trainings at the same time (default 1)')
    slurm = 'train on Slurm by submitit, whose parameters these are, such as slurm_partition=gpu gpus_per_node=1'
    add('--slurm', nargs='+', action=OptionsAction, metavar='KEY=VALUE', help=slurm)
    add('--print', action='store_true', help='print a shell line for each cell to train, for job arrays or parallel')
    add('--dry-run', action='store_true', help='check the grid and list its cells')
    return options


def grid_of(args: argparse.Namespace) -> Grid:
    """The grid of a config and options.

    Raises:
        ValueError: If an entry is wrong.
    """
    if args.names and len(args.names) != len(args.plugs or ()):
        raise ValueError(f'--names: got {len(args.names)} for {len(args.plugs or ())} --plugs; name each of them')
    return Grid(
        base=args.grid,
        plugs=args.plugs,
        seeds=args.seeds,
        metric=args.metric,
        margin=args.margin,
        baseline=args.baseline,
        options=args.cfg_options or {},
        names=dict(zip(args.plugs or (), args.names or (), strict=False)),
    )


def prepare(grid: Grid, out: Path, is_written: bool = True) -> list[Cell]:
    """Checks a grid, and writes ``grid.json`` and what each cell trains. Cells come seed by seed.

    Raises:
        ValueError: If a variant cannot be trained, or the folder is of a grid that was compared otherwise.
    """
    variants = make_variants(grid)
    labels = [variant.label for variant in variants]
    names = [choose_metric(variants[0].cfg, metric) for metric in grid.metric or (None,)]
    better = grid.greater_is_better
    metrics = {name: greater_is_better(name) if better is None else better for name in names}
    margin = grid.margin or default_margin(names[0])
    check_earlier(out, labels, margin)
    parameters = {variant.label: check(variant, out) for variant in variants}
    planned = [plan_cell(variant, seed, out) for seed in grid.seeds for variant in variants]
    if not is_written:
        return [cell for cell, _ in planned]
    cells = [write_cell(cell, cfg, parameters[cell.label]) for cell, cfg in planned]
    note = dict(base=grid.base, labels=labels, seeds=grid.seeds, baseline=baseline_of(grid, labels), margin=margin)
    note |= dict(metrics=metrics, names=dict(grid.names), cells=[cell.folder.name for cell in cells])
    write_text(out / GRID, json.dumps(note, indent=1) + '\n')
    others = [path for path in (out / 'cells').glob(f'*/{DONE}') if path.parent.name not in note['cells']]
    if others:
        print(f'{len(others)} finished cells in {out} have other settings, data or seeds; they stay and do not count')
    return cells


def check(variant: Variant, out: Path) -> int:
    """Checks that a variant can be trained, and counts the parameters of its model."""
    try:
        check_training(Config(variant.cfg._cfg_dict.to_dict() | dict(work_dir=str(out), launcher='none')))
        return sum(parameter.numel() for parameter in build_model(variant.cfg).parameters())
    except (ValueError, ImportError) as error:
        raise ValueError(f'{variant.label}: {error}') from error


def check_earlier(out: Path, labels: Sequence[str], margin: float | None) -> None:
    """Checks that what a folder has decided stays: its variants, which p values are corrected for, and its margin.

    Raises:
        ValueError: If a variant is left out that has been compared, or the margin is another one.
    """
    if not (out / GRID).is_file():
        return
    before = read_note(out)
    absent = [label for label in before['labels'] if label not in labels]
    if absent:
        raise ValueError(
            f'{out} compares {", ".join(absent)} as well, and p values are corrected for all variants: name them '
            'again, or choose another --out'
        )
    if before['margin'] != margin:
        raise ValueError(
            f'margin {margin}: {out} has {before["margin"]}, and a margin is chosen before the first cell: leave it, '
            'or choose another --out'
        )


def lines(cells: Sequence[Cell]) -> list[str]:
    """A shell line for each cell that is not done."""
    return [f'{shlex.join(cell.command)} && touch {shlex.quote(str(cell.folder / DONE))}' for cell in cells
            if not cell.is_done]  # fmt: skip


def listed(cells: Sequence[Cell]) -> str:
    """The cells and how far they are."""
    rows = [(cell.label, str(cell.seed), 'done' if cell.is_done else 'to train', cell.folder.name) for cell in cells]
    return format_table([('variant', 'seed', 'state', 'folder'), *rows], numeric=(1,))
