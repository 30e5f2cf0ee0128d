"""Folding: what plugs compute from their parameters alone becomes constants."""

import copy

from torch import nn

from vitplug.plugs.sockets import Folds


def folded(network: nn.Module) -> tuple[nn.Module, int]:
    """A copy of a network whose modules that fold are replaced, and how many those are.

    Args:
        network: The network, in evaluation mode; it stays as it is.
    """
    network, count = copy.deepcopy(network), 0
    for parent in list(network.modules()):
        for name, child in list(parent.named_children()):
            if isinstance(child, Folds) and (constant := child.folded()) is not child:
                setattr(parent, name, constant.eval())
                count += 1
    return network, count
