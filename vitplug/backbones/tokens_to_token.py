"""From an image to tokens in steps: neighbouring tokens are joined, attend to each other, and are joined again.

*Tokens-to-Token ViT: Training Vision Transformers from Scratch on ImageNet*, section 3.1. Shapes: ``C`` channels of
the image, ``E`` the width of the tokens that enter an attention, ``T`` that of those that leave it.
"""

from collections.abc import Sequence
from math import sqrt

import torch
import torch.nn.functional as F
from mmcv.cnn.bricks.transformer import FFN
from mmengine.model import BaseModule
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from vitplug.attention import Attention, fused
from vitplug.attention.precision import at_least_float32, without_autocast
from vitplug.hosting import PixelGrid

from .patch_embed import Patches, to_map


class TokenAttention(BaseModule):
    """Self-attention with one head, ``v + proj(softmax(q @ k^T / sqrt(E)) @ v)``.

    Scores are divided by the root of the entering width ``E``, as in the official code.
    """

    def __init__(self, in_dims: int, dims: int):
        super().__init__()
        self.scale = in_dims**-0.5
        self.qkv = nn.Linear(in_dims, 3 * dims, bias=False)
        self.proj = nn.Linear(dims, dims)

    def forward(self, x_BNE: Tensor) -> Tensor:
        """Tokens ``(B, N, E)`` to ``(B, N, T)``."""
        q, k, v = self.qkv(x_BNE).chunk(3, dim=-1)
        out = fused(Attention(*(t[:, None] for t in (q, k, v)), scale=self.scale))
        return v + self.proj(out[:, 0])


