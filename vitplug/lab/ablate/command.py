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
from vitplug.files.whole import write_text
from vitplug.lab.ablate.metrics import choose_metric, greater_is_better
from vitplug.lab.costs import build_model
from vitplug.runs.checks import check_training

from .cells import DONE, Cell, make_cell
from .engines import train
from .grid import Grid, make_variants, read_grid_file
from .report import GRID, default_margin, write_report


def main(argv: Sequence[str] | None = None) -> int:
    """Runs a grid, or writes its report.

    Returns:
        0 if every cell is done, 1 if one failed.
    """
    args = parser().parse_args(argv)
    path = Path(args.grid)
    if path.is_dir():
        write_report(path, args.metric or ())
        return 0
    out = args.out or Path('work_dirs', 'ablation', path.stem)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    cells = prepare(read_grid_file(path) or grid_of(args), out)
    if args.print:
        lines = (f'{shlex.join(cell.command)} && touch {shlex.quote(str(cell.folder / DONE))}' for cell in cells
                 if not cell.is_done)  # fmt: skip
        print('\n'.join(lines))
        return 0
    executor = None
    if args.slurm:
        import submitit

        executor = submitit.AutoExecutor(out / 'jobs', 'slurm')
        executor.update_parameters(**{'name': 'vitplug', **args.slurm})
    train(cells, args.jobs, executor=executor)
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
    return options


def grid_of(args: argparse.Namespace) -> Grid:
    """The grid of a config and options."""
    plugs, names = args.plugs or [], args.names or []
    if names and len(names) != len(plugs):
        raise ValueError(f'--names: got {len(names)} for {len(plugs)} --plugs; name each of them')
    same = {name: getattr(args, name) for name in ('plugs', 'seeds', 'metric', 'margin', 'baseline')}
    return Grid(args.grid, options=args.cfg_options or {}, names=dict(zip(plugs, names, strict=False)), **same)


def prepare(grid: Grid, out: Path) -> list[Cell]:
    """Checks a grid, and writes ``grid.json`` and what each cell trains. Cells come seed by seed.

    Raises:
        ValueError: If a variant cannot be trained.
    """
    variants = make_variants(grid)
    any_cfg, better = next(iter(variants.values())), grid.greater_is_better
    metrics = [grid.metric] if isinstance(grid.metric, str) else grid.metric or [None]
    names = [choose_metric(any_cfg, metric) for metric in metrics]
    parameters = {label: check(label, cfg, out) for label, cfg in variants.items()}
    cells = [
        make_cell(label, cfg, seed, out, parameters[label])
        for seed in grid.all_seeds
        for label, cfg in variants.items()
    ]
    note = dict(
        base=grid.base,
        labels=[*variants],
        seeds=grid.all_seeds,
        baseline=grid.baseline_of([*variants]),
        metrics={name: greater_is_better(name) if better is None else better for name in names},
        margin=grid.margin or default_margin(names[0]),
        names=dict(grid.names),
        cells=[cell.folder.name for cell in cells],
    )
    if (out / GRID).is_file() and (before := json.loads((out / GRID).read_text())['margin']) != note['margin']:
        raise ValueError(
            f'margin {note["margin"]}: {out} has {before}, and a margin is chosen before the first cell: leave it, or '
            'choose another --out'
        )
    write_text(out / GRID, json.dumps(note, indent=1) + '\n')
    others = [path for path in (out / 'cells').glob(f'*/{DONE}') if path.parent.name not in note['cells']]
    if others:
        print(f'{len(others)} finished cells in {out} are not of this grid: they stay and do not count')
    return cells


def check(label: str, cfg: Config, out: Path) -> int:
    """Checks that a variant can be trained, and counts the parameters of its model."""
    try:
        check_training(Config(cfg._cfg_dict.to_dict() | dict(work_dir=str(out), launcher='none')))
        return sum(parameter.numel() for parameter in build_model(cfg).parameters())
    except (ValueError, ImportError) as error:
        raise ValueError(f'{label}: {error}') from error
