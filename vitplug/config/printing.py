"""The commands ``config`` and ``diff``: a config with all that it inherits, and what two of them differ in."""

import difflib
from collections.abc import Sequence
from typing import Any

from mmengine.config import Config

from vitplug.commands import command_parser

from .options import add_options, config_parser
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
    texts = [Config(_without_scopes(cfg.to_dict())).pretty_text.splitlines() for cfg in configs]
    print('\n'.join(difflib.unified_diff(*texts, lineterm='')) or 'no setting differs')


def _without_scopes(part: Any) -> Any:
    """Without mmengine's note of the library that a base is from: parts of the child's own library have none."""
    if isinstance(part, dict):
        return {name: _without_scopes(value) for name, value in part.items() if name != '_scope_'}
    return [_without_scopes(value) for value in part] if isinstance(part, list) else part
