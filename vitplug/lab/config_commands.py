"""The commands ``config``, ``diff`` and ``flops``: a config, what two of them differ in, and what a model costs."""

from collections.abc import Mapping, Sequence
from typing import Any

from mmengine.config import Config

from vitplug.commands import command_parser
from vitplug.config.options import add_options, add_shape, config_parser
from vitplug.config.reading import CONFIG_HELP, read_config
from vitplug.tables import format_table
from vitplug.tasks.libraries import TASKS, check_scope

from .costs import ELEMENTWISE, build_model, count_costs
from .image_size import read_image_size

EXPLANATION = """\
a MAC is one multiply-accumulate of a convolution or matrix product, including attention (in its plain form);
elementwise, which is counted only for plugs, is the number of output elements of products, quotients and
exponentials (an addition belongs to the product before it); norms, softmax and means are not counted"""


def print_config(argv: Sequence[str] | None = None) -> None:
    """Prints a config with all inherited settings."""
    parser = config_parser('config', 'Print a config with all inherited settings.')
    add_options(parser, 'settings that override the config')
    args = parser.parse_args(argv)
    print(read_config(args.config, args.cfg_options).pretty_text)


def print_difference(argv: Sequence[str] | None = None) -> None:
    """Prints the settings in which two configs differ."""
    parser = command_parser('diff', 'Print the settings in which two configs differ, inherited ones included.')
    parser.add_argument('base', help=CONFIG_HELP)
    parser.add_argument('child', help='the config to compare with it')
    add_options(parser, 'settings that override those of the child')
    args = parser.parse_args(argv)
    base, child = read_config(args.base), read_config(args.child, args.cfg_options)
    difference = Config.diff(_without_scopes(base), _without_scopes(child))
    print('\n'.join(filter(str.strip, difference.splitlines())) or 'no setting differs')


def _without_scopes(cfg: Config) -> Config:
    """Without mmengine's note of the library that a base is from: parts of the child's own library have none."""

    def stripped(part: Any) -> Any:
        if isinstance(part, Mapping):
            return {name: stripped(value) for name, value in part.items() if name != '_scope_'}
        return [stripped(value) for value in part] if isinstance(part, list) else part

    return Config(stripped(cfg.to_dict()))


def get_flops(argv: Sequence[str] | None = None) -> None:
    """Prints parameters and MACs of a config's model, part by part, with an explanation of the counts.

    Raises:
        ValueError or ImportError: If the model cannot be built, or cannot be run on images of this size.
    """
    parser = config_parser(
        'flops', 'Count the parameters and multiply-accumulates (MACs; papers call them FLOPs) of a model.'
    )
    add_shape(parser)
    add_options(parser, 'settings that override the config')
    args = parser.parse_args(argv)
    cfg = read_config(args.config, args.cfg_options)
    check_scope(cfg)
    size = read_image_size(cfg, args.shape)
    model = build_model(cfg)
    costs = count_costs(model, cfg.default_scope, size.chw)
    rows = [('part', 'parameters', 'MACs', ELEMENTWISE)]
    for part in {**costs.parameters, **costs.macs, **costs.elements}:
        elements = f'{costs.elements[part]:,}' if part in costs.elements else ''
        rows.append((part, f'{costs.parameters.get(part, 0):,}', f'{costs.macs.get(part, 0):,}', elements))
    total = sum(costs.elements.values())
    rows.append(('total', f'{costs.total_parameters:,}', f'{costs.total_macs:,}', f'{total:,}'))
    print(format_table(rows, numeric=(1, 2, 3)))
    print(
        f'\n{costs.total_parameters / 1e6:.3f} M parameters, {costs.total_macs / 1e9:.3f} G MACs of an image of {size}'
    )
    print(f'counted: {TASKS[cfg.default_scope].counted}')
    print(EXPLANATION)
