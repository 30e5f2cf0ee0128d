"""Registers: *Vision Transformers Need Registers* (Darcet et al., ICLR 2024), and registers at test time: *Vision
Transformers Don't Need Trained Registers* (Jiang et al., NeurIPS 2025)."""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn

from ..attention.site import Site
from .checks import check_flag, check_integer
from .plug import LayerPlan, Plug


class Registers(Plug):
    """Adds tokens before the first block, after the host's own prefix tokens and without a position.

    All tokens attend to them and they to all. They are learned; with ``neurons``, which needs no training, they are
    zeros to which a few hidden channels of the MLPs, the *register neurons*, move what makes outliers of patches::

        h_rn <- max_i h_in          for the new tokens r, over all tokens i
        h_in <- 0                   for the tokens i of the grid

    h is the MLP's hidden activation and n a register neuron of the block; a function of the page on further plugs finds
    them in a trained model. The host's own prefix tokens stay as they are. Hosts with windows do not take registers: a
    window sees its own tokens alone.

    Args:
        num_registers: How many.
        keep: Whether they stay in the host's output of all tokens; dropped after the last block otherwise.
        neurons: Pairs of a block index and a hidden channel; None for learned tokens.

    Raises:
        ValueError: If there is not one register, ``neurons`` are no pairs, a block has no such channel, or another plug
            adds tokens beside those of ``neurons``.
    """

    name = 'registers'
    undecayed = ('register_tokens',)

    def __init__(self, num_registers: int = 4, keep: bool = False, neurons: Sequence[Sequence[int]] | None = None):
        self.neurons = None if neurons is None else _pairs(neurons)
        super().__init__('all' if self.neurons is None else sorted({block for block, _ in self.neurons}))
        self.num_registers = self.num_prefix = check_integer('num_registers', num_registers, least=1)
        self.keep = self.keeps_prefix = check_flag('keep', keep)

    def build_layer(self, plan: LayerPlan) -> Mapping[str, nn.Module]:
        if self.neurons is None:
            return {}
        channels = sorted(channel for block, channel in self.neurons if block == plan.index)
        if channels[-1] >= plan.shape.hidden_dims:
            raise ValueError(
                f'Registers: neurons has ({plan.index}, {channels[-1]}), and block {plan.index} has '
                f'{plan.shape.hidden_dims} hidden channels: find the neurons of this model'
            )
        num_own = len(plan.prefix_names)
        if plan.site.layout.num_prefix > num_own + self.num_registers:
            raise ValueError(
                'Registers: another plug adds tokens beside those to which neurons move; keep one of the two'
            )
        return {'mlp_mid': MovedNeurons(channels, num_own, self.num_registers)}

    def build_network(self, plans: Sequence[LayerPlan]) -> Mapping[str, nn.Module]:
        dims = plans[0].width_at('prefix')
        return {'prefix': RegisterTokens(self.num_registers, dims, is_learned=self.neurons is None)}


def _pairs(neurons: Sequence[Sequence[int]]) -> list[tuple[int, int]]:
    """The pairs without repeats, in order."""
    lists = (list, tuple)
    is_pairs = isinstance(neurons, lists) and all(isinstance(pair, lists) and len(pair) == 2 for pair in neurons)
    if not is_pairs or not neurons or not all(type(i) is int and i >= 0 for pair in neurons for i in pair):
        raise ValueError(f'neurons={neurons!r}: expected pairs of a block and a channel, such as [(5, 120), (6, 7)]')
    return sorted({(block, channel) for block, channel in neurons})


class RegisterTokens(nn.Module):
    """``register_tokens`` of shape ``(1, R, D)``: learned, or zeros that no file holds."""

    def __init__(self, number: int, dims: int, is_learned: bool = True):
        super().__init__()
        self.number = number
        self.register_tokens = nn.Parameter(torch.empty(1, number, dims)) if is_learned else None
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draws the tokens."""
        if self.register_tokens is not None:
            nn.init.trunc_normal_(self.register_tokens, std=0.02)

    def forward(self, tokens_BND: Tensor, num_prefix: int) -> Tensor:
        """The registers after the first ``num_prefix`` tokens, ``(B, N + R, D)``."""
        batch, _, dims = tokens_BND.shape
        if self.register_tokens is None:
            registers = tokens_BND.new_zeros(batch, self.number, dims)
        else:
            registers = self.register_tokens.to(tokens_BND.dtype).expand(batch, -1, -1)
        return torch.cat((tokens_BND[:, :num_prefix], registers, tokens_BND[:, num_prefix:]), dim=1)


class MovedNeurons(nn.Module):
    """Moves hidden channels to the ``number`` new tokens after the ``first`` ones."""

    channels: Tensor

    def __init__(self, channels: Sequence[int], first: int, number: int):
        super().__init__()
        self.values, self.first, self.number = list(channels), first, number
        self.register_buffer('channels', torch.empty(len(channels), dtype=torch.long), persistent=False)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Sets the channels."""
        self.channels.copy_(torch.tensor(self.values))

    def forward(self, hidden_BND: Tensor, site: Site) -> Tensor:
        own_BNn = hidden_BND.index_select(2, self.channels)
        seen_BNn = own_BNn if site.valid is None else own_BNn.masked_fill(~site.valid[:, :, None], -torch.inf)
        most_B1n = seen_BNn.amax(1, keepdim=True)
        of_registers, of_grid = most_B1n.expand(-1, self.number, -1), own_BNn[:, self.first + self.number :]
        moved_BNn = torch.cat((own_BNn[:, : self.first], of_registers, torch.zeros_like(of_grid)), dim=1)
        return hidden_BND.index_copy(2, self.channels, moved_BNn)
