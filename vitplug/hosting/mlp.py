"""The MLP branch of a block, with its token sockets."""

from collections.abc import Callable

import torch.nn.functional as F
from torch import Tensor, nn

from vitplug.attention import Site
from vitplug.plugs import Bindable


class Mlp(nn.Module):
    """Two linear layers with GELU between them, under timm's names, with the same sockets; the branch alone.

    Args:
        in_dims: Width of the tokens that come in.
        hidden_dims: Width of the tokens at ``mlp_mid``.
        out_dims: Width of the tokens that go out; as those that come in by default.
        drop_rate: Drop rate after each layer.
    """

    def __init__(self, in_dims: int, hidden_dims: int, out_dims: int | None = None, drop_rate: float = 0.0):
        super().__init__()
        self.fc1 = nn.Linear(in_dims, hidden_dims)
        self.fc2 = nn.Linear(hidden_dims, out_dims or in_dims)
        self.drop = nn.Dropout(drop_rate)

    def forward(self, x_BND: Tensor, plugs: Bindable, site: Site) -> Tensor:
        """Tokens ``(B, N, in_dims)`` to ``(B, N, out_dims)``."""
        return feed_forward(self.hidden, self.out, x_BND, plugs, site)

    def hidden(self, x_BND: Tensor) -> Tensor:
        """Tokens to hidden tokens."""
        return self.drop(F.gelu(self.fc1(x_BND)))

    def out(self, hidden_BND: Tensor) -> Tensor:
        """Hidden tokens to tokens."""
        return self.drop(self.fc2(hidden_BND))


def feed_forward(
    hidden: Callable[[Tensor], Tensor], out: Callable[[Tensor], Tensor], x: Tensor, plugs: Bindable, site: Site
) -> Tensor:
    """The two halves of an MLP between its three sockets."""
    plugs = plugs.bind()
    for module in plugs.mlp_front:
        x = module(x, site)
    x = hidden(x)
    for module in plugs.mlp_mid:
        x = module(x, site)
    x = out(x)
    for module in plugs.mlp_end:
        x = module(x, site)
    return x
