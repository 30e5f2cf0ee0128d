"""An export from beginning to end: fold, trace, write, check, and remove what is wrong."""

import json
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from mmengine.config import Config
from torch import Tensor, nn
from torch.export import ExportedProgram

from vitplug.checkpoints.files import local_file
from vitplug.files.fingerprint import file_hash
from vitplug.hosting import PluggedModel
from vitplug.lab.image_size import read_image_size
from vitplug.lab.study.runs import turns_channels
from vitplug.runs.prediction import Predictor
from vitplug.tasks import TASKS

from .file import ExportedFile, notes_path
from .formats import FORMATS, INPUT
from .trace import AXES, SHOWN, NotExported, folded, open_sizes, quiet, trace
from .verify import Difference, check, compare, made_images, traced_shape, untraced_shapes


@dataclass(frozen=True)
class Request:
    """What is exported, and how.

    Attributes:
        cfg: Config of the training.
        checkpoint: Path or address of the checkpoint.
        out: The new file.
        format: Name of the format, of :data:`~vitplug.lab.export.formats.FORMATS`.
        part: Name of the part, of the task's `parts`; None for the usual one.
        dynamic: Axes that stay open, of :data:`~vitplug.lab.export.trace.AXES`.
        shape: Height and width that the model is for; None for those of the config.
        keep_plugs: Whether plugs stay unfolded.
        allow_changes: Whether the checkpoint may be of other settings.
    """

    cfg: Config
    checkpoint: str
    out: Path
    format: str
    part: str | None = None
    dynamic: Sequence[str] = ()
    shape: Sequence[int] | None = None
    keep_plugs: bool = False
    allow_changes: bool = False

    @property
    def parts(self) -> dict:
        """What a file can hold of a model of the task, by name; the first is the usual one."""
        return TASKS[self.cfg.default_scope].parts

    @property
    def part_name(self) -> str:
        """Name of the part."""
        return self.part or next(iter(self.parts))

    def check(self) -> None:
        """Checks the request, before a model is built.

        Raises:
            ValueError: If the format, an axis or the part is unknown, or the name of the file has another suffix.
            FileExistsError: If a file of the export exists.
            FileNotFoundError: If there is no folder for it.
            ImportError: If a package is missing.
        """
        for option, values, known in (
            ('--format', [self.format], FORMATS),
            ('--dynamic', self.dynamic, AXES),
            ('--part', [self.part_name], self.parts),
        ):
            for value in values:
                if value not in known:
                    raise ValueError(f'{option} {value}: unknown; choose from {", ".join(known)}')
        out, suffix = self.out, FORMATS[self.format].suffix
        if out.is_dir() or out.suffix != suffix:
            raise ValueError(f'--out {out}: name a file that ends in {suffix} for this --format')
        for path in (out, notes_path(out)):
            if os.path.lexists(path):
                raise FileExistsError(f'--out: {path} exists and is not overwritten: choose another name')
        if not out.parent.is_dir():
            raise FileNotFoundError(f'--out {out}: there is no folder {out.parent}: create it first')
        FORMATS[self.format].check_packages()


