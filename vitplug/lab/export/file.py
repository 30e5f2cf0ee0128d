"""Exported files: how they are written and run in each format, and what they say of themselves."""

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from mmengine.hooks import Hook
from mmengine.runner import Runner
from torch import Tensor, nn
from torch.export import ExportedProgram

from vitplug.checkpoints.files import local_file
from vitplug.checkpoints.through_mmengine import bare_model
from vitplug.files.folders import file_hash
from vitplug.hosting.padding import valid_sizes
from vitplug.tasks.libraries import task_of

from .operators import REPLACED

INPUT = 'images'
#: Key of the notes inside of files.
KEY = 'vitplug.json'
# Of opset 20 on, ONNX's grid sampling, GELU and reductions are those of torch.
OPSET = 20
Run = Callable[[Tensor], Sequence[Any]]


class Format(NamedTuple):
    """How files are written, of a graph with notes, and opened: a function from images to outputs, and the notes."""

    write: Callable[[ExportedProgram, Path, Mapping[str, Any]], None]
    open: Callable[[Path], tuple[Run, dict[str, Any]]]


def _write_torch(program: ExportedProgram, path: Path, notes: Mapping[str, Any]) -> None:
    torch.export.save(program, path, extra_files={KEY: json.dumps(notes)})


def _open_torch(path: Path) -> tuple[Run, dict[str, Any]]:
    extra = {KEY: ''}
    module = torch.export.load(path, extra_files=extra).module()
    return module, json.loads(extra[KEY])


# With gradients, torch splits fused attention into other operations, which fail for open sizes of windows.
@torch.no_grad()
def _write_onnx(program: ExportedProgram, path: Path, notes: Mapping[str, Any]) -> None:
    import onnx

    graph = program.run_decompositions(dict(REPLACED))
    settings = dict(dynamo=True, verbose=False, opset_version=OPSET, external_data=False)
    written: Any = torch.onnx.export(graph, input_names=[INPUT], output_names=notes['outputs'], **settings)
    written.model.metadata_props[KEY] = json.dumps(notes)
    written.save(path, external_data=False)
    onnx.checker.check_model(path)


def _open_onnx(path: Path) -> tuple[Run, dict[str, Any]]:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = torch.get_num_threads()
    session = onnxruntime.InferenceSession(path, options, providers=['CPUExecutionProvider'])
    notes = json.loads(session.get_modelmeta().custom_metadata_map[KEY])
    return lambda images: session.run(None, {INPUT: images.numpy()}), notes


#: The formats by the ending of a file.
FORMATS = {'.onnx': Format(_write_onnx, _open_onnx), '.pt2': Format(_write_torch, _open_torch)}


class ExportedFile:
    """An exported part of a model, which runs on the CPU.

    Args:
        path: A file that `tools/export.py` wrote.

    Attributes:
        notes: What the file says of itself.

    Raises:
        FileNotFoundError: If it is missing.
        ImportError: If the package that runs it is missing.
    """

    def __init__(self, path: str | Path):
        self.path = Path(path)
        if self.path.suffix not in FORMATS or not self.path.is_file():
            raise FileNotFoundError(f'{path}: no such file of tools/export.py, {" or ".join(FORMATS)}')
        self._run, self.notes = FORMATS[self.path.suffix].open(self.path)

    def __call__(self, images: Tensor) -> tuple[Tensor, ...]:
        """Outputs for normalised images ``(B, C, H, W)``.

        Raises:
            ValueError: If the file does not take images of this size or batch.
        """
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
                f'give images whose sizes are multiples of {self.notes["preprocessing"]["pad_size_divisor"]}'
            )
        with torch.no_grad():
            outputs = self._run(images.detach().cpu().float().contiguous())
        return tuple(torch.as_tensor(output).to(images.device) for output in outputs)


class RunExportedHook(Hook):
    """`--exported`: a model runs a file in place of the part that the file holds.

    Args:
        file: The exported file.

    Raises:
        ValueError: If the file is of another checkpoint.
        Exception: As :class:`ExportedFile`.
    """

    def __init__(self, file: str):
        self.file = ExportedFile(file)

    def before_test(self, runner: Runner) -> None:
        """Once the weights are there."""
        self.replace(bare_model(runner.model), runner._load_from)

    def replace(self, model: nn.Module, checkpoint: str) -> None:
        """Puts the file into a model with the weights of a checkpoint."""
        path, name, weights = self.file.path, self.file.notes['part'], file_hash(Path(local_file(checkpoint)))
        if self.file.notes['weights'] != weights:
            raise ValueError(
                f'--exported {path}: exported from another checkpoint (SHA-256 {self.file.notes["weights"][:8]}) than '
                f'{checkpoint} ({weights[:8]}): name the one that it is from'
            )
        task_of(model).networks[name].replace(model, self.file)
