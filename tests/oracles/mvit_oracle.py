"""MViTv2 and the official ReMViTv2 in slow, plain steps: one map, one head, one axis at a time."""

from fractions import Fraction
from math import ceil, floor

import torch
import torch.nn.functional as F
from torch import Tensor


class Oracle:
    """A forward of the weights of ``vitplug.MViT``, for images whose sides are such that grids divide each other.

    Args:
        weights: Its parameters by name.
        num_heads: Heads of every block.
        strides: Strides of queries, and of keys, of every block.
        alpha: Share of a block's own scores; None for MViTv2 without residual attention.
        dim_mul_in_attention: Whether attention changes the width.
        windows: Sides of the windows of queries, and of keys, of every block, None for global attention. Scores pass
            from windows to windows and from global attention to global attention.
        shows_padding: Whether the softmax sees the padding of windows.
    """

    def __init__(
        self, weights, num_heads, strides, alpha=None, dim_mul_in_attention=True, windows=None, shows_padding=False
    ):
        self.windows, self.shows_padding = windows or [None] * len(strides), shows_padding
        self.weights, self.alpha = weights, alpha
        self.num_heads, self.strides = num_heads, strides
        self.dim_mul_in_attention = dim_mul_in_attention

    def __call__(self, images: Tensor) -> list[Tensor]:
        """The maps ``(B, h, w, D)`` after every block."""
        projection = 'patch_embed.projection.'
        x = F.conv2d(images, self.weights[projection + 'weight'], self.weights[projection + 'bias'], 4, 3)
        x, before, maps = x.movedim(1, -1), {}, []
        for index in range(len(self.num_heads)):
            kind = self.windows[index] is not None
            x, before[kind] = self.block(index, x, before.get(kind))
            maps.append(x)
        return maps

    def block(self, index: int, x: Tensor, before: list[Tensor] | None) -> tuple[Tensor, list[Tensor]]:
        name = f'blocks.{index}.'
        normed = self.norm(name + 'norm1.', x)
        branch, scores = self.attention(index, normed, before)
        changes = name + 'proj.weight' in self.weights
        skip = self.linear(name + 'proj.', normed) if changes and self.dim_mul_in_attention else x
        if self.strides[index][0] > 1:
            skip = F.max_pool2d(skip.movedim(-1, 1), 3, 2, 1).movedim(1, -1)
        x = skip + branch
        normed = self.norm(name + 'norm2.', x)
        skip = self.linear(name + 'proj.', normed) if changes and not self.dim_mul_in_attention else x
        hidden = F.gelu(self.linear(name + 'mlp.fc1.', normed))
        return skip + self.linear(name + 'mlp.fc2.', hidden), scores

    def attention(self, index: int, x: Tensor, before: list[Tensor] | None) -> tuple[Tensor, list[Tensor]]:
        """The branch ``(B, qh, qw, D)``, and T_l ``(B, H, qh, qw, kh, kw)`` of each window."""
        name, heads = f'blocks.{index}.attn.', self.num_heads[index]
        of_queries, of_keys = self.strides[index]
        qkv = self.linear(name + 'qkv.', x)
        q, k, v = (
            torch.stack([self.pool(name, which, head, step) for head in t.chunk(heads, -1)], 1)
            for which, t, step in zip('qkv', qkv.chunk(3, -1), (of_queries, of_keys, of_keys), strict=True)
        )
        sides = [(side, side) for side in self.windows[index] or ()] or [q.shape[2:4], k.shape[2:4]]
        cuts = [cut(t, side) for t, side in ((q, sides[0]), *((t, sides[1]) for t in (k, v, torch.ones_like(k))))]
        found = {
            place: self.window(index, *parts, None if before is None else before[number])
            for number, (place, *parts) in enumerate(zip(cuts[0], *(c.values() for c in cuts), strict=True))
        }
        out = torch.zeros_like(q)
        for (y, x), (of_window, _) in found.items():
            rows, columns = (slice(i * side, (i + 1) * side) for i, side in zip((y, x), sides[0], strict=True))
            place = out[:, :, rows, columns]
            place += of_window[:, :, : place.shape[2], : place.shape[3]]
        out = out + q
        return self.linear(name + 'proj.', torch.cat(list(out.unbind(1)), -1)), [scores for _, scores in found.values()]

    def window(self, index: int, q, k, v, valid, before: Tensor | None) -> tuple[Tensor, Tensor]:
        """Outputs and scores of one window; ``valid`` is 0 for the keys that are padding."""
        name, heads = f'blocks.{index}.attn.', self.num_heads[index]
        (qh, qw), (kh, kw) = q.shape[2:4], k.shape[2:4]
        own = torch.einsum('bnhwd,bnyxd->bnhwyx', q, k) * q.shape[-1] ** -0.5
        rows = torch.einsum('bnhwd,hyd->bnhwy', q, positions(self.weights[name + 'rel_pos_h'], qh, kh))
        columns = torch.einsum('bnhwd,wxd->bnhwx', q, positions(self.weights[name + 'rel_pos_w'], qw, kw))
        relative = rows[..., :, None] + columns[..., None, :]
        if self.alpha is not None and before is not None:
            if before.shape[1] != heads:
                before = before.mean(1, keepdim=True)
            for axis, side in zip((2, 3, 4, 5), (qh, qw, kh, kw), strict=True):
                before = along(resizing(before.shape[axis], side), before, axis)
            own = self.alpha * own + (1 - self.alpha) * before
        scores = own + relative
        weights = scores.exp() * (1 if self.shows_padding else valid[:, :, None, None, :, :, 0])
        probs = weights / weights.sum((-2, -1), keepdim=True)
        return torch.einsum('bnhwyx,bnyxd->bnhwd', probs, v), scores

    def pool(self, name: str, which: str, head: Tensor, step: int) -> Tensor:
        weight = self.weights[f'{name}pool_{which}.weight']
        pooled = F.conv2d(head.movedim(-1, 1), weight, stride=step, padding=1, groups=len(weight))
        return self.norm(f'{name}norm_{which}.', pooled.movedim(1, -1))

    def norm(self, name: str, x: Tensor) -> Tensor:
        return F.layer_norm(x, x.shape[-1:], self.weights[name + 'weight'], self.weights[name + 'bias'], 1e-6)

    def linear(self, name: str, x: Tensor) -> Tensor:
        return F.linear(x, self.weights[name + 'weight'], self.weights[name + 'bias'])


