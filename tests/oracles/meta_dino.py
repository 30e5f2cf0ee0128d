"""DINOv2 and DINOv3 by the keys of Meta's files: an oracle written from the papers and the layout of the keys.

Float64, explicit maps, one function for each part; it shares no code with the package.
"""

import math

import torch
import torch.nn.functional as F
from torch import Tensor

State = dict[str, Tensor]


def random_state(
    width: int,
    heads: int,
    hidden: int,  # width of the MLP
    depth: int,
    side: int,  # rows of the table of positions
    patch: int,
    *,
    version: int = 2,
    registers: int = 0,  # or storage tokens
    gated: str = '',  # 'w12' for a SwiGLU with both halves in one tensor, 'w1' for two
) -> State:
    """Random weights as a file has them."""
    generator = torch.Generator().manual_seed(5)

    def draw(*shape: int) -> Tensor:
        return 0.2 * torch.randn(shape, generator=generator, dtype=torch.float64) + 0.5 * (len(shape) == 1)

    def linear(name: str, out: int, into: int) -> State:
        return {f'{name}.weight': draw(out, into), f'{name}.bias': draw(out)}

    def norm(name: str) -> State:
        return {f'{name}.weight': draw(width), f'{name}.bias': draw(width)}

    state = {'cls_token': draw(1, 1, width), 'mask_token': draw(1, width)}
    state |= {'patch_embed.proj.weight': draw(width, 3, patch, patch), 'patch_embed.proj.bias': draw(width)}
    if version == 2:
        state['pos_embed'] = draw(1, 1 + side * side, width)
    else:
        pairs = width // heads // 4
        # As the released files: rounded to bfloat16.
        state['rope_embed.periods'] = (100.0 ** (torch.arange(pairs) / pairs)).bfloat16()
    if registers:
        state['register_tokens' if version == 2 else 'storage_tokens'] = draw(1, registers, width)
    for index in range(depth):
        block = f'blocks.{index}.'
        parts = norm('norm1') | norm('norm2') | linear('attn.qkv', 3 * width, width) | linear('attn.proj', width, width)
        parts |= {'ls1.gamma': draw(width), 'ls2.gamma': draw(width)}
        if gated == 'w12':
            parts |= linear('mlp.w12', 2 * hidden, width) | linear('mlp.w3', width, hidden)
        elif gated:
            parts |= linear('mlp.w1', hidden, width) | linear('mlp.w2', hidden, width) | linear('mlp.w3', width, hidden)
        else:
            parts |= linear('mlp.fc1', hidden, width) | linear('mlp.fc2', width, hidden)
        if version == 3:
            mask = torch.ones(3 * width)
            mask[width : 2 * width] = 0
            parts['attn.qkv.bias_mask'] = mask
            parts['attn.qkv.bias'][width] = 7.0  # what the mask hides counts for nothing
        state |= {block + name: value for name, value in parts.items()}
    return state | norm('norm')


def tokens(state: State, heads: int, images: Tensor) -> tuple[Tensor, list[Tensor]]:
    """Tokens after the final norm and after each block."""
    weight = state['patch_embed.proj.weight']
    x_BDhw = F.conv2d(images, weight, state['patch_embed.proj.bias'], stride=weight.shape[-1])
    hw = tuple(x_BDhw.shape[2:])
    x = x_BDhw.flatten(2).transpose(1, 2)
    is_v2 = 'pos_embed' in state
    registers = state.get('register_tokens', state.get('storage_tokens'))
    cls = state['cls_token'].expand(len(x), -1, -1)
    if is_v2:
        table = _resized(state['pos_embed'], hw, has_registers=registers is not None)
        cls, x = cls + table[:, :1], x + table[:, 1:]
    prefix = [cls] if registers is None else [cls, registers.expand(len(x), -1, -1)]
    x = torch.cat((*prefix, x), dim=1)
    number = x.shape[1] - hw[0] * hw[1]
    eps = 1e-6 if is_v2 else 1e-5
    turns = None if is_v2 else _turns(state['rope_embed.periods'].double(), hw, number)
    blocks = []
    for index in range(sum(key.endswith('norm1.weight') for key in state)):
        start = f'blocks.{index}.'
        block = {key.removeprefix(start): value for key, value in state.items() if key.startswith(start)}
        x = x + block['ls1.gamma'] * _attention(_norm(x, block, 'norm1', eps), block, heads, turns)
        x = x + block['ls2.gamma'] * _mlp(_norm(x, block, 'norm2', eps), block)
        blocks.append(x)
    return _norm(x, state, 'norm', eps), blocks


