"""The commands ``config`` and ``diff``: a config with all that it inherits, and what two of them differ in."""

import difflib
from collections.abc import Sequence

from mmengine.config import Config

from vitplug.commands import command_parser

from .options import add_options, config_parser
from .parts import without
from .reading import CONFIG_HELP, read_config


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
    # Parts of the child's own library have no note of the library that a base is from.
    texts = [Config(without(cfg.to_dict(), '_scope_')).pretty_text.splitlines() for cfg in configs]
    print('\n'.join(difflib.unified_diff(*texts, lineterm='')) or 'no setting differs')
