"""The commands of vitplug: `vitplug NAME`, and the function that each one runs. The scripts in `tools/` run the same.

Standard library only: `vitplug --help` loads no torch.
"""

import argparse
import shlex
import sys
from collections.abc import Sequence
from typing import NamedTuple


class Command(NamedTuple):
    """A command."""

    function: str  # module below `vitplug` and function; takes the arguments and may return an exit status
    help: str  # what it does, in a line


COMMANDS = {
    'new': Command('runs.new_experiment:main', 'write a config for your own data'),
    'check': Command('runs.dataset_check:main', 'look at all data of a config'),
    'train': Command('runs.training_commands:train', 'train the model of a config'),
    'test': Command('runs.training_commands:test', 'evaluate a checkpoint'),
    'predict': Command('runs.predict_command:main', 'predict on images, folders and videos'),
    'export': Command('lab.export.command:main', 'write a checkpoint as ONNX or torch.export'),
    'ablate': Command('lab.ablate.command:main', 'train configs or plugs with several seeds'),
    'study': Command('lab.study.command:main', 'measure models under conditions, for papers'),
    'pretrain': Command('lab.text.pretrain:main', 'pre-train a language model on masked words'),
    'glue': Command('lab.text.glue:main', 'fine-tune a language model on GLUE'),
    'microscope': Command('lab.microscope.command:main', 'write a page of what a model sees'),
    'config': Command('config.printing:print_config', 'print a config with all that it inherits'),
    'diff': Command('config.printing:print_difference', 'compare two configs'),
    'flops': Command('lab.costs:get_flops', 'count parameters and MACs'),
    'bench': Command('lab.bench:main', 'measure what plugs cost'),
    'convert': Command('checkpoints.checkpoint_commands:convert_main', 'convert a checkpoint of others'),
    'doctor': Command('doctor:main', 'check the installation and say how to repair it'),
}


def call(name: str, arguments: Sequence[str] | None = None) -> str:
    """How a shell calls a command; without arguments given, with those of this process."""
    return shlex.join(('vitplug', name, *(sys.argv[1:] if arguments is None else arguments)))


def command_parser(name: str, description: str) -> argparse.ArgumentParser:
    """The parser of a command, without options."""
    return argparse.ArgumentParser(prog=f'vitplug {name}', description=description)


def add_device(parser: argparse.ArgumentParser) -> None:
    """Adds the option `--device`."""
    parser.add_argument('--device', help='such as cpu or cuda:0 (default: an accelerator where there is one)')
