"""The command ``vitplug export``: fold, trace, write, compare with PyTorch, and remove a file that is wrong."""

import argparse
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from mmengine.config import Config
from torch.export import ExportedProgram

from vitplug.checkpoints.files import local_file
from vitplug.config.image_size import read_image_size
from vitplug.config.options import add_options, add_shape, model_parser
from vitplug.files.folders import file_hash
from vitplug.files.named import check_new_file
from vitplug.hosting import PluggedModel
from vitplug.lab.costs import quiet
from vitplug.lab.study.runs import turns_channels
from vitplug.runs.checks import model_config
from vitplug.runs.prediction import Predictor
from vitplug.tasks.libraries import TASKS

from .file import FORMATS, INPUT, ExportedFile
from .trace import AXES, NotExported, folded, in_short, open_sizes, trace
from .verify import COMPARED, STEP, TRACED, compare, made_images, shape_of


def main(argv: Sequence[str] | None = None) -> None:
    """Exports a trained model, and removes the file if it differs from PyTorch.

    Raises:
        ValueError: If an option is wrong; NotExported if the model cannot be exported so; WrongFile if the file differs
            from PyTorch, and is removed.
        OSError: If the file exists, or has no folder.
        ImportError: If a package is missing.
    """
    args = _parser().parse_args(argv)
    out, dynamic = args.out, [axis for axis in (args.dynamic or '').split(',') if axis]
    cfg = model_config(args.config, args.checkpoint, 'CHECKPOINT', args.cfg_options)
    parts = TASKS[cfg.default_scope].networks
    part = args.part or next(iter(parts))
    check_request(out, part, list(parts), dynamic)
    predictor = Predictor(cfg, args.checkpoint, 'cpu')
    channels, *own = read_image_size(cfg, args.shape)
    network = parts[part].of(predictor.model).eval()
    exported, count = folded(network)
    print(f'plugs: {count} modules folded to constants' if count else 'plugs: none folded')
    traced = shape_of(own, dynamic, TRACED, (1, STEP))
    program = trace(exported, made_images(traced, channels), dynamic)
    sizes = open_sizes(program, made_images(traced, channels), dynamic)
    notes = _notes(cfg, predictor, part, program)
    notes |= dict(weights=file_hash(Path(local_file(args.checkpoint))), dynamic=dynamic, traced=[*traced], sizes=sizes)
    try:
        _write(program, out, notes)
        print(f'file: {out}, {out.stat().st_size / 1e6:.1f} MB')
        print(f'input: {INPUT}; outputs: {", ".join(notes["outputs"])}')
        print(f'dynamic: {", ".join(dynamic) or "none"}; traced with {" x ".join(map(str, traced))}')
        if sizes:
            print('sizes: from {} pixels on, multiples of {}; others are refused'.format(*sizes))
        shapes = dict.fromkeys(shape_of(own, dynamic, more, sizes or (1, 1)) for more in COMPARED)
        compare(network, ExportedFile(out), (made_images(shape, channels) for shape in shapes))
    except BaseException:
        out.unlink(missing_ok=True)
        raise


def _parser() -> argparse.ArgumentParser:
    about = 'Export a trained model as one file, compare it with PyTorch, and remove it if it differs.'
    parser = model_parser('export', about)
    add, kinds = parser.add_argument, 'FILE.onnx, or FILE.pt2 of torch.export'
    add('--out', required=True, type=Path, metavar='FILE', help=f'new file: {kinds}')
    parts = 'scores (classifiers); logits (segmentors); features (detectors); backbone'
    add('--part', metavar='NAME', help=f'part of the model: {parts}')
    add('--dynamic', metavar='AXES', help=f'axes that stay open, of {",".join(AXES)}')
    add_shape(parser)
    add_options(parser)
    return parser


def check_request(out: Path, part: str, parts: Sequence[str], dynamic: Sequence[str]) -> None:
    """Checks options before a model is built; raises as :func:`main`."""
    for option, values, known in (('--dynamic', dynamic, AXES), ('--part', [part], parts)):
        for value in values:
            if value not in known:
                raise ValueError(f'{option} {value}: unknown; choose from {", ".join(known)}')
    check_new_file(out, '--out', tuple(FORMATS))
    if not out.parent.is_dir():
        raise FileNotFoundError(f'--out {out}: there is no folder {out.parent}: create it first')


def _write(program: ExportedProgram, out: Path, notes: dict[str, Any]) -> None:
    try:
        with quiet():
            FORMATS[out.suffix].write(program, out, notes)
    except ImportError as error:
        raise ImportError(f"{error}: pip install -e '.[export]'") from error
    except Exception as error:  # whatever an exporter raises
        raise NotExported(f'cannot be written as {out.suffix}: {in_short(error)}; choose another format') from error


def _notes(cfg: Config, predictor: Predictor, part: str, program: ExportedProgram) -> dict[str, Any]:
    """What a file says of itself."""
    model, count = predictor.model, len(program.graph_signature.user_outputs)
    preprocessor = model.data_preprocessor
    mean, std = (getattr(preprocessor, name, None) for name in ('mean', 'std'))
    divisor = getattr(preprocessor, 'pad_size_divisor', 1)
    if hasattr(preprocessor, 'test_cfg'):  # mmseg's, whose own divisor is of trainings
        divisor = (preprocessor.test_cfg or {}).get('size_divisor') or 1
    return dict(
        task=TASKS[cfg.default_scope].name,
        part=part,
        outputs=[part] if count == 1 else [f'{part}{i}' for i in range(count)],
        counts_padding=isinstance(model.backbone, PluggedModel) and bool(model.backbone.plug_names),
        # What happens to the pixels between the test pipeline, which loads and resizes, and the file.
        preprocessing=dict(
            mean=None if mean is None else mean.flatten().tolist(),
            std=None if std is None else std.flatten().tolist(),
            channel_order='that of the test pipeline' + (', reversed' if turns_channels(preprocessor) else ''),
            pad_size_divisor=divisor,
        ),
        classes=predictor.classes,
        versions={'vitplug': version('vitplug'), 'torch': torch.__version__},
        config=cfg.pretty_text,
    )