class PerformerAttention(BaseModule):
    """Self-attention with one head whose cost grows linearly with the number of tokens.

    *Rethinking Attention with Performers*: positive random features ``phi`` replace the exponential of the dot
    products, so that no map is formed::

        phi(x)_i = exp(w_i . x - |x|^2 / 2) / sqrt(m)         m orthogonal rows w_i of length sqrt(m)
        out      = phi(q) @ (phi(k)^T @ v) / (phi(q) @ sum of phi(k))
        y        = v + dropout(proj(out))

    The features, half as many as channels of q, k and v, are drawn once, are not trained, and are part of the state
    dict.
    """

    #: Keeps the denominator above 0.
    EPSILON = 1e-8

    def __init__(self, in_dims: int, dims: int, drop_rate: float):
        super().__init__()
        self.kqv = nn.Linear(in_dims, 3 * dims)
        self.proj = nn.Linear(dims, dims)
        self.drop = nn.Dropout(drop_rate)
        self.random_features = nn.Parameter(torch.empty(dims // 2, dims), requires_grad=False)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draws the rows."""
        if not self.random_features.is_meta:  # of which torch cannot decompose a matrix
            nn.init.orthogonal_(self.random_features, gain=sqrt(len(self.random_features)))

    def forward(self, x_BNE: Tensor) -> Tensor:
        """Tokens ``(B, N, E)`` to ``(B, N, T)``."""
        k_BNT, q_BNT, v_BNT = self.kqv(x_BNE).chunk(3, dim=-1)
        wide = at_least_float32(v_BNT.dtype)
        with without_autocast(x_BNE.device):
            # In one piece: torch's product compares strides of others, which ties an exported graph to some batches.
            of_k_BNm, of_q_BNm = (self._features(t.to(wide).contiguous()) for t in (k_BNT, q_BNT))
            # The denominator is the weighted sum of a further value, which is 1 for all keys.
            values_BNV = F.pad(v_BNT.to(wide), (0, 1), value=1.0)
            sums_BNV = of_q_BNm @ (of_k_BNm.transpose(1, 2) @ values_BNV)
            out_BNT = sums_BNV[..., :-1] / (sums_BNV[..., -1:] + self.EPSILON)
        return v_BNT + self.drop(self.proj(out_BNT.to(v_BNT.dtype)))

    def _features(self, x_BNT: Tensor) -> Tensor:
        """Positive random features ``(B, N, m)``."""
        w_mT = self.random_features.to(x_BNT.dtype)
        return (x_BNT @ w_mT.T - x_BNT.square().sum(-1, keepdim=True) / 2).exp() / sqrt(len(w_mT))


class TokenLayer(BaseModule):
    """A block of the token stage, ``x = attn(norm(x))`` and ``x + dropout(mlp(norm(x)))``.

    Its attention, ``(B, N, E)`` to ``(B, N, T)``, changes the width, so its residual starts from the values.
    """

    def __init__(self, in_dims: int, dims: int, attention: nn.Module, drop_rate: float = 0.0):
        super().__init__()
        self.ln1 = nn.LayerNorm(in_dims)
        self.attn = attention
        self.ln2 = nn.LayerNorm(dims)
        dropout = dict(type='Dropout', drop_prob=drop_rate)
        self.ffn = FFN(dims, dims, act_cfg=dict(type='GELU'), dropout_layer=dropout)

    def forward(self, x_BNE: Tensor) -> Tensor:
        """Tokens ``(B, N, E)`` to ``(B, N, T)``."""
        x_BNT = self.attn(self.ln1(x_BNE))
        # Not by FFN's forward, whose look at old arguments torch 2.5 cannot compile.
        return x_BNT + self.ffn.dropout_layer(self.ffn.layers(self.ln2(x_BNT)))


class TokensToToken(Patches, BaseModule):
    """Three soft splits with attention between them::

        image  --7 x 7, stride 4-->  attention  --3 x 3, stride 2-->  attention  --3 x 3, stride 2-->  projection

    It has the keys of mmpretrain's module, which has no Performer. A Performer's keys differ in ``attn.kqv``, of k, q
    and v in this order, in the place of ``attn.qkv``, and in ``attn.random_features``.

    Args:
        img_size: Image size the tokens are counted for.
        in_channels: Channels of the images.
        embed_dims: Width of the tokens that leave, ``D``.
        token_dims: Width of the tokens inside, ``T``.
        use_performer: Whether attention is :class:`PerformerAttention`, or :class:`TokenAttention`.
        performer_drop_rate: Drop rate after a Performer's projections and MLPs.
        with_cp: As of the host.
    """

    projection_name = 'project'
    image_stride = (16, 16)
    #: Side of the smallest image that makes a token.
    LEAST = 3

    def __init__(
        self,
        img_size: int | Sequence[int],
        in_channels: int,
        embed_dims: int,
        token_dims: int = 64,
        use_performer: bool = False,
        performer_drop_rate: float = 0.1,
        with_cp: bool = False,
    ):
        super().__init__()
        self.with_cp = with_cp

        def attention(in_dims: int) -> TokenLayer:
            if use_performer:
                performer = PerformerAttention(in_dims, token_dims, performer_drop_rate)
                return TokenLayer(in_dims, token_dims, performer, performer_drop_rate)
            return TokenLayer(in_dims, token_dims, TokenAttention(in_dims, token_dims))

        # Each joins the tokens of overlapping windows to one token each.
        self.soft_split0 = nn.Unfold(kernel_size=7, stride=4, padding=2)
        self.soft_split1 = nn.Unfold(kernel_size=3, stride=2, padding=1)
        self.soft_split2 = nn.Unfold(kernel_size=3, stride=2, padding=1)
        self.attention1 = attention(7 * 7 * in_channels)
        self.attention2 = attention(3 * 3 * token_dims)
        self.project = nn.Linear(3 * 3 * token_dims, embed_dims)
        self.configure(img_size, in_channels)

    def check_size(self, size: Sequence[int]) -> None:
        if min(size) < self.LEAST:
            raise ValueError(f'image size {tuple(size)}: expected at least {self.LEAST} x {self.LEAST} pixels')

    def pixels(self, image_size: tuple[int, int]) -> PixelGrid:
        grid = PixelGrid(tuple(image_size))
        for split in (self.soft_split0, self.soft_split1, self.soft_split2):
            grid = grid.after(split)
        return grid

    def forward(self, images_BCHW: Tensor) -> tuple[Tensor, tuple[int, int]]:
        """Images to tokens ``(B, N, D)`` and their grid ``(h, w)``."""
        grid = PixelGrid(tuple(images_BCHW.shape[2:])).after(self.soft_split0)
        x_BNE = self.soft_split0(images_BCHW).transpose(1, 2)
        for attention, split in ((self.attention1, self.soft_split1), (self.attention2, self.soft_split2)):
            x_BThw = to_map(self._attend(attention, x_BNE), grid.hw)
            x_BNE, grid = split(x_BThw).transpose(1, 2), grid.after(split)
        return self.project(x_BNE.contiguous()), grid.hw

    def _attend(self, attention: TokenLayer, x_BNE: Tensor) -> Tensor:
        if self.with_cp and torch.is_grad_enabled():
            return checkpoint(attention, x_BNE, use_reentrant=False)
        return attention(x_BNE)
