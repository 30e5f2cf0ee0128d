"""Exported files: how they are read and run, and what they say of themselves."""

import json
from pathlib import Path
from typing import Any

import torch
from mmengine.hooks import Hook
from mmengine.runner import Runner
from torch import Tensor, nn

from vitplug.checkpoints.files import local_file
from vitplug.files.fingerprint import file_hash
from vitplug.hosting.padding import valid_sizes
from vitplug.tasks import task_of

from .formats import FORMATS


class ExportedFile:
    """An exported part of a model, which runs on the CPU.

    Args:
        path: A file that `tools/export.py` wrote; its side file lies beside it.

    Raises:
        ValueError: If its side file is another one's.
        FileNotFoundError: If it or its side file is missing.
        ImportError: If the package that runs it is missing.
    """

    def __init__(self, path: str | Path):
        self.path = Path(path)
        self.notes = read_notes(self.path)
        kind = FORMATS[self.notes['format']]
        kind.check_packages()
        self._run = kind.open(self.path)

    def __call__(self, images: Tensor) -> tuple[Tensor, ...]:
        """Outputs for normalised images ``(B, C, H, W)``.

        Raises:
            ValueError: If the file does not take images of this size or batch.
        """
        self._check(images)
        with torch.no_grad():
            outputs = self._run(images.detach().cpu().float().contiguous())
        return tuple(torch.as_tensor(output).to(images.device) for output in outputs)

    def _check(self, images: Tensor) -> None:
        smallest, divisor = self.notes['sizes'] or (1, 1)
        sizes = dict(batch=images.shape[0], height=images.shape[2], width=images.shape[3])
        for (axis, given), traced in zip(sizes.items(), self.notes['traced'], strict=True):
            if axis not in self.notes['dynamic'] and given != traced:
                raise ValueError(
                    f'{self.path}: takes a {axis} of {traced} only, not {given}: export it with --dynamic {axis}'
                )
            if axis in self.notes['dynamic'] and axis != 'batch' and (given < smallest or given % divisor):
                raise ValueError(
                    f'{self.path}: takes a {axis} from {smallest} pixels on, a multiple of {divisor}, not {given}: '
                    'resize the image, or export the model without --dynamic'
                )
        if valid_sizes(images) is not None and self.notes['counts_padding']:
            raise ValueError(
                f'{self.path}: the image is padded, and a plug of the model leaves padding out, which a file cannot: '
                'give images whose sizes are multiples of data_preprocessor.pad_size_divisor'
            )


def notes_path(path: Path) -> Path:
    """The side file of an exported file."""
    return path.with_name(f'{path.name}.json')


def read_notes(path: Path) -> dict[str, Any]:
    """What an exported file says of itself, in its side file.

    Raises:
        ValueError: If the side file is another one's.
    """
    side = notes_path(path)
    notes = json.loads(side.read_text(encoding='utf-8'))
    if notes['sha256'] != file_hash(path):
        raise ValueError(f'{side}: belongs to another file than {path}: copy the two together')
    return notes


class RunExportedHook(Hook):
    """`--exported`: a model runs a file in place of the part that the file holds.

    Args:
        file: The exported file.

    Raises:
        ValueError: If the file is of another checkpoint, or no predictions can be made from its part.
        Exception: As :class:`ExportedFile`.
    """

    def __init__(self, file: str):
        self.file = ExportedFile(file)

    def before_test(self, runner: Runner) -> None:
        """Once the weights are there."""
        model = runner.model
        while hasattr(model, 'module'):  # of several processes, or of several views
            model = model.module
        self.replace(model, runner._load_from)

    def replace(self, model: nn.Module, checkpoint: str) -> None:
        """Puts the file into a model with the weights of a checkpoint."""
        path, name, weights = self.file.path, self.file.notes['part'], file_hash(Path(local_file(checkpoint)))
        if self.file.notes['weights'] != weights:
            raise ValueError(
                f'--exported {path}: exported from another checkpoint (SHA-256 {self.file.notes["weights"][:8]}) than '
                f'{checkpoint} ({weights[:8]}): name the one that it is from'
            )
        parts = task_of(model).parts
        if name not in parts or parts[name].replace is None:
            usable = [other for other, part in parts.items() if part.replace]
            raise ValueError(
                f'--exported {path}: holds {name!r}, which gives no predictions: export one of {usable} with --part'
            )
        parts[name].replace(model, self.file)
