"""Memory and operations of a training step on fake tensors, which have a shape and a type and no numbers."""

import weakref
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import flop_registry
from torch.utils.weak import WeakIdKeyDictionary

from .workspaces import ATTENTION_BACKWARD, CONVOLUTIONS, of_attention, of_convolution

# Bytes of which torch's allocator on a GPU gives a multiple.
GRAIN = 512
# Operations that read and write nothing.
FREE = frozenset(('empty', 'empty_like', 'empty_strided', 'new_empty', 'device', 'detach', 'alias', 'set_', 'resize_'))


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
        tries_algorithms: Whether cuDNN tries its algorithms, which takes :func:`.workspaces.of_convolution`.

    Attributes:
        current: Bytes of the tensors that exist.
        gradients: Bytes of the parameters' gradients among them.
        peak: Most bytes so far.
        peak_without_gradients: Most bytes so far without the parameters' gradients.
        operations: How many times each operation ran.
    """

    def __init__(self, grain: int = GRAIN, tries_algorithms: bool = False):
        super().__init__()
        self.grain, self.tries_algorithms = grain, tries_algorithms
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
        if self.tries_algorithms and func in CONVOLUTIONS:
            self._reach(self.current + of_convolution(*CONVOLUTIONS[func](args, outs)))
        elif func is ATTENTION_BACKWARD:
            self._reach(self.current + of_attention(*args[1:4]))
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
