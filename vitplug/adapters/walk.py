"""One forward through the blocks of a model that vitplug does not own: how the carry gets from block to block.

The libraries' loops, ``for block in self.blocks: x = block(x, ...)``, pass tokens and nothing else. So the list of
blocks is replaced by :class:`PluggedBlocks`, and iterating over it begins a :class:`Walk`: it gives steps, one for each
block, which share the carry of this walk::

    for step in blocks:         a new walk, with its own carry
        x = step(x, ...)        block(x, ..., step=step): takes the carry that the step before left

A walk belongs to its loop and to the graph of autograd, not to a module. It keeps the carry with which each step began,
so activation checkpointing, which calls a step again in backward, repeats the same computation. Tokens that plugs add
travel with the carry, and the library's code never sees them.
"""

from collections.abc import Callable, Iterator, Mapping
from contextvars import ContextVar
from typing import Any

import torch
from torch import Tensor, nn

from vitplug.attention import Carry
from vitplug.attention.core import fuses

# Written by the hook of the patch embedding and read by the first block of the same forward, by each thread for itself.
_grid: ContextVar[tuple[int, int] | None] = ContextVar('grid', default=None)
# The same for compiled code, in which torch cannot follow context variables.
_compiled_grid: tuple[int, int] | None = None


def note_grid(module: nn.Module, args: Any, tokens_BDhw: Tensor) -> None:
    """Forward hook of a patch embedding's convolution: notes the rows and columns of tokens."""
    global _compiled_grid
    if torch.compiler.is_compiling():
        _compiled_grid = tuple(tokens_BDhw.shape[-2:])
    else:
        _grid.set(tuple(tokens_BDhw.shape[-2:]))


def take_grid() -> tuple[int, int] | None:
    """Rows and columns of tokens of the present forward, which no later one finds."""
    global _compiled_grid
    if torch.compiler.is_compiling():
        hw, _compiled_grid = _compiled_grid, None
    else:
        hw = _grid.get()
        _grid.set(None)
    return hw


class Walk:
    """The state of one forward: what the last step has left."""

    def __init__(self, host: Any):
        self.host = host
        self.recorder = None if torch.compiler.is_compiling() else host.active_recorder
        self.has_grad, self.fuses = torch.is_grad_enabled(), fuses()
        self.hw = take_grid()
        self.left: tuple[Carry, Tensor | None] = (host.plugs.start(), None)
        self.entered: dict[int, tuple[Carry, Tensor | None]] = {}

    def enter(self, index: int) -> tuple[Carry, Tensor | None]:
        """The carry, and the tokens of plugs, that block ``index`` takes; the same when it is called again."""
        if index not in self.entered:
            if not self.has_grad:  # no backward calls an earlier block again, and carries may be large
                self.entered.clear()
            self.entered[index] = self.left
        return self.entered[index]

    def leave(self, index: int, carry: Carry, prefix: Tensor | None) -> None:
        """Takes what block ``index`` hands on; nothing of a repetition.

        Raises:
            RuntimeError: If reentrant activation checkpointing would cut the gradient of what is handed on.
        """
        if index + 1 in self.entered:
            return
        if self.has_grad and not torch.is_grad_enabled() and (carry or prefix is not None):
            raise RuntimeError(
                'plugs hand tensors from block to block, and reentrant activation checkpointing gives these no '
                'gradient; use use_reentrant=False (gradient_checkpointing_kwargs of transformers)'
            )
        self.left = carry, prefix


class Step:
    """One block, or stage, in one walk, called as the block.

    ``on_prefix`` is what happens to tokens that plugs have added before they enter the block; None for nothing.
    """

    def __init__(self, walk: Walk, block: nn.Module, index: int, on_prefix: Callable[[Tensor], Tensor] | None = None):
        self.walk, self.block, self.index, self.on_prefix = walk, block, index, on_prefix

    #: What torch calls a step that is put into an ``nn.Sequential``, which cannot hold one.
    __name__ = 'a step of one forward (blocks with plugs run in their model; vitplug.unplug(model) gives them back)'

    def __call__(self, x: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        return self.block(x, *args, step=self, **kwargs)


class OpenStep(Step):
    """A step that other code may take for the block: further attributes are the block's."""

    def __init__(self, *own: Any):
        self.__dict__.update(vars(Step(*own)))

    def __getattr__(self, name: str) -> Any:
        if 'block' not in self.__dict__:  # while it is copied
            raise AttributeError(name)
        return getattr(self.block, name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self.block, name, value)


class PluggedBlocks(nn.ModuleList):
    """The blocks or stages of a model, in place of the library's list; keys of the state dict stay.

    Not an ``nn.Sequential``: timm takes the children of those, and iterates over others.
    """

    def __init__(self, modules: Mapping[str, nn.Module], host: Any):
        super().__init__()
        self._modules.update(modules)
        # In the dict: not a part of this list, which is a part of the model.
        self.__dict__['host'] = host

    def __iter__(self) -> Iterator[Step]:
        # The compiler cannot follow attributes that are the block's.
        walk, kind = Walk(self.host), Step if torch.compiler.is_compiling() else OpenStep
        steps = [kind(walk, block, index) for index, block in enumerate(self._modules.values())]
        stage = self.host.names.stage
        for step in steps if torch.compiler.is_compiling() and stage is not None else ():
            for name in stage.reads:
                setattr(step, name, getattr(step.block, name))
        return iter(steps)

    def __getitem__(self, index: int | slice) -> nn.Module:
        named = list(self._modules.items())
        if not isinstance(index, slice):
            return named[index][1]
        # Plugs need all blocks from the first one on; others are there to be set up, and cannot be called.
        chosen = named[index]
        is_start = chosen == named[: len(chosen)]
        return PluggedBlocks(dict(chosen), self.host) if is_start else nn.ModuleList(dict(chosen).values())

    def append(self, *added: Any) -> 'PluggedBlocks':
        """Refused, as all ways to put a block in, which would have no plugs, or to take one out of the host's count."""
        raise ValueError(
            'blocks with plugs take no others: call vitplug.unplug(model), change its blocks, and plug in again; '
            'model.blocks = model.blocks[:n] keeps the first ones'
        )

    insert = extend = __setitem__ = __delitem__ = append
    __repr__ = nn.Module.__repr__  # that of a list iterates

    def forward(self, x: Tensor) -> Tensor:
        """The blocks one after the other, as ``nn.Sequential`` does."""
        for step in self:
            x = step(x)
        return x
