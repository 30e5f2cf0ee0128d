"""Bytes that a GPU's kernels take for themselves, beside the tensors that a trace sees."""

from collections.abc import Sequence

import torch
from torch import Tensor

from vitplug.attention.grids import ceil_div

# Input, output (or their gradients), weight and settings of convolutions, of their arguments and outputs.
CONVOLUTIONS = {
    torch.ops.aten.convolution.default: lambda args, outs: (args[0], outs[0], args[1], args[3:]),
    torch.ops.aten.convolution_backward.default: lambda args, outs: (args[1], args[0], args[2], args[4:]),
}
# Its arguments after the first are queries, keys and values.
ATTENTION_BACKWARD = torch.ops.aten._scaled_dot_product_efficient_attention_backward.default
# Winograd's tiles of 6 x 6 for 4 x 4 outputs of a 3 x 3 convolution.
WINOGRAD = 36 / 16
# Queries and keys of one tile of the attention kernel up to the width of head; None: any other. In half precision
# tiles of 128 keys hold heads of 128.
TILES = {
    4: ((64, (64, 64)), (None, (128, 64))),
    2: ((64, (64, 64)), (128, (128, 128)), (None, (128, 64))),
}
# Copies of the gradients of keys and values that the kernel makes at most, to fill the card.
COPIES = 200
FLOAT = 4


def of_convolution(x: Tensor, out: Tensor, weight: Tensor, settings: Sequence) -> int:
    """What cuDNN takes for a convolution where it may try its algorithms.

    In float32 the transformed tiles of Winograd's algorithm, of input and output; in half precision their copies in
    another layout; 0 for other convolutions than those of 3 x 3 with a stride of 1.

    Args:
        x: Input ``(B, C, H, W)``.
        out: Output.
        weight: ``(out channels, in channels, kernel height, kernel width)``.
        settings: Stride, padding, dilation, transposed, output padding and groups.
    """
    stride, _, dilation, transposed, _, groups = settings[:6]
    if weight.shape[2:] != (3, 3) or set(stride) != {1} or set(dilation) != {1} or transposed or groups != 1:
        return 0
    factor = WINOGRAD if x.itemsize == 4 else 1
    return int(factor * x.itemsize * (x.numel() + out.numel()))


def of_attention(q: Tensor, k: Tensor, v: Tensor) -> int:
    """What the backward pass of torch's memory-efficient attention takes: gradients in float32, summed tile by tile.

    Those of all queries, and in half precision of a tile of keys and values where heads are wider than a tile. Source:
    `kernel_backward.h` of torch 2.12 (`workspace_size`), with the tiles of a card that has 160 KB of shared memory.

    Args:
        q, k: Queries and keys ``(B, H, N, width)``.
        v: Values; may have another width.
    """
    maps, width = q.shape[0] * q.shape[1], q.shape[-1]
    widest = max(width, v.shape[-1])
    queries, keys = next(tile for limit, tile in TILES[q.itemsize] if limit is None or widest <= limit)
    # A tile of the queries' gradients has a lock and a counter, of 4 numbers together.
    floats = ceil_div(q.shape[2], queries) * ceil_div(width, keys) * (queries * keys + 4)
    if q.itemsize == 2 and widest > queries:
        copies = max(1, min(ceil_div(k.shape[2], keys), COPIES // maps))
        floats += copies * keys * sum(ceil_div(t.shape[-1], queries) * queries for t in (k, v))
    return FLOAT * maps * floats
