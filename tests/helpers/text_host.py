"""A host of torch and `vitplug.hosting` that takes sequences: padding gets no attention."""

import torch
from torch import Tensor, nn
from torch_vit import DEPTH, DIMS, HEADS, Block

from vitplug.attention import GlobalLayout, Site
from vitplug.hosting import build_plugs
from vitplug.plugs import BlockShape, LayerPlan, PlugSet


class TextHost(nn.Module):
    """Embedded words ``(B, N, D)`` to tokens of the same shape; the first one may be a class token.

    Args:
        length: Words of a sequence, for plugs that want to know.
        num_prefix: 1 if the first token is a class token, 0 if not.
        plugs: Configs of the plugs.
    """

    def __init__(self, length: int, num_prefix: int, plugs):
        super().__init__()
        self.num_prefix = num_prefix
        plug_set, stock = PlugSet(build_plugs(plugs), DEPTH), BlockShape.stock(DIMS, HEADS, 2 * DIMS)
        self.blocks = nn.ModuleList(Block(plug_set.shape_block(stock, i)) for i in range(DEPTH))
        names = ('cls_token',)[:num_prefix]
        layout = GlobalLayout(1, length - num_prefix, num_prefix)
        plans = [
            LayerPlan(i, DEPTH, DIMS, block.shape, Site(layout, index=i), prefix_names=names)
            for i, block in enumerate(self.blocks)
        ]
        self.plugs, layers = plug_set.build(plans)
        for block, layer in zip(self.blocks, layers, strict=True):
            block.plugs = layer

    def forward(self, x_BND: Tensor, valid_BN: Tensor | None = None, mask_B1NN: Tensor | None = None) -> Tensor:
        """Padding, where ``valid_BN`` is False, gets no attention."""
        x_BND, carry = self.plugs.add_prefix(x_BND, self.num_prefix), self.plugs.start()
        layout = GlobalLayout(1, x_BND.shape[1] - self.num_prefix, self.num_prefix)
        valid_BWN = None if valid_BN is None else valid_BN.unsqueeze(1)
        for index, block in enumerate(self.blocks):
            site = Site(layout, None, index, mask_B1NN, valid_BN, valid_BWN, attends_padding=False)
            x_BND, carry = block.plugs.bind().stream('block_in', x_BND, site, carry)
            x_BND, carry = block(x_BND, site, carry)
            x_BND, carry = block.plugs.bind().stream('block_out', x_BND, site, carry)
        return self.plugs.drop_prefix(self.plugs.finish(x_BND, site, carry, None), self.num_prefix)


def words(batch: int, length: int, seed: int = 0, dtype=torch.float64) -> Tensor:
    """Embedded words ``(B, N, D)``."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(batch, length, DIMS, generator=generator, dtype=torch.float64).to(dtype)
