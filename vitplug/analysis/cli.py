"""The commands behind `tools/misc/print_config.py`, `get_flops.py` and `model_table.py` in `tools/analysis_tools`."""

import argparse
from collections.abc import Sequence

from mmengine.config import Config

from vitplug.config.checks import check_no_pickles
from vitplug.config.reading import CONFIG_HELP, OptionsAction, read_config
from vitplug.errors.one_line import one_line_errors
from vitplug.files.readers import refuse_code_in_files
from vitplug.tasks import TASKS, check_scope

from .config_diff import report_difference
from .costs import Costs, build_model, count_costs
from .elementwise import ELEMENTWISE, REDUCTION
from .image_size import read_image_size
from .tables import format_table


def print_config(argv: Sequence[str] | None = None) -> None:
    """Prints a config, or what two differ in. A wrong setting ends in one line and exit status 2."""
    parser = argparse.ArgumentParser(description='Print a config with everything it inherits, or compare two.')
    parser.add_argument('config', nargs='?', help=CONFIG_HELP)
    parser.add_argument(
        '--diff',
        nargs=2,
        metavar=('BASE', 'CHILD'),
        help='print what CHILD has otherwise and what follows from it: parameters, MACs, optimizer, attention, memory',
    )
    _add_shape(parser)
    _add_options(parser, 'settings that win over the config (with --diff: over CHILD)')
    args = parser.parse_args(argv)
    if (args.config is None) == (args.diff is None):
        parser.error('give a config file, or --diff BASE CHILD')
    with one_line_errors(ValueError, OSError, ImportError):
        if args.diff:
            base = _readable(read_config(args.diff[0]))
            child = _readable(read_config(args.diff[1], args.cfg_options))
            for cfg in (base, child):
                check_scope(cfg)
            print(report_difference(base, child, args.shape))
        else:
            print(read_config(args.config, args.cfg_options).pretty_text)


def get_flops(argv: Sequence[str] | None = None) -> None:
    """Prints parameters and MACs of a config's model. A wrong setting ends in one line and exit status 2."""
    parser = argparse.ArgumentParser(
        description='Count the parameters and multiply-accumulates (MACs, which papers call FLOPs) of a model.'
    )
    parser.add_argument('config', help=CONFIG_HELP)
    _add_shape(parser)
    parser.add_argument('--batch', type=int, default=1, metavar='N', help='number of images (default 1)')
    _add_options(parser, 'settings that win over the config')
    args = parser.parse_args(argv)
    with one_line_errors(ValueError, OSError, ImportError):
        print(report_costs(_readable(read_config(args.config, args.cfg_options)), args.shape, args.batch))


def _readable(cfg: Config) -> Config:
    """A config whose model reads no file that can run code; refuses others with a `ValueError`."""
    check_no_pickles(cfg)
    refuse_code_in_files()
    return cfg


def report_costs(cfg: Config, shape: Sequence[int] | None = None, batch: int = 1) -> str:
    """Parameters and MACs of a config's model, part by part, and what was counted.

    Raises:
        ValueError or ImportError: If the model cannot be built, or not be run on images of this size.
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
        'a MAC is one multiply-accumulate of a convolution or a matrix product, those of attention included (in its',
        'plain form); norms, activations, softmax, pooling and interpolation are not counted, but for those of plugs:',
        'elementwise counts each element of a product, quotient or exponential (an addition counts with the product',
        'before it), reduction each element that goes into a mean, sum, maximum or softmax',
    )
    return '\n'.join(lines)


def _cost_rows(costs: Costs) -> list[tuple[str, ...]]:
    """Parts and their costs with headings and totals; what plugs do beside products in columns of its own."""
    kinds = (ELEMENTWISE, REDUCTION)
    rows = [('part', 'parameters', 'MACs', *kinds)]
    for part in {**costs.parameters, **costs.macs, **costs.elements}:
        elements = [f'{costs.elements[part][kind]:,}' if part in costs.elements else '' for kind in kinds]
        rows.append((part, f'{costs.parameters.get(part, 0):,}', f'{costs.macs.get(part, 0):,}', *elements))
    totals = [f'{sum(counts[kind] for counts in costs.elements.values()):,}' for kind in kinds]
    return [*rows, ('total', f'{costs.total_parameters:,}', f'{costs.total_macs:,}', *totals)]


def _add_shape(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        '--shape',
        type=int,
        nargs='+',
        metavar='PIXELS',
        help='height and width of the images, or one number for both (default: what the config says)',
    )


def _add_options(parser: argparse.ArgumentParser, text: str) -> None:
    parser.add_argument('--cfg-options', nargs='+', action=OptionsAction, metavar='KEY=VALUE', help=text)