def cut(t: Tensor, side: tuple[int, int]) -> dict[tuple[int, int], Tensor]:
    """Windows of a map ``(B, H, h, w, d)`` by row and column, those at the edges filled up with zeros."""
    windows = {}
    for y in range(ceil(t.shape[2] / side[0])):
        for x in range(ceil(t.shape[3] / side[1])):
            part = t[:, :, y * side[0] : (y + 1) * side[0], x * side[1] : (x + 1) * side[1]]
            windows[y, x] = F.pad(part, (0, 0, 0, side[1] - part.shape[3], 0, side[0] - part.shape[2]))
    return windows


def along(matrix: Tensor, t: Tensor, axis: int) -> Tensor:
    """A matrix ``(new, old)`` times one axis of a tensor."""
    return (t.movedim(axis, -1) @ matrix.T.to(t)).movedim(-1, axis)


def resizing(old: int, new: int) -> Tensor:
    """Area average to fewer entries, the nearest entry for more, as a matrix ``(new, old)``."""
    matrix = torch.zeros(new, old).double()
    for i in range(new):
        if new > old:
            matrix[i, i * old // new] = 1
        else:
            first, end = floor(Fraction(i * old, new)), ceil(Fraction((i + 1) * old, new))
            matrix[i, first:end] = 1 / (end - first)
    return matrix


def positions(table: Tensor, queries: int, keys: int) -> Tensor:
    """Entries ``(queries, keys, d)`` of a table that is resized to all offsets."""
    resized = F.interpolate(table.T[None], size=2 * max(queries, keys) - 1, mode='linear')[0].T
    per_query, per_key = max(Fraction(keys, queries), 1), max(Fraction(queries, keys), 1)
    index = [[floor(per_query * i - per_key * j + (keys - 1) * per_key) for j in range(keys)] for i in range(queries)]
    return resized[torch.tensor(index)]
