"""PiT with a plug, from its weights and the papers' equations: every map formed, no part of the package used."""

from math import gcd

import torch
import torch.nn.functional as F
from torch import Tensor


def run(weights: dict[str, Tensor], arch: dict, images: Tensor, **plugs) -> Tensor:
    """The last stage's tokens ``(B, N, D)`` after the final norm.

    Args:
        weights: Parameters by timm's names.
        arch: Settings of the architecture.
        images: Images of the size of the position table.
        plugs: ``broadcast=True`` (CB after the MLP), ``bias=(A, sigma)`` (GAB), ``alpha=`` (ReViT), ``gamma=`` (BViT),
            ``kernels=`` (Refiner: from a block's index to its expansion, convolution and reduction).
    """
    grid = F.conv2d(images, weights['patch_embed.conv.weight'], weights['patch_embed.conv.bias'], arch['stride'])
    grid = grid + weights['pos_embed']
    cls_BPD = weights['cls_token'].expand(len(images), -1, -1)
    handed_on, taps, index = None, [], 0
    for stage, depth in enumerate(arch['depths']):
        if stage:
            of = f'transformers.{stage}.pool'
            grid = F.conv2d(
                grid, weights[f'{of}.conv.weight'], weights[f'{of}.conv.bias'], 2, padding=1, groups=grid.shape[1]
            )
            cls_BPD = cls_BPD @ weights[f'{of}.fc.weight'].T + weights[f'{of}.fc.bias']
        hw, heads = grid.shape[2:], arch['num_heads'][stage]
        x = torch.cat((cls_BPD, grid.flatten(2).mT), dim=1)
        prefix = cls_BPD.shape[1]
        for block in range(depth):
            of = f'transformers.{stage}.blocks.{block}'
            q, k, v = heads_of(linear(weights, f'{of}.attn.qkv', norm(weights, f'{of}.norm1', x)), heads)
            scores = q @ k.mT / q.shape[-1] ** 0.5
            if 'alpha' in plugs:
                if handed_on is not None:
                    before = resize(*handed_on, hw, prefix)
                    if before.shape[1] != heads:
                        before = before.mean(1, keepdim=True).expand(-1, heads, -1, -1)
                    scores = plugs['alpha'] * scores + (1 - plugs['alpha']) * before
                handed_on = scores, hw
            if 'bias' in plugs:
                scores = scores + gaussian(hw, prefix, *plugs['bias'])
            maps = scores.softmax(-1)
            if 'kernels' in plugs:
                maps = refine(maps, *plugs['kernels'][index])
            x = x + linear(weights, f'{of}.attn.proj', (maps @ v).transpose(1, 2).flatten(2))
            hidden = F.gelu(linear(weights, f'{of}.mlp.fc1', norm(weights, f'{of}.norm2', x)))
            out = linear(weights, f'{of}.mlp.fc2', hidden)
            x = x + ((out + out.mean(1, keepdim=True)) / 2 if plugs.get('broadcast') else out)
            index += 1
        taps.append([t[:, :, prefix:].mT.flatten(1, 2).unflatten(2, hw) for t in (q, k, v)])
        cls_BPD, grid = x[:, :prefix], x[:, prefix:].mT.unflatten(2, hw)
    if 'gamma' in plugs:
        x = torch.cat((cls_BPD, x[:, prefix:] + plugs['gamma'] * broad(taps, hw, heads)), dim=1)
    return norm(weights, 'norm', x)


def linear(weights: dict[str, Tensor], name: str, x: Tensor) -> Tensor:
    return x @ weights[f'{name}.weight'].T + weights[f'{name}.bias']


def norm(weights: dict[str, Tensor], name: str, x: Tensor) -> Tensor:
    return F.layer_norm(x, x.shape[-1:], weights[f'{name}.weight'], weights[f'{name}.bias'], 1e-6)


def heads_of(qkv: Tensor, heads: int) -> tuple[Tensor, Tensor, Tensor]:
    """q, k and v ``(B, H, N, d)``."""
    return qkv.unflatten(2, (3, heads, -1)).permute(2, 0, 3, 1, 4).unbind()


def resize(scores: Tensor, before: tuple[int, int], hw: tuple[int, int], prefix: int) -> Tensor:
    """ReViT on a coarser grid: area averages over the keys and over the queries; class rows and columns apart."""

    if before == hw:
        return scores
    over_keys = resize_last(scores, before, hw, prefix)
    return resize_last(over_keys.mT, before, hw, prefix).mT


def resize_last(scores: Tensor, before: tuple[int, int], hw: tuple[int, int], prefix: int) -> Tensor:
    """The same of the last axis alone."""
    maps = scores[..., prefix:].unflatten(-1, before)
    places = F.adaptive_avg_pool2d(maps.flatten(0, 2), hw).flatten(1).unflatten(0, maps.shape[:3])
    return torch.cat((scores[..., :prefix], places), dim=-1)


def gaussian(hw: tuple[int, int], prefix: int, amplitude: Tensor, sigma: Tensor) -> Tensor:
    """GAB of every pair of tokens, 0 where one is a class token."""
    y, x = (t.flatten().double() for t in torch.meshgrid(*map(torch.arange, hw), indexing='ij'))
    distance = (y[:, None] - y) ** 2 + (x[:, None] - x) ** 2
    return F.pad(amplitude**2 * torch.exp(-distance / (2 * sigma**2)), (prefix, 0, prefix, 0))


def refine(maps: Tensor, expand: Tensor, kernel: Tensor, reduce: Tensor) -> Tensor:
    """Refiner's linear chain: expansion, depthwise convolution over the plane, reduction."""
    maps = F.conv2d(maps, expand)
    maps = F.conv2d(maps, kernel, padding=kernel.shape[-1] // 2, groups=len(kernel))
    return F.conv2d(maps, reduce)


def broad(taps: list[list[Tensor]], hw: tuple[int, int], heads: int) -> Tensor:
    """BViT over the last blocks of the stages, ``(B, n, D)``: q, k and v ``(B, C, h, w)`` on the last grid."""
    dims = taps[-1][0].shape[1]
    heads = gcd(heads, *(q.shape[1] for q, _, _ in taps))
    q, k, v = (
        torch.cat([F.adaptive_max_pool2d(stage[i], hw).flatten(2).unflatten(1, (heads, -1)) for stage in taps], dim=2)
        for i in range(3)
    )
    out = (q.mT @ k / dims**0.5).softmax(-1) @ v.mT
    return F.adaptive_avg_pool1d(out.transpose(1, 2).flatten(2), dims)
