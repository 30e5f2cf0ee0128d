"""A plug of functions, for tests of the sockets."""

import torch
from torch import nn

from vitplug.plugs import Plug


class Probe(Plug):
    """Modules of functions: ``socket=function``, which need not be torch's."""

    def __init__(self, name, rank=0, layers='all', **functions):
        super().__init__(layers)
        self.name, self.rank, self.functions = name, rank, functions

    def build_layer(self, plan):
        return {socket: Function(function) for socket, function in self.functions.items()}


class Function(nn.Module):
    def __init__(self, function):
        super().__init__()
        self.weight, self.function = nn.Parameter(torch.tensor(0.3)), function
        self.needs_tokens = getattr(function, 'needs_tokens', True)

    def forward(self, *arguments):
        return self.function(self.weight.to(arguments[0].dtype), *arguments)
