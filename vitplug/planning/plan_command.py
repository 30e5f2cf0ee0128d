"""The command behind `tools/analysis_tools/plan.py`."""

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import replace

from mmengine.config import Config

from vitplug.analysis.image_size import read_image_size
from vitplug.config.checks import check_no_pickles
from vitplug.config.options import add_options, add_shape, config_parser
from vitplug.config.parts import averaging_hooks
from vitplug.config.reading import read_config
from vitplug.errors.one_line import one_line_errors
from vitplug.files.readers import refuse_code_in_files
from vitplug.tables import format_table
from vitplug.tasks import check_scope

from .cards import CARDS, GB, GIB
from .memory_model import CONTEXT, MARGIN, usable
from .plan import Place, Plan, make_plans, variant_of
from .schedule import Schedule, read_schedule
from .time_model import PASSES, Band, Cluster

NODES = (1, 2, 4, 8, 16)
DAY = 24 * 3600
MILLI = 1e-3
TITLE = 'A model, not a measurement: nothing ran on a GPU. docs/plan.md says what the model was checked against.'


def main(argv: Sequence[str] | None = None) -> None:
    """Prints the plan of a config. A wrong setting gives a one-line error and exit status 2."""
    parser = _parser()
    args = parser.parse_args(argv)
    for name in ('nodes', 'gpus', 'batch', 'images', 'network'):
        value = getattr(args, name)
        if value is not None and not value > 0:
            parser.error(f'--{name} {value}: expected a positive number')
    with one_line_errors(ValueError, OSError, ImportError):
        cfg = read_config(args.config, args.cfg_options)
        for line in report(cfg, args):
            print(line, flush=True)


def report(cfg: Config, args: argparse.Namespace) -> Iterator[str]:
    """Lines of the plan.

    Raises:
        ValueError: If the config is none of a training, or a step cannot be traced.
    """
    missing = [key for key in ('model', 'train_dataloader', 'optim_wrapper') if not cfg.get(key)]
    if missing:
        raise ValueError(f'{cfg.filename}: has no {", ".join(missing)}: name the config of a whole training')
    check_no_pickles(cfg)
    refuse_code_in_files()
    check_scope(cfg)
    size = read_image_size(cfg, args.shape)
    batch = args.batch or cfg.train_dataloader.batch_size
    cluster = Cluster(args.nodes, args.gpus, args.network * GB / 8)
    schedule = read_schedule(cfg, batch * cluster.processes, args.images)  # before a step is traced, for minutes
    card = CARDS[args.gpu]
    place = Place(card, cluster, args.strategy, bool(averaging_hooks(cfg)))
    yield TITLE
    yield f'images     {batch} a GPU of {size}'
    yield (
        f'where      {args.nodes} x {args.gpus} {card.name}, {args.strategy}; {usable(card) / GIB:.1f} GiB for tensors '
        f'(less {CONTEXT / GIB:.0f} GiB for CUDA and NCCL and {MARGIN:.0%} as a margin)'
    )
    plans = list(make_plans(cfg, size.chw, batch, place))
    yield ''
    yield format_table(_rows(plans), numeric=range(1, 10))
    yield 'GiB of one process; activations: the rest at the peak; a step: at best to at worst, with communication'
    yield ''
    own = next(plan for plan in plans if plan.variant == variant_of(cfg))
    yield f'below      {own.variant}, as the config says'
    yield from _beside(cfg, own, args, schedule)
    if args.scaling:
        yield ''
        yield format_table(_scaling_rows(own, batch * cluster.processes), numeric=range(2, 7))
        yield 'the total batch stays the same; a share: at worst to at best, of what as many GPUs could do'


def _rows(plans: Sequence[Plan]) -> list[tuple[str, ...]]:
    head = ('variant', 'weights', 'gradients', 'optimizer', 'average', 'activations', 'peak', 'fits')
    rows = [(*head, 'largest batch', 'ms a step', 'images/s')]
    for plan in plans:
        memory, seconds = plan.memory(plan.step), plan.seconds
        parts = (memory.weights, memory.gradients, memory.optimizer, memory.average, memory.activations, memory.peak)
        images = plan.step.batch * plan.place.cluster.processes
        rows.append(
            (
                str(plan.variant),
                *(f'{part / GIB:.2f}' for part in parts),
                'yes' if plan.fits else 'NO',
                str(plan.largest_batch),
                _text(seconds * (1 / MILLI)),
                f'{images / seconds.high:,.0f} to {images / seconds.low:,.0f}',
            )
        )
    return rows


