"""The formats of exported files: how a graph is written in each, and how a file is run."""

import importlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.export import ExportedProgram

from .operators import REPLACED

INPUT = 'images'
#: Key of the notes inside of files.
KEY = 'vitplug'
# Of opset 20 on, ONNX's grid sampling, GELU and reductions are those of torch.
OPSET = 20


@dataclass(frozen=True)
class Format:
    """A format of files.

    Attributes:
        suffix: End of the file's name.
        packages: Packages that writing and checking need.
        write: Writes a graph with names of its outputs and notes.
        open: Gives a function from images to outputs, NumPy arrays or tensors.
    """

    suffix: str
    packages: tuple[str, ...]
    write: Callable[[ExportedProgram, Path, Sequence[str], Mapping[str, Any]], None]
    open: Callable[[Path], Callable[[Tensor], Sequence[Any]]]

    def check_packages(self) -> None:
        """Checks that all packages are installed.

        Raises:
            ImportError: names the missing one, and the command that installs it.
        """
        for package in self.packages:
            try:
                importlib.import_module(package)
            except ImportError as error:
                raise ImportError(f"needs {package}: pip install 'vitplug[export]'") from error


def _write_torch(program: ExportedProgram, path: Path, outputs: Sequence[str], notes: Mapping[str, Any]) -> None:
    torch.export.save(program, path, extra_files={f'{KEY}.json': json.dumps(notes)})


def _open_torch(path: Path) -> Callable[[Tensor], Sequence[Any]]:
    module = torch.export.load(path).module()
    return lambda images: module(images)


# With gradients, torch splits fused attention into other operations, which fail for open sizes of windows.
@torch.no_grad()
def _write_onnx(program: ExportedProgram, path: Path, outputs: Sequence[str], notes: Mapping[str, Any]) -> None:
    import onnx

    written: Any = torch.onnx.export(
        program.run_decompositions(dict(REPLACED)),
        dynamo=True,
        verbose=False,
        opset_version=OPSET,
        input_names=[INPUT],
        output_names=list(outputs),
        external_data=False,
    )
    written.model.metadata_props[KEY] = json.dumps(notes)
    written.save(path, external_data=False)
    onnx.checker.check_model(path)


def _open_onnx(path: Path) -> Callable[[Tensor], Sequence[Any]]:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = torch.get_num_threads()
    session = onnxruntime.InferenceSession(path, options, providers=['CPUExecutionProvider'])
    name = session.get_inputs()[0].name
    return lambda images: session.run(None, {name: images.numpy()})


FORMATS: dict[str, Format] = dict(
    torch=Format('.pt2', (), _write_torch, _open_torch),
    onnx=Format('.onnx', ('onnx', 'onnxscript', 'onnxruntime'), _write_onnx, _open_onnx),
)