def _norm(x: Tensor, state: State, name: str, eps: float) -> Tensor:
    return F.layer_norm(x, x.shape[-1:], state[f'{name}.weight'], state[f'{name}.bias'], eps)


def _attention(x: Tensor, block: State, heads: int, turns: Tensor | None) -> Tensor:
    bias = block['attn.qkv.bias']
    if 'attn.qkv.bias_mask' in block:
        bias = torch.where(block['attn.qkv.bias_mask'].bool(), bias, 0.0)
    q, k, v = (x @ block['attn.qkv.weight'].T + bias).unflatten(-1, (3, heads, -1)).permute(2, 0, 3, 1, 4)
    if turns is not None:
        q, k = ((turns @ t.unsqueeze(-1)).squeeze(-1) for t in (q, k))
    maps = (q @ k.transpose(-2, -1) / q.shape[-1] ** 0.5).softmax(-1)
    out = (maps @ v).transpose(1, 2).flatten(2)
    return out @ block['attn.proj.weight'].T + block['attn.proj.bias']


def _turns(periods: Tensor, hw: tuple[int, int], prefix: int) -> Tensor:
    """A matrix ``(d, d)`` for each token, which turns its channels t and t + d / 2."""
    pairs = len(periods)
    dims = 4 * pairs
    turns = [torch.eye(dims, dtype=torch.float64)] * prefix
    for row in range(hw[0]):
        for column in range(hw[1]):
            turn = torch.eye(dims, dtype=torch.float64)
            for pair in range(2 * pairs):
                place, side = ((row, hw[0]), (column, hw[1]))[pair // pairs]
                angle = 2 * math.pi * (2 * (place + 0.5) / side - 1) / periods[pair % pairs].item()
                sin, cos = math.sin(angle), math.cos(angle)
                first, second = pair, pair + dims // 2
                turn[first, first], turn[first, second] = cos, -sin
                turn[second, first], turn[second, second] = sin, cos
            turns.append(turn)
    return torch.stack(turns)


def _mlp(x: Tensor, block: State) -> Tensor:
    def linear(name: str, x: Tensor) -> Tensor:
        return F.linear(x, block[f'mlp.{name}.weight'], block[f'mlp.{name}.bias'])

    if 'mlp.fc1.weight' in block:
        return linear('fc2', F.gelu(linear('fc1', x)))
    both = linear('w12', x) if 'mlp.w12.weight' in block else torch.cat((linear('w1', x), linear('w2', x)), dim=-1)
    gate, value = both.chunk(2, dim=-1)
    return linear('w3', F.silu(gate) * value)


def _resized(table: Tensor, hw: tuple[int, int], has_registers: bool) -> Tensor:
    """The table of positions on another grid, in float32 as the authors' code has it."""
    side = math.isqrt(table.shape[1] - 1)
    if hw == (side, side):
        return table
    grid = table[:, 1:].float().unflatten(1, (side, side)).permute(0, 3, 1, 2)
    if has_registers:
        grid = F.interpolate(grid, size=hw, mode='bicubic', antialias=True)
    else:
        scale = tuple((sides + 0.1) / side for sides in hw)
        grid = F.interpolate(grid, scale_factor=scale, mode='bicubic')
    return torch.cat((table[:, :1], grid.flatten(2).transpose(1, 2).double()), dim=1)
