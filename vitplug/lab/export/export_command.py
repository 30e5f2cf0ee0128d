"""The command behind `tools/export.py`."""

import argparse
from collections.abc import Sequence
from pathlib import Path

from vitplug.config.options import add_allow_changes, add_options, model_parser
from vitplug.errors import one_line_errors
from vitplug.runs.checks import model_config

from .formats import FORMATS
from .run import Request, export_model
from .trace import AXES


def main(argv: Sequence[str] | None = None) -> None:
    """Exports a trained model, and removes the file if it differs from PyTorch.

    A wrong setting, a model that cannot be exported and a wrong file end in one line and exit status 2.
    """
    args = _parser().parse_args(argv)
    with one_line_errors():
        cfg = model_config(args.config, args.checkpoint, 'CHECKPOINT', args.cfg_options)
        request = Request(
            cfg,
            args.checkpoint,
            args.out,
            args.format,
            args.part,
            [axis for axis in (args.dynamic or '').split(',') if axis],
            args.shape,
            args.keep_plugs,
            args.allow_changes,
        )
        export_model(request)


def _parser() -> argparse.ArgumentParser:
    parser = model_parser(
        'export', 'Export a trained model as one file, compare it with PyTorch, and remove it if it differs.'
    )
    parser.add_argument('--out', required=True, type=Path, metavar='FILE', help='new file; FILE.json is written, too')
    parser.add_argument('--format', default='onnx', help=f'one of {", ".join(FORMATS)} (default onnx)')
    parser.add_argument(
        '--part',
        metavar='NAME',
        help='part of the model: scores (classifiers); logits or argmax (segmentors); features (detectors); backbone',
    )
    parser.add_argument('--dynamic', metavar='AXES', help=f'axes that stay open, of {",".join(AXES)}')
    parser.add_argument('--shape', type=int, nargs='+', metavar='N', help='height and width (default: of the config)')
    parser.add_argument('--keep-plugs', action='store_true', help='do not fold what plugs compute from parameters')
    add_options(parser)
    add_allow_changes(parser)
    return parser
