"""Context Broadcasting (CB) and the variants it is compared with.

*Scratching Visual Transformer's Back with Uniform Attention*, Eq. (1), its scaled form CB_S and the
ablations of its tables. Every token of a residual branch receives the mean of all tokens: uniform
attention, free of cost, so that softmax attention is spared the dense interactions it finds hard to learn.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from vitplug.compat import replace

from ..attention.site import Site
from .checks import check_choice, check_flag, check_integer, check_number
from .learned import LearnedVectors
from .plug import BlockShape, LayerPlan, Plug
from .sockets import TOKEN_SOCKETS


class ContextBroadcast(Plug):
    """Gives every token the context of all tokens, at one or more places of each block::

        mean      y_i = (x_i + m) / 2           m = mean_j x_j      (CB)
        scaled    y_i = x_i + Lambda * m        Lambda per channel  (CB_S)
        max       y_i = (x_i + max_j x_j) / 2   per channel
        cls       y_i = (x_i + x_0) / 2         x_0 the class token
        gate      y_i = x_i * (x_0 + 1)
        hybrid    y_i = x_i * x_0 + (x_i + m) / 2

    The context is that of the whole image, class token included; of the whole feature map in windowed
    hosts. Tokens keep their shape ``(B, N, D)``. Only CB_S has parameters.

    In a padded batch the context includes padding, so an image's result depends on the other images. If the backbone
    knows the image sizes (:mod:`vitplug.hosting.padding`), means and maxima are taken over the image's own tokens,
    and all tokens, padding too, receive them.

    Args:
        mode: ``'mean'``, ``'max'``, ``'cls'``, ``'gate'`` or ``'hybrid'``.
        scaled: Whether the mean has a learned scale, CB_S; with ``mode='mean'`` only.
        scale_init_value: Start of every ``Lambda``. 0 reproduces the host; 1 starts at twice CB.
        position: ``'mlp_front'`` (before the first layer of the MLP), ``'mlp_mid'`` (after its
            activation), ``'mlp_end'`` (after its last layer, the paper's choice), ``'msa'`` (after the
            attention's projection), ``'mlp_residual'``, ``'msa_residual'`` (as a branch is added) or a list of these.
        cls_fallback: ``'mean'`` lets the token mean stand in for ``x_0`` on hosts without class token,
            which are refused otherwise.
        layers: Blocks that get it, see :class:`Plug`. ``'upper'`` is the paper's CB in deep layers.

    Raises:
        ValueError: If an argument is none of these.
    """

    name = 'cb'
    watched = {'cb_scale': 'Lambda'}

    def __init__(
        self,
        mode: str = 'mean',
        scaled: bool = False,
        scale_init_value: float = 0.0,
        position: str | Sequence[str] = 'mlp_end',
        cls_fallback: str | None = None,
        layers: str | Sequence[int] = 'all',
    ):
        super().__init__(layers)
        self.mode = check_choice('mode', mode, tuple(BROADCASTS))
        self.scaled = check_flag('scaled', scaled)
        self.scale_init_value = check_number('scale_init_value', scale_init_value)
        self.identity_start = scaled and not scale_init_value
        self.position, self.positions = position, check_positions(position)
        self.cls_fallback = check_choice('cls_fallback', cls_fallback, (None, 'mean'))
        if scaled and mode != 'mean':
            raise ValueError(f"scaled=True goes with mode='mean' only, not with mode={mode!r}")
        if self.scale_init_value and not scaled:
            raise ValueError(f'scale_init_value={scale_init_value} goes with scaled=True only: add it')

    def build_layer(self, plan: LayerPlan) -> Mapping[str, nn.Module]:
        has_cls = 'cls_token' in plan.prefix_names
        if self.mode in CLASS_TOKEN_MODES and not has_cls and self.cls_fallback is None:
            raise ValueError(
                f'ContextBroadcast: mode={self.mode!r} needs a class token and this backbone has none; set '
                "with_cls_token=True on a ViT, or cls_fallback='mean' to let the token mean stand in for it"
            )
        if self.scaled:
            start = self.scale_init_value
            return {socket: ScaledBroadcast(plan.width_at(socket), cb_scale=start) for socket in self.positions}
        class_token = first_token if has_cls else token_mean
        return {socket: Broadcast(self.mode, class_token) for socket in self.positions}


class Broadcast(nn.Module):
    """One of the parameter-free modes of :class:`ContextBroadcast`, ``(B, N, D)`` to ``(B, N, D)``."""

    def __init__(self, mode: str, class_token: Callable[[Tensor, Tensor | None], Tensor]):
        super().__init__()
        self.mode, self.class_token = mode, class_token

    def forward(self, x_BND: Tensor, site: Site) -> Tensor:
        return BROADCASTS[self.mode](x_BND, self.class_token, site.valid)


class ScaledBroadcast(LearnedVectors):
    """``y = x + cb_scale * mean(x)`` over the tokens of ``(B, N, D)``, ``cb_scale`` of shape ``(D,)``."""

    cb_scale: nn.Parameter

    def forward(self, x_BND: Tensor, site: Site) -> Tensor:
        return x_BND + (self.cb_scale * token_mean(x_BND, site.valid)).to(x_BND.dtype)


def token_mean(x_BND: Tensor, valid_BN: Tensor | None) -> Tensor:
    """Mean over the valid tokens, ``(B, 1, D)``, 0 where there is none; summed in float32 at least."""
    wide = torch.promote_types(x_BND.dtype, torch.float32)
    if valid_BN is None:
        return x_BND.mean(dim=1, keepdim=True, dtype=wide).to(x_BND.dtype)
    total_B1D = _fill_padding(x_BND, valid_BN, 0.0).sum(dim=1, keepdim=True, dtype=wide)
    return (total_B1D / valid_BN.sum(dim=1).clamp(min=1)[:, None, None]).to(x_BND.dtype)


def token_max(x_BND: Tensor, valid_BN: Tensor | None) -> Tensor:
    """Largest entry of the valid tokens, channel by channel, ``(B, 1, D)``; 0 where there is none."""
    largest_B1D = _fill_padding(x_BND, valid_BN, -torch.inf).amax(dim=1, keepdim=True)
    return largest_B1D if valid_BN is None else largest_B1D.masked_fill(~valid_BN.any(dim=1)[:, None, None], 0.0)


def first_token(x_BND: Tensor, valid_BN: Tensor | None) -> Tensor:
    """The class token, ``(B, 1, D)``."""
    return x_BND[:, :1]


def _fill_padding(x_BND: Tensor, valid_BN: Tensor | None, value: float) -> Tensor:
    return x_BND if valid_BN is None else x_BND.masked_fill(~valid_BN.unsqueeze(-1), value)


def _average(x_BND: Tensor, context_B1D: Tensor) -> Tensor:
    return torch.lerp(x_BND, context_B1D, 0.5)


class _MeanBroadcast(torch.autograd.Function):
    """``(x_i + mean_j x_j) / 2``. The map is symmetric and so its own gradient, in half the passes of autograd's."""

    @staticmethod
    def forward(ctx: Any, x_BND: Tensor) -> Tensor:
        return _average(x_BND, token_mean(x_BND, None))

    @staticmethod
    def backward(ctx: Any, grad_BND: Tensor) -> Tensor:
        return _MeanBroadcast.apply(grad_BND)


BROADCASTS = {
    'mean': lambda x, class_token, valid: (
        _MeanBroadcast.apply(x) if valid is None else _average(x, token_mean(x, valid))
    ),
    'max': lambda x, class_token, valid: _average(x, token_max(x, valid)),
    'cls': lambda x, class_token, valid: _average(x, class_token(x, valid)),
    'gate': lambda x, class_token, valid: x * (class_token(x, valid) + 1),
    'hybrid': lambda x, class_token, valid: x * class_token(x, valid) + _average(x, token_mean(x, valid)),
}
CLASS_TOKEN_MODES = ('cls', 'gate', 'hybrid')


class SqueezeExcite(Plug):
    """Squeeze and excitation over the tokens, with which the paper compares CB::

        y_i = x_i * sigmoid(W2 relu(W1 mean_j x_j + b1) + b2)

    The mean includes padding, or not, as in :class:`ContextBroadcast`.

    Args:
        reduction: Width divided by the hidden width.
        position: As in :class:`ContextBroadcast`.

    Raises:
        ValueError: If an argument is out of range.
    """

    name = 'se'

    def __init__(
        self, reduction: int = 16, position: str | Sequence[str] = 'mlp_end', layers: str | Sequence[int] = 'all'
    ):
        super().__init__(layers)
        self.reduction = check_integer('reduction', reduction, least=1)
        self.position, self.positions = position, check_positions(position)

    def build_layer(self, plan: LayerPlan) -> Mapping[str, nn.Module]:
        widths = {socket: plan.width_at(socket) for socket in self.positions}
        if min(widths.values()) < self.reduction:
            raise ValueError(f'SqueezeExcite: reduction={self.reduction} leaves nothing of widths of {widths}')
        return {socket: Excitation(dims, dims // self.reduction) for socket, dims in widths.items()}


class Excitation(nn.Module):
    """Scales every channel of ``(B, N, D)`` by a gate computed from the token mean."""

    def __init__(self, dims: int, hidden_dims: int):
        super().__init__()
        self.fc1 = nn.Linear(dims, hidden_dims)
        self.fc2 = nn.Linear(hidden_dims, dims)

    def forward(self, x_BND: Tensor, site: Site) -> Tensor:
        mean_B1D = token_mean(x_BND, site.valid)
        return x_BND * self.fc2(self.fc1(mean_B1D).relu()).sigmoid().to(x_BND.dtype)


class UniformHead(Plug):
    """A head with uniform attention inside MSA, with which the paper compares CB::

        replace      one of the H heads gives all tokens equal weight: it keeps v and has neither q nor k
        compensate   the same, and the hidden layer of the MLP is wider by the width of a head: a stock MLP does not fit
        append       one more head, which gives all tokens equal weight, beside the H heads

    In windowed hosts "all tokens" are the tokens of the window that the mask does not separate, including the zeros
    that pad a map to whole windows. If the backbone knows the image sizes (:mod:`vitplug.hosting.padding`), only the
    image's own tokens count, and a window without any gets 0.

    Args:
        mode: One of the three.
        extra_head_dim: Width of the appended head, a multiple of the others' width; theirs by default.
            The embedding width makes it a full uniform branch.

    Raises:
        ValueError: If an argument is out of range.
    """

    name = 'uniform_head'
    short_name = 'uniform'

    def __init__(self, mode: str = 'replace', extra_head_dim: int | None = None, layers: str | Sequence[int] = 'all'):
        super().__init__(layers)
        self.mode = check_choice('mode', mode, ('replace', 'compensate', 'append'))
        self.extra_head_dim = extra_head_dim
        if extra_head_dim is not None:
            check_integer('extra_head_dim', extra_head_dim, least=1)
            if mode != 'append':
                raise ValueError(f"extra_head_dim={extra_head_dim} goes with mode='append' only, not with {mode!r}")

    def shape_block(self, shape: BlockShape, index: int, num_layers: int) -> BlockShape:
        if index not in self.layer_indices(num_layers):
            return shape
        if not shape.head_dims:
            raise ValueError(f'UniformHead: block {index} has no attention; leave it out of layers')
        if self.mode == 'append':
            extra, rest = divmod(self.extra_head_dim or shape.head_dims, shape.head_dims)
            if rest:
                raise ValueError(
                    f'UniformHead: extra_head_dim={self.extra_head_dim} is no multiple of the head width '
                    f'{shape.head_dims} of block {index}'
                )
            return replace(shape, value_heads=shape.value_heads + extra, out_heads=shape.out_heads + extra)
        if shape.map_heads < 2:
            raise ValueError(
                f'UniformHead: mode={self.mode!r} needs at least 2 heads and block {index} has {shape.map_heads}: '
                "choose mode='append' or other layers"
            )
        wider = shape.head_dims if self.mode == 'compensate' else 0
        return replace(shape, map_heads=shape.map_heads - 1, hidden_dims=shape.hidden_dims + wider)


def check_positions(position: str | Sequence[str]) -> tuple[str, ...]:
    """The token sockets a plug is to take: known ones, none of them twice."""
    positions = (position,) if isinstance(position, str) else tuple(position) if isinstance(position, Sequence) else ()
    if not positions or len(set(positions)) < len(positions) or not set(positions) <= set(TOKEN_SOCKETS):
        raise ValueError(f'position={position!r}: expected one of {list(TOKEN_SOCKETS)} or a list of them')
    return positions
