"""Memory and operations of a training step on fake tensors, which have a shape and a type and no numbers."""

import weakref
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import flop_registry
from torch.utils.weak import WeakIdKeyDictionary

# Bytes of which torch's allocator on a GPU gives a multiple.
GRAIN = 512
# Operations that read and write nothing.
FREE = frozenset(('empty', 'empty_like', 'empty_strided', 'new_empty', 'device', 'detach', 'alias', 'set_', 'resize_'))


# Input, output (or their gradients), weight and settings of convolutions, of their arguments and outputs.
CONVOLUTIONS = {
    torch.ops.aten.convolution.default: lambda args, outs: (args[0], outs[0], args[1], args[3:]),
    torch.ops.aten.convolution_backward.default: lambda args, outs: (args[1], args[0], args[2], args[4:]),
}
# Winograd's tiles of 6 x 6 for 4 x 4 outputs of a 3 x 3 convolution.
WINOGRAD = 36 / 16


def workspace(x: Tensor, out: Tensor, weight: Tensor, settings: Sequence) -> int:
    """Bytes that cuDNN takes beside the tensors of a convolution where it may try its algorithms.

    In float32 those of Winograd's algorithm, the transformed tiles of input and output; in half precision their copies
    in another layout; 0 for other convolutions than those of 3 x 3 with a stride of 1.

    Args:
        x: Input ``(B, C, H, W)``.
        out: Output.
        weight: ``(out channels, in channels, kernel height, kernel width)``.
        settings: Stride, padding, dilation, transposed, output padding and groups.
    """
    stride, _, dilation, transposed, _, groups = settings[:6]
    if weight.shape[2:] != (3, 3) or set(stride) != {1} or set(dilation) != {1} or transposed or groups != 1:
        return 0
    factor = WINOGRAD if x.itemsize == 4 else 1
    return int(factor * x.itemsize * (x.numel() + out.numel()))


@dataclass(frozen=True)
class Operation:
    """One operation on a GPU.

    Args:
        name: Its name in ATen.
        flops: Floating point operations of matrix products and convolutions, 0 for others.
        bytes: Bytes that it reads and writes at least.
        dtype: Type of its output.
    """

    name: str
    flops: int
    bytes: int
    dtype: torch.dtype

    @property
    def is_convolution(self) -> bool:
        return 'convolution' in self.name


class Trace(TorchDispatchMode):
    """Follows the tensors that exist and counts the operations, inside a ``with`` block under fake tensors.

    Args:
        grain: Bytes of which each tensor takes a multiple.
        has_workspaces: Whether convolutions take workspaces, see :func:`workspace`.

    Attributes:
        current: Bytes of the tensors that exist.
        gradients: Bytes of the parameters' gradients among them.
        peak: Most bytes so far.
        peak_without_gradients: Most bytes so far without the parameters' gradients.
        operations: How many times each operation ran.
    """

    def __init__(self, grain: int = GRAIN, has_workspaces: bool = False):
        super().__init__()
        self.grain, self.has_workspaces = grain, has_workspaces
        self.current = self.gradients = self.peak = self.peak_without_gradients = 0
        self.operations: Counter[Operation] = Counter()
        self._known = WeakIdKeyDictionary()

    def follow(self, tensors: Iterator[Tensor]) -> int:
        """Counts tensors that exist already; returns their bytes."""
        before = self.current
        for tensor in tensors:
            self._take(tensor)
        return self.current - before

    def follow_gradients(self, model: nn.Module) -> None:
        """Counts the gradients of a model's parameters apart, once they are there."""
        for parameter in model.parameters():
            if parameter.requires_grad:
                parameter.register_post_accumulate_grad_hook(self._add_gradient)

    def _add_gradient(self, parameter: Tensor) -> None:
        self.gradients += self._size(parameter.grad.untyped_storage())

    def restart(self) -> None:
        """Forgets the peaks and the operations so far."""
        self.gradients = 0
        self.peak = self.peak_without_gradients = self.current
        self.operations.clear()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        out = func(*args, **kwargs)
        outs = [leaf for leaf in tree_leaves(out) if isinstance(leaf, Tensor)]
        for tensor in outs:
            self._take(tensor)
        if self.has_workspaces and func in CONVOLUTIONS:
            self._reach(self.current + workspace(*CONVOLUTIONS[func](args, outs)))
        self._count(func, args, kwargs, out, outs)
        return out

    # --- memory ---

    def _size(self, storage: torch.UntypedStorage) -> int:
        return -(-storage.nbytes() // self.grain) * self.grain

    def _take(self, tensor: Tensor) -> None:
        storage = tensor.untyped_storage()
        if storage in self._known:
            return
        size = self._size(storage)
        self._known[storage] = size
        weakref.finalize(storage, self._release, size)
        self.current += size
        self._reach(self.current)

    def _reach(self, size: int) -> None:
        self.peak = max(self.peak, size)
        self.peak_without_gradients = max(self.peak_without_gradients, size - self.gradients)

    def _release(self, size: int) -> None:
        self.current -= size

    # --- operations ---

    def _count(self, func, args, kwargs, out, outs: list[Tensor]) -> None:
        name = func.overloadpacket.__name__
        inputs = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, Tensor)]
        if name in FREE or not outs or not (func._schema.is_mutable or _are_new(outs, inputs)):
            return
        packet = func.overloadpacket
        flops = flop_registry[packet](*args, **kwargs, out_val=out) if packet in flop_registry else 0
        moved = sum(min(t.numel() * t.itemsize, t.untyped_storage().nbytes()) for t in (*inputs, *outs))
        self.operations[Operation(name, int(flops), moved, outs[0].dtype)] += 1


def _are_new(outs: list[Tensor], inputs: list[Tensor]) -> bool:
    """False for views, which run no kernel."""
    known = {t.untyped_storage()._cdata for t in inputs}
    return any(t.untyped_storage()._cdata not in known for t in outs)
