"""Context Broadcasting (CB).

*Scratching Visual Transformer's Back with Uniform Attention*, Eq. (1) and its scaled form CB_S.
Every token of a residual branch receives the mean of all tokens: uniform attention, free of cost,
so that softmax attention is spared the dense interactions it finds hard to learn.
"""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn

from .plug import TOKEN_SOCKETS, LayerPlan, Plug


class ContextBroadcast(Plug):
    """Adds the mean of all tokens to every token, at one or more places of each block::

        CB      y_i = (x_i + mean_j x_j) / 2
        CB_S    y_i = x_i + Lambda * mean_j x_j        Lambda per channel, learned

    The mean is over every token of the image, class token included; over the whole feature map
    in windowed hosts. Both keep all tokens' shape ``(B, N, D)``.

    Args:
        scaled: False is CB, which has no parameters; True is CB_S.
        scale_init_value: Start of every ``Lambda``. 0 reproduces the host; 1 starts at twice CB.
        position: ``'mlp_front'`` (before the first layer of the MLP), ``'mlp_mid'`` (after its
            activation), ``'mlp_end'`` (after its last layer, the paper's choice), ``'msa'`` (after the
            attention's projection) or a list of these.
        layers: Blocks that get it, see :class:`Plug`. ``'upper'`` is the paper's CB in deep layers.

    Raises:
        ValueError: If an argument is none of these.
    """

    name = 'cb'

    def __init__(
        self,
        scaled: bool = False,
        scale_init_value: float = 0.0,
        position: str | Sequence[str] = 'mlp_end',
        layers: str | Sequence[int] = 'all',
    ):
        super().__init__(layers)
        positions = (position,) if isinstance(position, str) else tuple(position)
        if not positions or len(set(positions)) < len(positions) or not set(positions) <= set(TOKEN_SOCKETS):
            raise ValueError(f'position={position!r}: expected one of {list(TOKEN_SOCKETS)} or a list of them')
        if not isinstance(scaled, bool):
            raise ValueError(f'scaled={scaled!r}: expected True or False')
        if isinstance(scale_init_value, bool) or not isinstance(scale_init_value, int | float):
            raise ValueError(f'scale_init_value={scale_init_value!r}: expected a number')
        self.position = positions
        self.scaled = scaled
        self.scale_init_value = float(scale_init_value)

    def build_layer(self, plan: LayerPlan) -> Mapping[str, nn.Module]:
        return {socket: self._build(plan.width_at(socket)) for socket in self.position}

    def _build(self, dims: int) -> nn.Module:
        return ScaledBroadcast(dims, self.scale_init_value) if self.scaled else Broadcast()


class Broadcast(nn.Module):
    """``y = (x + mean(x)) / 2`` over the tokens of ``(B, N, D)``."""

    def forward(self, x_BND: Tensor) -> Tensor:
        return torch.lerp(x_BND, token_mean(x_BND), 0.5)


class ScaledBroadcast(nn.Module):
    """``y = x + cb_scale * mean(x)`` over the tokens of ``(B, N, D)``, ``cb_scale`` of shape ``(D,)``."""

    def __init__(self, dims: int, init_value: float):
        super().__init__()
        self.cb_scale = nn.Parameter(torch.full((dims,), init_value))

    def forward(self, x_BND: Tensor) -> Tensor:
        return x_BND + (self.cb_scale * token_mean(x_BND)).to(x_BND.dtype)


def token_mean(x_BND: Tensor) -> Tensor:
    """Mean over the tokens, ``(B, 1, D)``; summed in float32 at least, for there may be thousands."""
    wide = torch.promote_types(x_BND.dtype, torch.float32)
    return x_BND.mean(dim=1, keepdim=True, dtype=wide).to(x_BND.dtype)