def export_model(request: Request, say: Callable[[str], None] = print) -> list[Difference]:
    """Exports a trained model.

    Args:
        request: What is exported.
        say: Called with each line of the log.

    Returns:
        The differences from PyTorch at all images that were compared.

    Raises:
        NotExported: If the model cannot be exported as it was asked for.
        WrongFile: If the file differs from PyTorch; it is removed.
        Exception: As :meth:`Request.check` and :class:`~vitplug.runs.prediction.Predictor`.
    """
    request.check()
    predictor = Predictor(request.cfg, request.checkpoint, 'cpu', allow_changes=request.allow_changes)
    size = read_image_size(request.cfg, request.shape)
    fixed = getattr(predictor.model.backbone, 'fixed_size', None)
    if fixed is not None and {'height', 'width'} & {*request.dynamic}:
        raise ValueError(
            f'--dynamic: {type(predictor.model.backbone).__name__} takes images of {fixed[0]} x {fixed[1]} pixels '
            'only: leave height and width out'
        )
    network = request.parts[request.part_name].network(predictor.model).eval()
    exported, count = (network, 0) if request.keep_plugs else folded(network)
    say(f'plugs: {count} modules folded to constants' if count else 'plugs: none folded')
    own = (size.height, size.width)
    traced = traced_shape(own, request.dynamic)
    program = trace(exported, made_images(traced, size.channels), request.dynamic)
    sizes = open_sizes(program, made_images(traced, size.channels), request.dynamic)
    shapes = untraced_shapes(own, traced, request.dynamic, sizes)
    made = [(str(tuple(x.shape)), x) for x in (made_images(shape, size.channels) for shape in shapes)]
    notes = _notes(request, predictor, program) | dict(traced=list(traced), sizes=sizes)
    try:
        return _write_and_check(request, network, program, notes, made, say)
    except BaseException:
        for path in (request.out, notes_path(request.out)):
            path.unlink(missing_ok=True)
        raise


def _write_and_check(
    request: Request,
    network: nn.Module,
    program: ExportedProgram,
    notes: dict[str, Any],
    batches: Sequence[tuple[str, Tensor]],
    say: Callable[[str], None],
) -> list[Difference]:
    try:
        with quiet():
            FORMATS[request.format].write(program, request.out, notes['outputs'], notes)
    except Exception as error:  # whatever an exporter raises
        reason = ' '.join(str(error).split())[:SHOWN]
        raise NotExported(f'cannot be written as {request.format}: {reason}; choose another --format') from error
    notes['sha256'] = file_hash(request.out)
    _write_notes(request.out, notes)
    say(f'file: {request.out}, {request.out.stat().st_size / 1e6:.1f} MB, {request.format}')
    say(f'input: {INPUT}; outputs: {", ".join(notes["outputs"])} ({notes["about"]})')
    say(f'dynamic: {", ".join(request.dynamic) or "none"}; traced with {" x ".join(map(str, notes["traced"]))}')
    if notes['sizes']:
        say('sizes: from {} pixels on, multiples of {}; others are refused'.format(*notes['sizes']))
    differences = compare(network, ExportedFile(request.out), batches)
    for one in differences:
        say(str(one))
    say(f'largest difference from PyTorch: {max(one.largest for one in differences):.2e}')
    check(differences)
    notes['checked'] = [dict(images=one.images, largest=one.largest, relative=one.relative) for one in differences]
    _write_notes(request.out, notes)
    return differences


def _write_notes(out: Path, notes: dict[str, Any]) -> None:
    notes_path(out).write_text(json.dumps(notes, indent=1) + '\n', encoding='utf-8')


def _notes(request: Request, predictor: Predictor, program: ExportedProgram) -> dict[str, Any]:
    """What stands in the side file, and in the file itself."""
    model, count = predictor.model, len(program.graph_signature.user_outputs)
    mean, std = (getattr(model.data_preprocessor, name, None) for name in ('mean', 'std'))
    return dict(
        format=request.format,
        task=TASKS[request.cfg.default_scope].name,
        part=request.part_name,
        about=request.parts[request.part_name].about,
        weights=file_hash(Path(local_file(request.checkpoint))),
        input=INPUT,
        outputs=[request.part_name] if count == 1 else [f'{request.part_name}{i}' for i in range(count)],
        dynamic=list(request.dynamic),
        counts_padding=isinstance(model.backbone, PluggedModel) and bool(model.backbone.plug_names),
        # What happens to the pixels between the test pipeline, which loads and resizes, and the file.
        preprocessing=dict(
            mean=None if mean is None else mean.flatten().tolist(),
            std=None if std is None else std.flatten().tolist(),
            channel_order='RGB' if turns_channels(model.data_preprocessor) else 'BGR, as OpenCV reads',
            pad_size_divisor=getattr(model.data_preprocessor, 'pad_size_divisor', 1),
        ),
        classes=predictor.task.classes,
        versions={'vitplug': version('vitplug'), 'torch': torch.__version__},
        config=request.cfg.pretty_text,
    )
