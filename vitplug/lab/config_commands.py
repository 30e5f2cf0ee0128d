"""The commands ``config``, ``diff`` and ``flops``: a config, what two of them differ in, and what a model costs."""

from collections.abc import Sequence
from typing import Any

from mmengine.config import Config

from vitplug.commands import command_parser
from vitplug.config.options import add_options, add_shape, config_parser
from vitplug.config.reading import CONFIG_HELP, read_config
from vitplug.tables import format_table
from vitplug.tasks.libraries import TASKS, check_scope

from .costs import build_model, count_costs, read_image_size

EXPLANATION = """\
a MAC is one multiply-accumulate of a convolution or matrix product, including attention (in its plain form);
elementwise operations are not counted; the costs of plugs are part of the backbone's"""


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
    configs = read_config(args.base), read_config(args.child, args.cfg_options)
    difference = Config.diff(*(Config(_without_scopes(cfg.to_dict())) for cfg in configs))
    print('\n'.join(filter(str.strip, difference.splitlines())) or 'no setting differs')


def _without_scopes(part: Any) -> Any:
    """Without mmengine's note of the library that a base is from: parts of the child's own library have none."""
    if isinstance(part, dict):
        return {name: _without_scopes(value) for name, value in part.items() if name != '_scope_'}
    return [_without_scopes(value) for value in part] if isinstance(part, list) else part


def get_flops(argv: Sequence[str] | None = None) -> None:
    """Prints parameters and MACs of a config's model, of its parts and plugs, with an explanation of the counts.

    Raises:
        ValueError or ImportError: If the model cannot be built, or cannot be run on images of this size.
    """
    about = 'Count the parameters and multiply-accumulates (MACs; papers call them FLOPs) of a model.'
    parser = config_parser('flops', about)
    add_shape(parser)
    add_options(parser, 'settings that override the config')
    args = parser.parse_args(argv)
    cfg = read_config(args.config, args.cfg_options)
    check_scope(cfg)
    chw = read_image_size(cfg, args.shape)
    costs = count_costs(build_model(cfg), cfg.default_scope, chw)
    rows = [(part, f'{cost.parameters:,}', f'{cost.macs:,}') for part, cost in costs.items()]
    print(format_table([('part', 'parameters', 'MACs'), *rows], numeric=(1, 2)))
    parameters, macs = costs['total']
    print(f'\n{parameters / 1e6:.3f} M parameters, {macs / 1e9:.3f} G MACs of an image of {chw[1]}x{chw[2]}')
    print(f'counted: {TASKS[cfg.default_scope].counted}\n{EXPLANATION}')
