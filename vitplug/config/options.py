"""Options that commands share: settings of the config, an exported file, the size of the images."""

import argparse

from mmengine.config import DictAction

from vitplug.commands import command_parser
from vitplug.plugs.text import PLUGS_HELP

from .reading import CONFIG_HELP, PLUGS_KEY, names_plugs


def config_parser(name: str, description: str) -> argparse.ArgumentParser:
    """The parser of a command whose first argument is a config."""
    parser = command_parser(name, description)
    parser.add_argument('config', help=CONFIG_HELP)
    return parser


def model_parser(name: str, description: str) -> argparse.ArgumentParser:
    """The parser of a command whose first arguments are a config and a checkpoint."""
    parser = config_parser(name, description)
    parser.add_argument('checkpoint', help='checkpoint file')
    return parser


def add_options(parser: argparse.ArgumentParser, help: str = 'settings that win over the config') -> None:
    """Adds the options `--cfg-options` and `--plugs`, which is short for one of them."""
    parser.add_argument('--cfg-options', nargs='+', action=OptionsAction, metavar='KEY=VALUE', help=help)
    parser.add_argument('--plugs', action=PlugsAction, metavar='PLUGS', help=f"{PLUGS_HELP}; they replace the config's")


class PlugsAction(argparse.Action):
    """`--plugs TEXT` is `--cfg-options model.backbone.plugs=TEXT`."""

    def __call__(self, parser, namespace, values, option_string=None):
        namespace.cfg_options = {**(namespace.cfg_options or {}), PLUGS_KEY: values}


class OptionsAction(DictAction):
    """`--cfg-options key=value ...`; plugs are their text, and other values as mmengine reads them, but no dicts."""

    def __call__(self, parser, namespace, values, option_string=None):
        for value in values:
            key, _, text = value.partition('=')
            if 'dict(' in text or text.startswith('{') or '[{' in text:  # mmengine takes it for a word
                parser.error(f'{option_string} {value}: a dict is no value: give its settings one by one, {key}.NAME')
            if names_plugs(key):  # mmengine cannot read brackets with several arguments
                setattr(namespace, self.dest, {**(getattr(namespace, self.dest) or {}), key: text})
                continue
            try:
                super().__call__(parser, namespace, [value], option_string)
            except (ValueError, AssertionError):  # without '=', with open brackets, such as a(1,2)
                parser.error(f'{option_string} takes KEY=VALUE pairs of plain values, but got {value}')


def add_exported(parser: argparse.ArgumentParser) -> None:
    help = 'file of tools/export.py of this checkpoint, which runs in place of the part that it holds'
    parser.add_argument('--exported', metavar='FILE', help=help)


def exported_hook(path: str) -> dict:
    """The settings of the hook of `--exported`; the file is read when it is built."""
    return dict(type='vitplug.lab.export.file.RunExportedHook', file=path)


def add_shape(parser: argparse.ArgumentParser) -> None:
    """Adds the option `--shape`, the size of the images."""
    help = 'height and width of the images, or one number for both (default: the size in the config)'
    parser.add_argument('--shape', type=int, nargs='+', metavar='PIXELS', help=help)
