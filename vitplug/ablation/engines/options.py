"""The options of the command line that choose an engine, and the engine they choose."""

import re
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from .engine import Engine
from .launch import Share
from .local import LocalEngine, visible_gpus
from .ray import RayEngine
from .slurm import DEFAULT_MINUTES, SLOTS, SlurmEngine


@dataclass(frozen=True)
class Choice:
    """An engine that can be chosen.

    Attributes:
        options: Names of its options beside ``jobs``.
        make: Makes it from the command line and the options of the worker.
    """

    options: frozenset[str]
    make: Callable[[Namespace, Sequence[str]], Engine]


def local(args: Namespace, worker: Sequence[str]) -> LocalEngine:
    """Processes of this machine."""
    return LocalEngine(args.jobs, visible_gpus(), worker)


def slurm(args: Namespace, worker: Sequence[str]) -> SlurmEngine:
    """Jobs of a Slurm cluster."""
    minutes = DEFAULT_MINUTES if args.time is None else minutes_of(args.time)
    return SlurmEngine(share_of(args), args.jobs, args.partition, minutes, worker)


def ray(args: Namespace, worker: Sequence[str]) -> RayEngine:
    """Tasks of a Ray cluster."""
    return RayEngine(share_of(args), args.jobs, args.ray_address, worker)


ENGINES = {
    'local': Choice(frozenset(), local),
    'slurm': Choice(frozenset({'partition', 'time', 'nodes', 'gpus', 'cpus'}), slurm),
    'ray': Choice(frozenset({'ray_address', 'gpus', 'cpus'}), ray),
}


def add_engine_options(parser: ArgumentParser) -> None:
    """Adds ``--engine`` and the options of all engines."""
    group = parser.add_argument_group('where cells are trained')
    group.add_argument('--engine', choices=list(ENGINES), default='local', help='default: local, this machine')
    group.add_argument(
        '--jobs',
        type=int,
        metavar='N',
        help=f'cells at a time (local: one per GPU, or per core; slurm: {SLOTS} in the queue; ray: all that fit)',
    )
    group.add_argument('--gpus', type=int, metavar='N', help='slurm, ray: GPUs of a cell, per node (default 0)')
    group.add_argument('--cpus', type=int, metavar='N', help='slurm, ray: cores of a cell, per node')
    group.add_argument('--nodes', type=int, metavar='N', help='slurm: nodes of a cell (default 1)')
    group.add_argument('--partition', metavar='NAME', help="slurm: partition (default: the cluster's own)")
    group.add_argument(
        '--time',
        metavar='TIME',
        help=f'slurm: limit of a job, after which its cell goes on: minutes or H:MM:SS (default {DEFAULT_MINUTES})',
    )
    group.add_argument('--ray-address', metavar='ADDRESS', help='ray: the cluster (default: RAY_ADDRESS)')


def make_engine(args: Namespace, worker: Sequence[str] = ()) -> Engine:
    """The engine that was chosen.

    Args:
        args: What :func:`add_engine_options` has read.
        worker: Options of :mod:`vitplug.ablation.worker`.

    Raises:
        ValueError: If an option is wrong, or of another engine.
        ModuleNotFoundError: If the package of the engine is not installed.
        ConnectionError: If the cluster does not answer.
    """
    chosen = ENGINES[args.engine]
    for name in sorted(frozenset().union(*(choice.options for choice in ENGINES.values())) - chosen.options):
        if getattr(args, name) is not None:
            takers = ' or '.join(engine for engine, choice in ENGINES.items() if name in choice.options)
            raise ValueError(
                f'--{name.replace("_", "-")} {getattr(args, name)}: not an option of --engine {args.engine}; leave it '
                f'away, or choose --engine {takers}'
            )
    return chosen.make(args, worker)


def share_of(args: Namespace) -> Share:
    """What each cell gets.

    Raises:
        ValueError: If a number is too small.
    """
    given = {name: getattr(args, name) for name in ('nodes', 'gpus', 'cpus')}
    return Share(**{name: number for name, number in given.items() if number is not None})


def minutes_of(text: str) -> int:
    """Minutes of a time such as ``90``, ``1:30:00`` or ``2-00:00:00``, rounded up.

    Raises:
        ValueError: If it is none, or shorter than a minute.
    """
    if re.fullmatch(r'\d+', text):
        minutes = int(text)
    elif found := re.fullmatch(r'(?:(\d+)-)?(\d+):([0-5]\d):([0-5]\d)', text):
        days, hours, rest, seconds = (int(part or 0) for part in found.groups())
        minutes = (days * 24 + hours) * 60 + rest + (seconds > 0)
    else:
        minutes = 0
    if minutes < 1:
        raise ValueError(f'--time {text}: expected minutes, H:MM:SS or D-H:MM:SS, at least one minute')
    return minutes
