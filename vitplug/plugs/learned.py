"""Modules whose only parameters are learned vectors that start with constants."""

import torch
from torch import nn


class LearnedVectors(nn.Module):
    """Learned vectors of one size.

    Args:
        size: Their size.
        starts: The start of each, by its name, which is that of the parameter.
    """

    def __init__(self, size: int, **starts: float):
        super().__init__()
        self.starts = starts
        for name in starts:
            self.register_parameter(name, nn.Parameter(torch.empty(size)))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Gives every vector its start."""
        for name, start in self.starts.items():
            nn.init.constant_(self.get_parameter(name), start)
