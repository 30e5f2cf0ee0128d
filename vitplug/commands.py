"""The commands of vitplug: `vitplug NAME`, the function that each one runs, and its file in `tools/`.

Standard library only: `vitplug --help` loads no torch.
"""

import argparse
import os
import shlex
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

# How the user has started a command, `vitplug` or `python -m vitplug`; processes that it starts inherit it.
STARTED_AS = 'VITPLUG_STARTED_AS'
PACKAGE = Path(__file__).resolve().parent


@dataclass(frozen=True)
class Command:
    """A command.

    Attributes:
        function: Its module below `vitplug` and its function, which takes the arguments and may return an exit status.
        tool: The script that calls the same function, below `tools/`; None for none.
        help: What it does, in a line.
    """

    function: str
    tool: str | None
    help: str


COMMANDS = {
    'new': Command('runs.new_experiment:main', 'misc/new_experiment.py', 'write a config for your own data'),
    'check': Command('runs.dataset_check:main', 'misc/check_dataset.py', 'look at all data of a config'),
    'dry-run': Command('lab.dry_run:main', 'misc/dry_run.py', 'train two steps and say what they take'),
    'train': Command('runs.training_commands:train', 'train.py', 'train the model of a config'),
    'test': Command('runs.training_commands:test', 'test.py', 'evaluate a checkpoint'),
    'predict': Command('runs.prediction.predict_command:main', 'predict.py', 'predict on images, folders and videos'),
    'export': Command('lab.export.command:main', 'export.py', 'write a checkpoint as ONNX or torch.export'),
    'ablate': Command('lab.ablate.command:main', 'ablate.py', 'train a grid of plugs and settings with seeds'),
    'study': Command('lab.study.command:main', 'study.py', 'measure models under conditions, for papers'),
    'pretrain': Command('lab.text.pretrain:main', 'text/pretrain.py', 'pre-train a language model on masked words'),
    'glue': Command('lab.text.glue:main', 'text/glue.py', 'fine-tune a language model on GLUE'),
    'microscope': Command(
        'lab.microscope.command:main',
        'analysis_tools/microscope.py',
        'write a page of what a model sees',
    ),
    'config': Command(
        'lab.config_commands:print_config', 'misc/print_config.py', 'print a config with all that it inherits'
    ),
    'diff': Command('lab.config_commands:print_difference', None, 'compare two configs'),
    'flops': Command('lab.config_commands:get_flops', 'analysis_tools/get_flops.py', 'count parameters and MACs'),
    'bench': Command('lab.bench:main', 'analysis_tools/benchmark.py', 'measure what plugs cost'),
    'convert': Command(
        'checkpoints.checkpoint_commands:convert_main', 'model_converters/convert.py', 'convert a checkpoint of others'
    ),
    'doctor': Command('doctor:main', None, 'check the installation and say how to repair it'),
}


def call(name: str, arguments: Sequence[str] | None = ()) -> str:
    """How the user calls a command: as he has called this one, or by a file of the checkout if there is one.

    Args:
        name: Its name.
        arguments: What follows; quoted for a shell. None stands for the arguments of the process.
    """
    arguments = sys.argv[1:] if arguments is None else arguments
    tool = COMMANDS[name].tool
    if STARTED_AS not in os.environ and tool and (PACKAGE.parent / 'tools' / tool).is_file():
        program = f'python tools/{tool}'
    else:
        program = f'{os.environ.get(STARTED_AS, "vitplug")} {name}'
    return ' '.join((program, *map(shlex.quote, arguments)))


def command_parser(name: str, description: str) -> argparse.ArgumentParser:
    """The parser of a command, without options."""
    return argparse.ArgumentParser(prog=call(name), description=description)


def add_device(parser: argparse.ArgumentParser) -> None:
    """Adds the option `--device`."""
    parser.add_argument('--device', help='such as cpu or cuda:0 (default: an accelerator where there is one)')
