"""Modules of plugs: vectors that start with constants, and work on parameters alone that an export does once."""

from typing import Any

import torch
from torch import Tensor, nn


class LearnedVectors(nn.Module):
    """Learned vectors of one size.

    Args:
        size: Their size, or shape.
        starts: The start of each, by its name, which is that of the parameter.
    """

    def __init__(self, size: int | tuple[int, ...], **starts: float):
        super().__init__()
        self.starts = starts
        for name in starts:
            self.register_parameter(name, nn.Parameter(torch.empty(size)))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Gives every vector its start."""
        for name, start in self.starts.items():
            nn.init.constant_(self.get_parameter(name), start)


class FoldsConstants(nn.Module):
    """A module that makes tensors of its parameters alone, and its output of these tensors.

    Once folded (:class:`~vitplug.plugs.sockets.Folds`) it has them as buffers, and no parameters.
    """

    is_folded = False

    def make_constants(self) -> tuple[Tensor | None, ...]:
        """The tensors."""
        raise NotImplementedError

    def constants(self) -> tuple[Any, ...]:
        """The tensors, as they were folded or made anew."""
        return tuple(self._buffers.values()) if self.is_folded else self.make_constants()

    @torch.no_grad()
    def fold(self) -> None:
        """Keeps the tensors in place of the parameters."""
        constants, self.is_folded = self.make_constants(), True
        self._parameters.clear()
        for index, constant in enumerate(constants):
            self.register_buffer(f'constant{index}', constant)
