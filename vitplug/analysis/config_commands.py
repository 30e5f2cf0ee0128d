"""The commands behind `tools/misc/print_config.py` and `tools/analysis_tools/get_flops.py`."""

import argparse
from collections.abc import Sequence

from mmengine.config import Config

from vitplug.commands import command_parser
from vitplug.config.options import add_options, add_shape, config_parser
from vitplug.config.reading import CONFIG_HELP, read_config
from vitplug.errors import one_line_errors
from vitplug.tables import format_table
from vitplug.tasks import TASKS, check_scope

from .config_diff import report_difference
from .costs import Costs, build_model, count_costs
from .elementwise import ELEMENTWISE, REDUCTION
from .image_size import read_image_size


def print_config(argv: Sequence[str] | None = None) -> None:
    """Prints a config, or the differences of two. A wrong setting gives a one-line error and exit status 2."""
    parser = command_parser('config', 'Print a config with all inherited settings, or compare two configs.')
    parser.add_argument('config', nargs='?', help=CONFIG_HELP)
    parser.add_argument(
        '--diff',
        nargs=2,
        metavar=('BASE', 'CHILD'),
        help='print the differing settings and their effect on parameters, MACs, optimizer, attention and memory',
    )
    parser.add_argument('--all', action='store_true', help='with --diff: every setting of parts of another type')
    add_shape(parser)
    add_options(parser, 'settings that override the config (with --diff: CHILD)')
    args = parser.parse_args(argv)
    if (args.config is None) == (args.diff is None):
        parser.error('expected a config file or --diff BASE CHILD')
    if args.all and not args.diff:
        parser.error('--all: a config is always printed with all settings; leave it out, or compare with --diff')
    if args.diff:
        return _print_difference(*args.diff, args)
    with one_line_errors():
        print(read_config(args.config, args.cfg_options).pretty_text)


def print_difference(argv: Sequence[str] | None = None) -> None:
    """Prints the differences of two configs: the option `--diff` of :func:`print_config` as a command."""
    parser = command_parser(
        'diff',
        'Print the differing settings of two configs and their effect on parameters, MACs, optimizer, '
        'attention and memory.',
    )
    parser.add_argument('base', help=CONFIG_HELP)
    parser.add_argument('child', help='the config to compare with it')
    parser.add_argument('--all', action='store_true', help='every setting of parts of another type')
    add_shape(parser)
    add_options(parser, 'settings that override those of the child')
    args = parser.parse_args(argv)
    _print_difference(args.base, args.child, args)


def _print_difference(base: str, child: str, args: argparse.Namespace) -> None:
    with one_line_errors():
        configs = _checked(read_config(base)), _checked(read_config(child, args.cfg_options))
        for cfg in configs:
            check_scope(cfg)
        print(report_difference(*configs, args.shape, args.all))


def get_flops(argv: Sequence[str] | None = None) -> None:
    """Prints parameters and MACs of a config's model. A wrong setting gives a one-line error and exit status 2."""
    parser = config_parser(
        'flops', 'Count the parameters and multiply-accumulates (MACs; papers call them FLOPs) of a model.'
    )
    add_shape(parser)
    parser.add_argument('--batch', type=int, default=1, metavar='N', help='number of images (default 1)')
    add_options(parser, 'settings that override the config')
    args = parser.parse_args(argv)
    with one_line_errors():
        print(report_costs(_checked(read_config(args.config, args.cfg_options)), args.shape, args.batch))


def _checked(cfg: Config) -> Config:
    """Checks that the model of a config reads no file that can run code; otherwise raises a `ValueError`."""
    return cfg


def report_costs(cfg: Config, shape: Sequence[int] | None = None, batch: int = 1) -> str:
    """Parameters and MACs of a config's model, part by part, with an explanation of the counts.

    Raises:
        ValueError or ImportError: If the model cannot be built, or cannot be run on images of this size.
    """
    check_scope(cfg)
    if batch < 1:
        raise ValueError(f'--batch {batch}: expected at least 1')
    size = read_image_size(cfg, shape)
    model = build_model(cfg)
    costs = count_costs(model, cfg.default_scope, size.chw, batch)
    lines = (
        format_table(_cost_rows(costs), numeric=(1, 2, 3, 4)),
        '',
        f'{costs.total_parameters / 1e6:.3f} M parameters, {costs.total_macs / 1e9:.3f} G MACs',
        f'images: {batch} of {size}',
        f'counted: {TASKS[cfg.default_scope].describe_inference(model)}',
        'a MAC is one multiply-accumulate of a convolution or matrix product, including attention (in its plain form);',
        'norms, activations, softmax, pooling and interpolation are counted only for plugs, in two other columns:',
        'elementwise is the number of output elements of products, quotients and exponentials (an addition belongs to',
        'the product before it), reduction is the number of input elements of means, sums, maxima and softmax',
    )
    return '\n'.join(lines)


def _cost_rows(costs: Costs) -> list[tuple[str, ...]]:
    """Parts and their costs with headings and totals; elementwise operations and reductions of plugs are columns."""
    kinds = (ELEMENTWISE, REDUCTION)
    rows = [('part', 'parameters', 'MACs', *kinds)]
    for part in {**costs.parameters, **costs.macs, **costs.elements}:
        elements = [f'{costs.elements[part][kind]:,}' if part in costs.elements else '' for kind in kinds]
        rows.append((part, f'{costs.parameters.get(part, 0):,}', f'{costs.macs.get(part, 0):,}', *elements))
    totals = [f'{sum(counts[kind] for counts in costs.elements.values()):,}' for kind in kinds]
    return [*rows, ('total', f'{costs.total_parameters:,}', f'{costs.total_macs:,}', *totals)]
