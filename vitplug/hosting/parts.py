"""Inference on a CPU by parts of the tokens, which stay in the processor's cache all along a branch."""

import torch
from torch import Tensor, nn

from vitplug.attention import tuning


def num_parts(x_BND: Tensor, branch: nn.Module) -> int:
    """Into how many parts of the tokens ``(B, N, D)`` a branch is best computed; 1 where it does not pay.

    Autograd would keep the intermediates of all tokens anyway, and torch cuts a graph that is being compiled. Training
    mode has one part, without gradients too: activation checkpointing must draw the same dropout twice.
    """
    graph = torch.is_grad_enabled() or torch.compiler.is_compiling()
    if graph or branch.training or not tuning.on_cpu(x_BND.device):
        return 1  # before the tokens are counted, which would fix their number in an exported graph
    parts = x_BND.shape[:-1].numel() // tuning.PART
    return 1 if parts < 4 else parts
