"""Registers: *Vision Transformers Need Registers* (Darcet et al., 2023)."""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn

from vitplug.plugs import LayerPlan, Plug


class Registers(Plug):
    """Adds learned tokens before the first block, after the host's own prefix tokens and without a position.

    Args:
        num_registers: How many.
        keep: Whether they stay in the host's output of all tokens; dropped after the last block otherwise.

    Raises:
        ValueError: If there is not one register.
    """

    name = 'registers'

    def __init__(self, num_registers: int = 4, keep: bool = False):
        super().__init__()
        if not isinstance(num_registers, int) or num_registers < 1:
            raise ValueError(f'num_registers={num_registers!r}: expected an integer of at least 1')
        self.num_registers = self.num_prefix = num_registers
        self.keep = self.keeps_prefix = keep

    def build_network(self, plans: Sequence[LayerPlan]) -> Mapping[str, nn.Module]:
        return {'prefix': RegisterTokens(self.num_registers, plans[0].width_at('prefix'))}


class RegisterTokens(nn.Module):
    """``register_tokens`` of shape ``(1, R, D)``."""

    def __init__(self, number: int, dims: int):
        super().__init__()
        self.register_tokens = nn.Parameter(torch.empty(1, number, dims))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        nn.init.zeros_(self.register_tokens)
        nn.init.trunc_normal_(self.register_tokens, std=0.02)

    def forward(self, tokens_BND: Tensor, num_prefix: int) -> Tensor:
        """The registers after the first ``num_prefix`` tokens, ``(B, N + R, D)``."""
        registers = self.register_tokens.to(tokens_BND.dtype).expand(len(tokens_BND), -1, -1)
        return torch.cat((tokens_BND[:, :num_prefix], registers, tokens_BND[:, num_prefix:]), dim=1)
