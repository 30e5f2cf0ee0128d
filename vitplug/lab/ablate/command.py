"""The command ``vitplug ablate``: configs and plugs, each with several seeds."""

import argparse
import itertools
import json
import math
import shlex
import signal
from collections.abc import Sequence
from pathlib import Path

from mmengine.config import Config

from vitplug.commands import command_parser
from vitplug.config.options import OptionsAction
from vitplug.config.reading import CONFIG_HELP
from vitplug.files.whole import write_text
from vitplug.lab.cells import DONE, GRID, Cell, make_cell
from vitplug.lab.costs import build_model
from vitplug.runs.checks import check_run

from .engines import train
from .plan import greater_is_better, main_metric, make_variants
from .report import default_margin, write_report


def main(argv: Sequence[str] | None = None) -> int:
    """Runs an ablation, or writes its report.

    Returns:
        0 if every cell is done, 1 if one failed.
    """
    args = parser().parse_args(argv)
    path = Path(args.configs[0])
    if path.is_dir():
        options = ('plugs', 'names', 'margin', 'cfg_options', 'out', 'slurm', 'print')
        if unread := [*args.configs[1:], *(f'--{one}'.replace('_', '-') for one in options if getattr(args, one))]:
            raise ValueError(f'{path}: a report of an ablation does not read {unread[0]}: leave it out')
        write_report(path, args.metric or (), args.rule)
        return 0
    out = args.out or Path('work_dirs', 'ablation', path.stem)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    cells = prepare(args, out)
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
    write_report(out)
    return int(any(not cell.is_done for cell in cells))


def parser() -> argparse.ArgumentParser:
    """The options."""
    options = command_parser(
        'ablate',
        'Train configs, or plugs on a config, with several seeds, and compare them with the first, paired by seed. The '
        'same call goes on where it stopped, and repeats cells that failed.',
    )
    add = options.add_argument
    add('configs', nargs='+', metavar='CONFIG', help=f'{CONFIG_HELP}; or the folder of an ablation, to report on it')
    add('--plugs', nargs='+', help="plugs on each config, such as none cb gab gab+residual 'residual(alpha=0.25)'")
    add('--names', nargs='+', metavar='NAME', help='what tables and pictures call the variants, config by config')
    add('--seeds', type=int, default=3, metavar='N', help='seeds of each variant, from 0 on (default 3)')
    add('--metric', nargs='+', metavar='NAME', help='metrics to compare by (default: the main one of the config)')
    add('--rule', choices=('greater', 'less'), help='values of the metrics that are better (default: by their names)')
    add('--margin', type=float, metavar='POINTS', help='difference that counts as none (default: by the metric)')
    add('--cfg-options', nargs='+', action=OptionsAction, metavar='KEY=VALUE', help='settings of all variants')
    add('--out', type=Path, metavar='DIR', help='folder (default work_dirs/ablation/NAME)')
    add('--jobs', type=int, default=1, metavar='N', help='trainings at the same time (default 1)')
    slurm = 'train on Slurm by submitit, whose parameters these are, such as slurm_partition=gpu gpus_per_node=1'
    add('--slurm', nargs='+', action=OptionsAction, metavar='KEY=VALUE', help=slurm)
    add('--print', action='store_true', help='print a shell line for each cell to train, for job arrays or parallel')
    return options


def prepare(args: argparse.Namespace, out: Path) -> list[Cell]:
    """Checks an ablation, and writes ``grid.json`` and what each cell trains. Cells come seed by seed.

    Raises:
        ValueError: If a variant cannot be trained, or an option is refused.
    """
    if args.margin is not None and (not 0 < args.margin < math.inf or len(args.metric or ()) > 1):
        raise ValueError(f'--margin {args.margin}: expected a difference above 0, in points of one metric')
    variants = make_variants(args.configs, args.plugs or (), args.names or (), args.cfg_options or {})
    parameters = {label: check(label, cfg, out) for label, cfg in variants.items()}
    metrics = args.metric or [*dict.fromkeys(map(main_metric, variants.values()))]
    pairs = itertools.product(range(args.seeds), variants.items())
    cells = [make_cell(label, cfg, seed, out, parameters[label]) for seed, (label, cfg) in pairs]
    note = dict(
        configs=args.configs,
        labels=[*variants],
        seeds=[*range(args.seeds)],
        baseline=next(iter(variants)),
        metrics={metric: greater_is_better(metric, args.rule) for metric in metrics},
        margin=args.margin or default_margin(metrics[0]),
        names=dict(zip(variants, args.names or (), strict=False)),
        cells=[cell.folder.name for cell in cells],
    )
    write_text(out / GRID, json.dumps(note, indent=1) + '\n')
    return cells


def check(label: str, cfg: Config, out: Path) -> int:
    """Checks that a variant can be trained, and counts the parameters of its model."""
    if not cfg.get('val_evaluator') or not cfg.get('val_dataloader'):
        raise ValueError(f'{label}: has no validation (val_evaluator, val_dataloader), so there is no metric')
    try:
        check_run(Config(cfg._cfg_dict.to_dict() | dict(work_dir=str(out), launcher='none')))
        return sum(parameter.numel() for parameter in build_model(cfg).parameters())
    except (ValueError, ImportError) as error:
        raise ValueError(f'{label}: {error}') from error
