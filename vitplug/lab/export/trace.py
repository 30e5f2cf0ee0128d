"""One graph of a network for all images that it is to take."""

import copy
from collections.abc import Sequence
from itertools import takewhile

import torch
from torch import Tensor, nn
from torch.export import Dim, ExportedProgram, export

from vitplug.lab.costs import quiet
from vitplug.plugs.sockets import Folds

#: Axes of the images that may stay open, and their positions.
AXES = dict(batch=0, height=2, width=3)
# Divisors of sides that are tried.
DIVISORS = (1, 2, 4, 8, 16, 32, 64)


class NotExported(ValueError):
    """A model cannot be exported as it was asked for."""


def in_short(error: Exception) -> str:
    """What torch or a runtime says, which may be pages, in one line."""
    return ' '.join(str(error).split())[:400]


def folded(network: nn.Module) -> tuple[nn.Module, int]:
    """A copy of a network whose modules that fold are folded, and how many those are.

    Args:
        network: The network, in evaluation mode; it stays as it is.
    """
    network = copy.deepcopy(network)
    foldable = [module for module in network.modules() if isinstance(module, Folds)]
    for module in foldable:
        module.fold()
    return network, len(foldable)


def trace(network: nn.Module, images: Tensor, dynamic: Sequence[str]) -> ExportedProgram:
    """The graph of a network.

    Args:
        network: From images to a tuple of tensors, in evaluation mode.
        images: Example images ``(B, C, H, W)``; open axes are traced with a size of 2 or more.
        dynamic: Axes that stay open, of :data:`AXES`.

    Raises:
        NotExported: If torch cannot trace the network, or only for these sizes; has the reason.
    """
    shapes = ({AXES[axis]: Dim.DYNAMIC for axis in dynamic},) if dynamic else None
    try:
        with torch.no_grad(), quiet():
            program = export(network, (images,), dynamic_shapes=shapes, strict=False)
    except Exception as error:  # whatever torch, a host or a plug raises
        wish = f'with dynamic {", ".join(dynamic)}' if dynamic else f'for images of {tuple(images.shape)}'
        advice = 'leave axes of --dynamic out' if dynamic else 'choose another --part'
        raise NotExported(f'cannot be exported {wish}: {in_short(error)}; {advice}') from error
    if program.call_spec.out_spec.num_children != len(program.graph_signature.user_outputs):
        raise NotExported('cannot be exported: its outputs are pairs of tensors; choose another --part')
    return program


def open_sizes(program: ExportedProgram, images: Tensor, dynamic: Sequence[str]) -> tuple[int, int] | None:
    """The smallest open side of images, and its divisor, for which a graph holds; None if no side is open.

    Two open sides are tried as squares; a side that is not open stays as it was traced.

    A graph has conditions on sizes: windows are not larger than the map, or pooling divides it. ONNX drops them, and a
    file would be wrong in silence, so the conditions are tried from the traced size down, in steps of a divisor.

    Args:
        program: The graph.
        images: The images that it was traced with.
        dynamic: Its open axes.

    Raises:
        NotExported: If it holds for no divisor up to 64.
    """
    sides = [AXES[side] for side in ('height', 'width') if side in dynamic]
    if not sides:
        return None
    module = program.module()
    # torch has no public name for the conditions alone, and a run of the network for each size would take hours.
    conditions = getattr(module, '_guards_fn', None) or module

    def holds(side: int) -> bool:
        shape = [side if axis in sides else size for axis, size in enumerate(images.shape)]
        try:
            conditions(images.new_empty(shape))
        except Exception:  # torch raises AssertionError or RuntimeError, by the kind of the condition
            return False
        return True

    for divisor in DIVISORS:
        most = max(images.shape[axis] for axis in sides) // divisor * divisor
        if all(holds(side) for side in range(most, most + DIVISORS[-1] + 1, divisor)):
            return min(takewhile(holds, range(most, 0, -divisor))), divisor
    wish = ', '.join(dynamic)
    raise NotExported(f'--dynamic {wish}: the graph holds for traced sizes only; leave height and width out')
