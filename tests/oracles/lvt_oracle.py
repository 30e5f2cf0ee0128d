"""The Lite Vision Transformer from its equations, token by token of a kernel, on the authors' parameter names.

Maps are ``(B, h, w, C)``. A subclass changes what plugs would.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor

SIDE, STEP = 3, 2
softmax = partial(F.softmax, dim=-1)


@dataclass
class Oracle:
    """The network of a state dict.

    Args:
        state: Parameters by the authors' names, without ``backbone.``.
        depths: Blocks of the stages.
        heads: Heads of the stages.
        strides: Strides of the stages' keys.
    """

    state: Mapping[str, Tensor]
    depths: Sequence[int]
    heads: Sequence[int]
    strides: Sequence[int]

    def stages(self, images: Tensor) -> list[Tensor]:
        """The maps of all stages, without norms, of images ``(B, C, H, W)``."""
        x, outs, block = images.permute(0, 2, 3, 1), [], 0
        for stage, depth in enumerate(self.depths):
            kernel, stride = (7, 4) if stage == 0 else (3, 2)
            x = self.norm(f'{stage}.0.norm', self.conv(f'{stage}.0.proj', x, kernel, stride, kernel // 2))
            for i in range(depth):
                x = self.block(f'{stage}.1.{i}', x, stage, block)
                block += 1
            outs.append(x)
        return outs

    def block(self, name: str, x: Tensor, stage: int, index: int) -> Tensor:
        self.enter(index)
        normed = self.norm(f'{name}.norm1', x)
        if stage == 0:
            out = self.csa(f'{name}.attn', normed, self.heads[stage])
        else:
            out = self.rasa(f'{name}.attn', normed, self.heads[stage], self.strides[stage], index)
        x = x + self.msa(out)
        hidden = self.linear(f'{name}.mlp.fc1', self.norm(f'{name}.norm2', x))
        if stage > 0:
            hidden = self.depthwise(f'{name}.mlp.depconv', hidden, 1)
        return x + self.mlp_end(self.linear(f'{name}.mlp.fc2', F.gelu(hidden)))

    # --- where plugs act ---

    def enter(self, block: int) -> None:
        """Before the attention of a block."""

    def logits(self, block: int, is_last: bool, scores: Tensor) -> Tensor:
        """Logits of scaled scores ``(B, H, Nq, Nk)``, both times."""
        return scores

    def tap(self, block: int, q: Tensor, k: Tensor, v: Tensor) -> None:
        """q, k and v of the second time, maps ``(B, h, w, H * d)``."""

    def msa(self, x: Tensor) -> Tensor:
        """The output of the attention branch."""
        return x

    def mlp_end(self, x: Tensor) -> Tensor:
        """The output of the MLP."""
        return x

    # --- convolutional self-attention ---

    def csa(self, name: str, x: Tensor, heads: int) -> Tensor:
        batch, height, width, dims = x.shape
        places = [(y, c) for y in range(SIDE) for c in range(SIDE)]
        centres = (math.ceil(height / STEP), math.ceil(width / STEP))
        there = torch.ones_like(x[..., :1])
        pairs = [(y, c) for y in range(STEP) for c in range(STEP)]
        count = sum(shifted(there, y, c, STEP, centres) for y, c in pairs)
        mean = sum(shifted(x, y, c, STEP, centres) for y, c in pairs) / count
        logits = self.linear(f'{name}.attn', mean).reshape(batch, *centres, heads, SIDE**2, SIDE**2)
        maps = softmax((dims // heads) ** -0.5 * logits)
        kernels = self.state[f'{name}.weight.weight'].reshape(SIDE**2, dims, dims)
        values = [shifted(x, y - 1, c - 1, STEP, centres) @ kernels[j].T for j, (y, c) in enumerate(places)]
        outs = {(y, c): torch.zeros(batch, dims, dtype=x.dtype) for y in range(height) for c in range(width)}
        for row in range(centres[0]):
            for column in range(centres[1]):
                for i, (y, c) in enumerate(places):
                    token = (STEP * row + y - 1, STEP * column + c - 1)
                    if token in outs:
                        outs[token] = outs[token] + sum(
                            (maps[:, row, column, :, i, j, None] * values[j][:, row, column].reshape(batch, heads, -1))
                            for j in range(SIDE**2)
                        ).reshape(batch, dims)
        rows = [torch.stack([outs[y, c] for c in range(width)], dim=1) for y in range(height)]
        return self.linear(f'{name}.proj', torch.stack(rows, dim=1))

    # --- recursive atrous self-attention ---

    def rasa(self, name: str, x: Tensor, heads: int, stride: int, index: int) -> Tensor:
        x = x + F.silu(self.attention(name, x, heads, stride, index, is_last=False))
        return F.silu(self.attention(name, x, heads, stride, index, is_last=True))

    def attention(self, name: str, x: Tensor, heads: int, stride: int, index: int, is_last: bool) -> Tensor:
        dims = x.shape[-1]
        q = self.linear(f'{name}.q', x)
        q = sum(F.silu(self.depthwise(f'{name}.ds', q, rate)) for rate in (1, 3, 5))
        if stride > 1:
            x = self.norm(f'{name}.norm', self.conv(f'{name}.sr', x, stride, stride, 0))
        kv = self.linear(f'{name}.kv', x)
        k, v = kv[..., :dims], kv[..., dims:]
        if is_last:
            self.tap(index, q, k, v)
        of_heads = [t.flatten(1, 2).reshape(len(t), -1, heads, dims // heads) for t in (q, k, v)]
        scores = (dims // heads) ** -0.5 * torch.einsum('bihd,bjhd->bhij', *of_heads[:2])
        probs = softmax(self.logits(index, is_last, scores))
        out = torch.einsum('bhij,bjhd->bihd', probs, of_heads[2]).reshape(q.shape)
        return self.linear(f'{name}.proj', out)

    # --- outputs ---

    def class_attention(self, x: Tensor, heads: int) -> Tensor:
        """All tokens, the class token first, after the class-attention blocks and the norm."""
        tokens = x.flatten(1, 2)
        cls = self.state['cls_token'][0].expand(len(tokens), -1)
        for block in range(len({key.split('.')[1] for key in self.state if key.startswith('post_network.')})):
            name = f'post_network.{block}'
            normed = self.norm(f'{name}.norm1', torch.cat((cls[:, None], tokens), dim=1))
            k, v = self.linear(f'{name}.attn.kv', normed).chunk(2, dim=-1)
            q = self.linear(f'{name}.attn.q', normed[:, 0])
            q, k, v = (t.reshape(*t.shape[:-1], heads, -1) for t in (q, k, v))
            probs = softmax(q.shape[-1] ** -0.5 * torch.einsum('bhd,bjhd->bhj', q, k))
            cls = cls + self.linear(f'{name}.attn.proj', torch.einsum('bhj,bjhd->bhd', probs, v).flatten(1))
            hidden = F.gelu(self.linear(f'{name}.mlp.fc1', self.norm(f'{name}.norm2', cls)))
            cls = cls + self.linear(f'{name}.mlp.fc2', hidden)
        return self.norm('norm', torch.cat((cls[:, None], tokens), dim=1))

    # --- layers ---

    def linear(self, name: str, x: Tensor) -> Tensor:
        return F.linear(x, self.state[f'{name}.weight'].flatten(1), self.state.get(f'{name}.bias'))

    def norm(self, name: str, x: Tensor) -> Tensor:
        return F.layer_norm(x, x.shape[-1:], self.state[f'{name}.weight'], self.state[f'{name}.bias'])

    def conv(self, name: str, x: Tensor, kernel: int, stride: int, pad: int) -> Tensor:
        """Rounded up: a last kernel that reaches outside sees zeros."""
        x = F.pad(x.movedim(-1, 1), (pad, pad + kernel, pad, pad + kernel))
        out = F.conv2d(x, self.state[f'{name}.weight'], self.state[f'{name}.bias'], stride)
        rows, columns = (math.ceil((side - 2 * pad - kernel) / stride) for side in x.shape[2:])
        return out[:, :, :rows, :columns].movedim(1, -1)

    def depthwise(self, name: str, x: Tensor, rate: int) -> Tensor:
        weight, bias = self.state[f'{name}.weight'], self.state.get(f'{name}.bias')
        out = F.conv2d(x.movedim(-1, 1), weight, bias, padding=rate, dilation=rate, groups=len(weight))
        return out.movedim(1, -1)


def shifted(x: Tensor, down: int, across: int, step: int, size: Sequence[int]) -> Tensor:
    """Entry ``(step i + down, step j + across)`` at ``(i, j)`` of a map of ``size``; 0 outside of ``x``."""
    for dim, (count, shift) in enumerate(zip(size, (down, across), strict=True), 1):
        places = step * torch.arange(count) + shift
        inside = (places >= 0) & (places < x.shape[dim])
        x = x.index_select(dim, places.clamp(0, x.shape[dim] - 1))
        x = x * inside.to(x.dtype).reshape(-1, *[1] * (x.ndim - 1 - dim))
    return x