def _text(band: Band, digits: int = 0) -> str:
    return f'{band.low:,.{digits}f} to {band.high:,.{digits}f}'


def _beside(cfg: Config, plan: Plan, args: argparse.Namespace, schedule: Schedule) -> Iterator[str]:
    """Communication, the loader and the schedule, for the variant of the config."""
    cluster, step = plan.place.cluster, plan.step
    if cluster.processes > 1:
        times = {2: 'twice', 3: 'three times'}[PASSES[plan.place.strategy]]
        sending = _text(plan.communication * (1 / MILLI), 1)
        yield (
            f'sends      {plan.bytes_sent / GB:.2f} GB {times} a step: {sending} ms, '
            f'by {args.network:g} Gbit/s a node between nodes'
        )
    workers = cfg.train_dataloader.get('num_workers') or 1
    each = plan.seconds * (workers / step.batch / MILLI)
    yield f'loader     {workers} workers a GPU have {_text(each)} ms for an image, or the GPU waits'
    days = plan.seconds * (schedule.steps / DAY)
    yield f'schedule   {schedule.source}: {schedule.steps:,} steps, {_text(days, 1)} days, validation not counted'


def _scaling_rows(plan: Plan, total: int) -> list[tuple[str, ...]]:
    """A fixed total batch on more and more nodes, by both strategies."""
    rows = [('strategy', 'nodes', 'images a GPU', 'GiB', 'compute, ms', 'sending, ms', 'share')]
    possible = (scaling_row(plan, strategy, nodes, total) for strategy in PASSES for nodes in NODES)
    return [*rows, *filter(None, possible)]


def scaling_row(plan: Plan, strategy: str, nodes: int, total: int) -> tuple[str, ...] | None:
    """A total batch on some nodes; None if a GPU would have no image.

    Args:
        plan: A plan, of which the GPUs and the traced steps are taken.
        strategy: ``'ddp'`` or ``'fsdp2'``.
        nodes: Number of machines.
        total: Images of a step of all GPUs together.
    """
    cluster = replace(plan.place.cluster, nodes=nodes)
    each = total / cluster.processes
    if each < 1:
        return None
    there = replace(plan, place=replace(plan.place, cluster=cluster, strategy=strategy))
    compute, sending = there.compute_of(each), there.communication
    # At worst nothing is hidden, at best everything that computing takes time for.
    share = Band(compute.low / (compute.low + sending.high), min(1.0, compute.high / (sending.low or compute.high)))
    times = (_text(band * (1 / MILLI)) for band in (compute, sending))
    return strategy, str(nodes), f'{each:g}', f'{there.peak_of(each) / GIB:.2f}', *times, _text(share, 2)


def _parser() -> argparse.ArgumentParser:
    parser = config_parser(
        'plan',
        'Plan a training on GPUs that are not there: memory, largest batch, time of a step and days. '
        'A model of traced operations and data sheets, not a measurement.',
    )
    parser.add_argument('--gpu', choices=tuple(CARDS), required=True, help='kind of the GPUs')
    parser.add_argument('--nodes', type=int, default=1, help='number of machines; default 1')
    parser.add_argument('--gpus', type=int, default=8, help='GPUs of each; default 8')
    parser.add_argument('--strategy', choices=tuple(PASSES), default='ddp', help='default: ddp')
    parser.add_argument('--batch', type=int, metavar='N', help="images of a GPU in a step; default: the config's")
    parser.add_argument('--images', type=int, metavar='N', help='images of an epoch; default: of the known dataset')
    parser.add_argument(
        '--network', type=float, default=400, metavar='GBIT', help='Gbit/s between machines, of each; default 400'
    )
    parser.add_argument('--scaling', action='store_true', help='the same total batch on 1 to 16 machines as well')
    add_shape(parser)
    add_options(parser)
    return parser
