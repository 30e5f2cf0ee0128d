"""Exported files: how they are read and run, and what they say of themselves."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from vitplug.files.fingerprint import file_hash
from vitplug.hosting.padding import valid_sizes

#: The side file of an exported file: its name with this at the end.
NOTES = '.json'
#: Key of the notes inside of files that can hold them.
KEY = 'vitplug'

Outputs = Sequence[Any]


@dataclass(frozen=True)
class Reader:
    """How files of one format are read.

    Attributes:
        needs: The package that runs them, as an extra of pip names it.
        open: Gives a function from images to outputs, NumPy arrays or tensors.
    """

    needs: str
    open: Callable[[Path], Callable[[Tensor], Outputs]]


def _open_torch(path: Path) -> Callable[[Tensor], Outputs]:
    module = torch.export.load(path).module()
    return lambda images: module(images)


def _open_onnx(path: Path) -> Callable[[Tensor], Outputs]:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = torch.get_num_threads()
    session = onnxruntime.InferenceSession(path, options, providers=['CPUExecutionProvider'])
    name = session.get_inputs()[0].name
    return lambda images: session.run(None, {name: images.numpy()})


#: Readers by suffix.
READERS: Mapping[str, Reader] = {
    '.pt2': Reader('torch', _open_torch),
    '.onnx': Reader('onnxruntime', _open_onnx),
}


class ExportedFile:
    """An exported part of a model, which runs on the CPU.

    Args:
        path: A file that `tools/export.py` wrote; its side file lies beside it.

    Raises:
        ValueError: If it is none, or its side file is another one's.
        FileNotFoundError: If it or its side file is missing.
        ImportError: If the package that runs it is missing.
    """

    def __init__(self, path: str | Path):
        self.path = Path(path)
        self.notes = read_notes(self.path)
        reader = READERS[self.path.suffix]
        try:
            self._run = reader.open(self.path)
        except ImportError as error:
            raise ImportError(f"{path}: needs {reader.needs}: pip install 'vitplug[export]'") from error
        except Exception as error:  # whatever the runtime raises for a broken file
            reason = ' '.join(str(error).split())[:200]
            raise ValueError(f'{path}: cannot be read as {self.notes["format"]}: {reason}') from error

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
        for axis, given, traced in zip(('batch', 'height', 'width'), _sizes(images), self.notes['traced'], strict=True):
            if axis not in self.notes['dynamic'] and given != traced:
                raise ValueError(
                    f'{self.path}: takes a {axis} of {traced} only, not {given}: export it with --dynamic {axis}'
                )
        smallest, divisor = self.notes['sizes'] or (1, 1)
        for side, given in zip(('height', 'width'), images.shape[-2:], strict=True):
            if side in self.notes['dynamic'] and (given < smallest or given % divisor):
                raise ValueError(
                    f'{self.path}: takes a {side} from {smallest} pixels on, a multiple of {divisor}, not {given}: '
                    'resize the image, or export the model without --dynamic'
                )
        if valid_sizes(images) is not None and self.notes['counts_padding']:
            raise ValueError(
                f'{self.path}: the image is padded, and a plug of the model leaves padding out, which a file cannot: '
                'give images whose sizes are multiples of data_preprocessor.pad_size_divisor'
            )


def _sizes(images: Tensor) -> tuple[int, int, int]:
    return images.shape[0], images.shape[2], images.shape[3]


def notes_path(path: Path) -> Path:
    """The side file of an exported file."""
    return path.with_name(path.name + NOTES)


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
