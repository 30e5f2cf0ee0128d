"""Gradients to images and tokens, without what gradients to parameters would need."""

from collections.abc import Iterator
from contextlib import contextmanager

from torch import nn

from vitplug.hosting import PluggedModel


@contextmanager
def frozen(model: nn.Module) -> Iterator[None]:
    """Keeps no activations for gradients of parameters, which nobody asks for: they are the largest part."""
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    for parameter in trained:
        parameter.requires_grad_(False)
    try:
        yield
    finally:
        for parameter in trained:
            parameter.requires_grad_(True)


@contextmanager
def checkpointed(backbone: PluggedModel) -> Iterator[None]:
    """Computes the activations of blocks again in backward, so that large images fit into memory."""
    blocks = [block for block in backbone.plugged_blocks() if not block.with_cp]
    for block in blocks:
        block.with_cp = True
    try:
        yield
    finally:
        for block in blocks:
            block.with_cp = False
