"""Times attention alone: each plug, the literal form of its paper's equation, and plain fused attention.

Needs only torch.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from vitplug.attention import GlobalLayout, Site, attend
from vitplug.plugs import (
    BlockShape,
    BroadAttention,
    GaussianAttentionBias,
    LayerPlan,
    Plug,
    PlugSet,
    Refiner,
    ResidualAttention,
)

from .measure import Case, Table, Timer
from .processes import run_table


@dataclass(frozen=True)
class Sizes:
    """Sizes of a stack of attentions: ``dims`` is the head width, ``prefix`` the number of class tokens."""

    layers: int
    heads: int
    dims: int
    height: int
    width: int
    prefix: int
    batch: int = 1

    @property
    def tokens(self) -> int:
        return self.prefix + self.height * self.width

    def __str__(self) -> str:
        return f'N={self.tokens}, {self.heads} heads of {self.dims}, {self.layers} layers, batch {self.batch}'


class Stack:
    """The attentions of a ViT without its linear layers, each with its own random input.

    Args:
        sizes: The sizes.
        plugs: The plugs.
        device: The device.
        dtype: The precision.
    """

    def __init__(self, sizes: Sizes, plugs: Sequence[Plug], device: str, dtype: torch.dtype):
        self.sizes = sizes
        layout = GlobalLayout(sizes.height, sizes.width, sizes.prefix)
        self.sites = [Site(layout, index=i) for i in range(sizes.layers)]
        shape = (sizes.layers, 3, sizes.batch, 1, sizes.heads, sizes.tokens, sizes.dims)
        generator = torch.Generator().manual_seed(0)
        self.qkv = torch.randn(shape, generator=generator).to(device, dtype).requires_grad_()
        width = sizes.heads * sizes.dims
        block = BlockShape.stock(width, sizes.heads, 4 * width)
        plans = [LayerPlan(site.index, sizes.layers, width, block, site) for site in self.sites]
        network, layers = PlugSet(list(plugs), sizes.layers).build(plans)
        self.network, self.layers = network.to(device), [layer.to(device) for layer in layers]
        self.parameters = [*self.network.parameters(), *(p for layer in self.layers for p in layer.parameters())]

    def forward(self) -> Tensor:
        """The sum of all outputs, ``(B, N, D)``."""
        carry, total = self.network.start(), 0.0
        for (q, k, v), site, plugs in zip(self.qkv, self.sites, self.layers, strict=True):
            out, carry = attend(q, k, v, scale=self.sizes.dims**-0.5, site=site, plugs=plugs, carry=carry)
            total = total + out.squeeze(1).transpose(1, 2).flatten(2)
        return self.network.finish(total, self.sites[-1], carry, None)

    def step(self) -> None:
        """Forward and backward."""
        torch.autograd.grad(self.forward().float().sum(), (self.qkv, *self.parameters))


class Literal(Stack):
    """The same, with one operation for each step of a paper's equation.

    Args:
        chain: Computes the sum of all outputs from q, k, v, sizes and parameters.
        parameters: Parameters of the chain.
    """

    def __init__(self, sizes: Sizes, chain: Callable, parameters: Sequence[Tensor], device: str, dtype: torch.dtype):
        super().__init__(sizes, [], device, dtype)
        self.chain = chain
        self.parameters = [nn.Parameter(p.to(device)) for p in parameters]

    def forward(self) -> Tensor:
        return self.chain(self.qkv.squeeze(3), self.sizes, *self.parameters)


def merge(out: Tensor) -> Tensor:
    return out.transpose(1, 2).flatten(2)


def refiner_chain(qkv, sizes, expand, local, reduce):
    total = 0.0
    for q, k, v in qkv:
        maps = (sizes.dims**-0.5 * q @ k.mT).softmax(-1)
        maps = F.conv2d(maps, expand.to(maps.dtype))
        maps = F.conv2d(maps, local.to(maps.dtype), padding=1, groups=len(local))
        total = total + merge(F.conv2d(maps, reduce.to(maps.dtype)) @ v)
    return total


def dla_chain(qkv, sizes, local):
    total = 0.0
    for q, k, v in qkv:
        maps = (sizes.dims**-0.5 * q @ k.mT).softmax(-1)
        total = total + merge(F.conv2d(maps, local.to(maps.dtype), padding=1, groups=len(local)) @ v)
    return total


def residual_chain(qkv, sizes, alpha):
    total, before, alpha = 0.0, None, alpha.to(qkv.dtype)
    for q, k, v in qkv:
        scores = sizes.dims**-0.5 * q @ k.mT
        before = scores if before is None else alpha * scores + (1 - alpha) * before
        total = total + merge(before.softmax(-1) @ v)
    return total


def broad_chain(qkv, sizes):
    total = sum(merge(F.scaled_dot_product_attention(q, k, v)) for q, k, v in qkv)
    q, k, v = (torch.cat(list(part), dim=-1) for part in qkv.unbind(1))
    out = ((sizes.heads * sizes.dims) ** -0.5 * q @ k.mT).softmax(-1) @ v
    return total + F.adaptive_avg_pool1d(merge(out), sizes.heads * sizes.dims)


def bias_chain(qkv, sizes, amplitude, sigma):
    y, x = torch.meshgrid(torch.arange(sizes.height), torch.arange(sizes.width), indexing='ij')
    y, x = (t.flatten().to(qkv.device) for t in (y, x))
    square = (y[:, None] - y) ** 2 + (x[:, None] - x) ** 2
    total = 0.0
    for (q, k, v), a, s in zip(qkv, amplitude, sigma, strict=True):
        bias = F.pad(a**2 * torch.exp(-square / (2 * s**2)), (sizes.prefix, 0, sizes.prefix, 0))
        total = total + merge((sizes.dims**-0.5 * q @ k.mT + bias.to(q.dtype)).softmax(-1) @ v)
    return total


def _kernels(heads: int) -> tuple[Tensor, Tensor, Tensor]:
    wide = 3 * heads  # as Refiner expands
    return (torch.randn(wide, heads, 1, 1), torch.randn(wide, 1, 3, 3), torch.randn(heads, wide, 1, 1))


# For each name: plug, its settings, the literal chain, and the chain's parameters by sizes.
PAIRS = {
    'Refiner': (Refiner, {}, refiner_chain, lambda s: _kernels(s.heads)),
    'DLA alone': (Refiner, dict(expansion=0), dla_chain, lambda s: [torch.randn(s.heads, 1, 3, 3)]),
    'Residual': (ResidualAttention, {}, residual_chain, lambda s: [torch.tensor([0.5])]),
    'Broad': (BroadAttention, {}, broad_chain, lambda s: []),
    'GAB': (GaussianAttentionBias, {}, bias_chain, lambda s: [torch.full((s.layers,), n) for n in (2.0, 5.0)]),
}
# Target speed-up of a plug over the literal chain, by tokens.
WANTED = {
    'Refiner': {197: 3.0, 785: 5.5},
    'DLA alone': {1025: 1.8},
    'Residual': {197: 1.0, 785: 1.0, 1025: 1.0},
    'Broad': {197: 1.0, 785: 1.0, 1025: 1.0},
}
SHAPES = {197: (12, 32, 14, 14), 785: (12, 32, 28, 28), 1025: (6, 64, 32, 32)}


def run(timer: Timer, dtype: torch.dtype, batch: int) -> Iterator[Table]:
    """Tables for 197, 785 and 1025 tokens.

    ``batch`` is the batch size for 197 tokens (images of 224 x 224); for more tokens it is divided by 4.
    """
    for tokens, (heads, dims, height, width) in SHAPES.items():
        sizes = Sizes(12, heads, dims, height, width, 1, batch if tokens <= 197 else max(1, batch // 4))
        yield run_table(partial(compare, timer, dtype, sizes), timer.device)


def compare(timer: Timer, dtype: torch.dtype, sizes: Sizes) -> Table:
    """The table of one size."""
    cases = [Case('plain', Stack(sizes, [], timer.device, dtype).step)]
    for name, (plug, settings, chain, parameters) in PAIRS.items():
        cases.append(Case(name, Stack(sizes, [plug(**settings)], timer.device, dtype).step))
        literal = Literal(sizes, chain, parameters(sizes), timer.device, dtype)
        cases.append(Case(f'{name}, literal', literal.step))
    table = timer.compare(f'Attention, forward and backward: {sizes}', cases, ['plain'])
    _set_targets(table, sizes.tokens)
    return table


def _set_targets(table: Table, tokens: int) -> None:
    """The target of a plug is the ratio of its literal chain divided by the target speed-up."""
    ratios = {row.name: row.ratio for row in table.rows}
    for row in table.rows:
        wanted = WANTED.get(row.name, {}).get(tokens)
        row.target = wanted and ratios[f'{row.name}, literal'] / wanted
