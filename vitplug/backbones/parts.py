"""Inference on a CPU by parts of the tokens, which stay in the processor's cache all along a branch."""

import torch
from torch import Tensor, nn

from vitplug.compat import is_compiling

# Tokens of one part: fewer make products slower.
TOKENS = 1024


def num_parts(x_BND: Tensor, branch: nn.Module) -> int:
    """Into how many parts of the tokens ``(B, N, D)`` a branch is best computed; 1 where it does not pay.

    Autograd would keep what lies between for all tokens anyway, and a graph that is being compiled is torch's to cut.
    In training mode all go together without gradients too: activation checkpointing must draw dropout twice alike.
    """
    together = torch.is_grad_enabled() or branch.training or is_compiling() or x_BND.device.type != 'cpu'
    parts = x_BND.shape[:-1].numel() // TOKENS
    return 1 if together or parts < 4 else parts
