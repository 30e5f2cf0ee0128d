"""Registers: *Vision Transformers Need Registers* (Darcet et al., ICLR 2024)."""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn

from .checks import check_flag, check_integer
from .plug import LayerPlan, Plug


class Registers(Plug):
    """Adds learned tokens before the first block, after the host's own prefix tokens and without a position.

    All tokens attend to them and they to all. Hosts with windows do not take them: a window sees its own tokens alone.

    Args:
        num_registers: How many.
        keep: Whether they stay in the host's output of all tokens; dropped after the last block otherwise.

    Raises:
        ValueError: If there is not one register.
    """

    name = 'registers'

    def __init__(self, num_registers: int = 4, keep: bool = False):
        super().__init__()
        self.num_registers = self.num_prefix = check_integer('num_registers', num_registers, least=1, most=10_000)
        self.keep = self.keeps_prefix = check_flag('keep', keep)

    def build_network(self, plans: Sequence[LayerPlan]) -> Mapping[str, nn.Module]:
        return {'prefix': RegisterTokens(self.num_registers, plans[0].width_at('prefix'))}


class RegisterTokens(nn.Module):
    """``register_tokens`` of shape ``(1, R, D)``."""

    def __init__(self, number: int, dims: int):
        super().__init__()
        self.register_tokens = nn.Parameter(torch.empty(1, number, dims))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draws the tokens."""
        nn.init.trunc_normal_(self.register_tokens, std=0.02)

    def forward(self, tokens_BND: Tensor, num_prefix: int) -> Tensor:
        """The registers after the first ``num_prefix`` tokens, ``(B, N + R, D)``."""
        registers = self.register_tokens.to(tokens_BND.dtype).expand(tokens_BND.shape[0], -1, -1)
        return torch.cat((tokens_BND[:, :num_prefix], registers, tokens_BND[:, num_prefix:]), dim=1)
