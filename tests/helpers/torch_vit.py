"""A Vision Transformer of torch and `vitplug.hosting` alone, as a model of another library would take plugs."""

import torch
from torch import Tensor, nn

from vitplug.hosting import Mlp, PixelGrid, PluggedModel, Section, SelfAttention, build_plugs
from vitplug.plugs import BLOCK_SOCKETS, BlockShape, PlugSet

DIMS, HEADS, DEPTH, PATCH = 32, 4, 4, 4


class Block(nn.Module):
    """Attention and MLP, each behind a norm, of the shape that the plugs want."""

    sockets, with_cp = BLOCK_SOCKETS, False

    def __init__(self, shape: BlockShape):
        super().__init__()
        self.shape = shape
        self.norm1, self.norm2 = nn.LayerNorm(DIMS), nn.LayerNorm(DIMS)
        self.attn, self.mlp = SelfAttention(DIMS, shape), Mlp(DIMS, shape.hidden_dims)

    def forward(self, x_BND: Tensor, site, carry, record=None):
        """Tokens and carry, in and out."""
        branch, carry = self.attn(self.norm1(x_BND), site, self.plugs, carry, record)
        x_BND = x_BND + self.plugs.bind().residual('msa', branch, site, record)
        branch = self.mlp(self.norm2(x_BND), self.plugs, site)
        return x_BND + self.plugs.bind().residual('mlp', branch, site, record), carry


class TorchViT(PluggedModel):
    """Images ``(B, 3, H, W)`` to a map ``(B, D, h, w)``.

    Args:
        plugs: The plugs.
        size: Side of the images that the plugs are built for.
    """

    prefix_names = ('cls_token',)
    out_indices = (DEPTH - 1,)
    image_stride = (PATCH, PATCH)

    def __init__(self, plugs, size: int = 32):
        super().__init__()
        plug_set, stock = PlugSet(build_plugs(plugs), DEPTH), BlockShape.stock(DIMS, HEADS, 2 * DIMS)
        self.patch = nn.Conv2d(3, DIMS, PATCH, PATCH)
        self.cls_token = nn.Parameter(torch.zeros(1, 1, DIMS))
        self.blocks = nn.ModuleList(Block(plug_set.shape_block(stock, i)) for i in range(DEPTH))
        self.patch_resolution = (size // PATCH, size // PATCH)
        self.attach(plug_set)

    def embed(self, images: Tensor):
        tokens_BDhw = self.patch(images)
        tokens_BND = tokens_BDhw.flatten(2).transpose(1, 2)
        return torch.cat((self.cls_token.expand(len(images), -1, -1), tokens_BND), 1), tuple(tokens_BDhw.shape[2:])

    def sections(self):
        return [Section([block], DIMS) for block in self.blocks]

    def pixels(self, image_size):
        return PixelGrid(tuple(image_size)).after(self.patch)

    def format_output(self, section, x_BND, hw):
        return x_BND[:, 1:].transpose(1, 2).unflatten(2, hw)
