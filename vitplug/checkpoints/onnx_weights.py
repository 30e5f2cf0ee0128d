"""Weights out of an ONNX file, under the names that they had in torch."""

import re
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import torch
from torch import Tensor

#: What torch's exporters call a tensor that they have folded: transposed, cut or joined.
FOLDED = re.compile(r'(?:onnx::\w+|val_\d+)$')


def read_onnx(path: Path) -> dict[str, Tensor]:
    """The named initialisers of a graph, and those whose name the node that uses them tells.

    torch's exporter transposes the weights of linear layers, whose nodes keep the path of the layer, and cuts a
    table of positions into the class token's and the grid's.

    Raises:
        ImportError: If the package `onnx` is missing.
        OSError: If the exporter has folded another tensor, so that nothing tells its name.
    """
    try:
        import onnx
        from onnx.numpy_helper import to_array
    except ImportError as error:
        raise ImportError(f'{path}: weights of ONNX files need the package onnx: pip install onnx') from error
    graph = onnx.load(path).graph
    # Copied: the arrays are views of the file's bytes, which cannot be written.
    tensors = {tensor.name: torch.from_numpy(to_array(tensor).copy()) for tensor in graph.initializer}
    folded = {name: tensors.pop(name) for name in list(tensors) if FOLDED.match(name)}
    tensors.update(_linear_weights(graph, folded))
    tensors.update(_position_tables(graph, folded))
    # Shapes and indices are no weights.
    left = {name: tuple(t.shape) for name, t in folded.items() if t.numel() > 1 and t.dtype != torch.int64}
    if left:
        name, shape = next(iter(left.items()))
        raise OSError(
            f'{path}: {len(left)} tensors have lost their names, such as {name} of {shape}: export the model again '
            'with do_constant_folding=False (of dynamo=True: optimize=False), or convert its checkpoint of torch'
        )
    return {name: tensor for name, tensor in tensors.items() if tensor.is_floating_point()}


def _linear_weights(graph, folded: dict[str, Tensor]) -> Iterator[tuple[str, Tensor]]:
    """Weights of linear layers by name; they are taken out of the folded tensors."""
    for node in graph.node:
        if node.op_type == 'MatMul' and _module_of(node) and node.input[1] in folded:
            yield f'{_module_of(node)}.weight', folded.pop(node.input[1]).T.contiguous()


def _position_tables(graph, folded: dict[str, Tensor]) -> Iterator[tuple[str, Tensor]]:
    """Tables of positions, ``(1, 1 + N, D)``, as transformers has them: a class token's, and a grid's to be resized."""
    uses = [(node.op_type, _module_of(node), name) for node in graph.node for name in node.input if name in folded]
    first = {module: name for kind, module, name in uses if kind == 'Concat' and folded[name].shape[:2] == (1, 1)}
    grids = [(module, name) for kind, module, name in uses if kind == 'Reshape' and folded[name].ndim == 3]
    for module, name in grids:
        if module in first:
            yield f'{module}.position_embeddings', torch.cat((folded.pop(first[module]), folded.pop(name)), dim=1)


def _module_of(node) -> str:
    """Name of the module in which a node was traced, `blocks.0.fc` of `/blocks/blocks.0/fc/MatMul`; ``''`` for none."""
    parts = node.name.strip('/').split('/')
    return '.'.join(part for part, after in pairwise(parts) if not after.startswith(f'{part}.'))
