"""A host that pools: queries or keys on coarser grids, and stages with other heads and widths."""

from dataclasses import dataclass

import torch
from mmengine.model import BaseModule
from torch import nn
from torch.nn.functional import gelu

from vitplug.attention import GlobalLayout, attend
from vitplug.backbones.base import PluggedBackbone
from vitplug.backbones.patch_embed import build_patch_embed
from vitplug.backbones.plug_configs import build_plugs
from vitplug.compat import replace
from vitplug.hosting import Section
from vitplug.plugs import BLOCK_SOCKETS, BlockShape, LayerPlugs, PlugSet


@dataclass(frozen=True)
class Spec:
    """One block: its stage, its width and heads, steps from one query and one key to the next, and its last width."""

    stage: int
    dims: int
    heads: int
    steps: tuple[int, int]
    out_dims: int


# Coarser keys; one grid for both; pooled queries; coarser keys; keys finer than the pooled queries.
SPECS = (
    Spec(0, 8, 1, (1, 4), 8),
    Spec(0, 8, 1, (1, 1), 12),
    Spec(1, 16, 2, (2, 2), 16),
    Spec(1, 16, 2, (1, 2), 16),
    Spec(2, 16, 4, (2, 1), 16),
)
DIMS = (8, 16, 16)


@dataclass(frozen=True)
class EnteringLayout(GlobalLayout):
    """The layout of the queries, with the grid of the tokens that enter the block."""

    entering: tuple[int, int] = (0, 0)


class PoolingBlock(BaseModule):
    """Attention whose queries and keys are every so many tokens, and an MLP; either may change the width."""

    with_cp = False

    def __init__(self, in_dims, spec, shape, sockets):
        super().__init__()
        self.spec, self.shape, self.sockets = spec, shape, sockets
        self.widths = {'heads': in_dims, 'block_in': in_dims}
        self.widths |= dict.fromkeys(('mlp_end', 'mlp_residual', 'block_out'), spec.out_dims)
        self.has_query_tokens = True
        heads, self.heads = shape.head_dims, (shape.map_heads, shape.map_heads, shape.value_heads)
        self.norm1, self.norm2 = nn.LayerNorm(in_dims), nn.LayerNorm(spec.dims)
        self.qkv = nn.Linear(in_dims, sum(self.heads) * heads)
        self.proj, self.skip1 = nn.Linear(shape.out_heads * heads, spec.dims), nn.Linear(in_dims, spec.dims)
        self.fc1, self.fc2 = nn.Linear(spec.dims, shape.hidden_dims), nn.Linear(shape.hidden_dims, spec.out_dims)
        self.skip2 = nn.Linear(spec.dims, spec.out_dims)
        self.plugs = LayerPlugs()

    def forward(self, x, site, carry, record=None):
        plugs, layout, dims = self.plugs, site.layout, self.shape.head_dims
        site = site.in_windows(x.device)
        tokens = self.norm1(x)
        qkv = self.qkv(tokens).unflatten(-1, (-1, dims)).split(self.heads, dim=-2)
        of_queries, of_keys = self.spec.steps
        q, k, v = (
            every(t.flatten(2), layout, step).unflatten(-1, (-1, dims)).transpose(1, 2).unsqueeze(1)
            for t, step in zip(qkv, (of_queries, of_keys, of_keys), strict=True)
        )
        out, carry = attend(q, k, v, scale=dims**-0.5, site=site, plugs=plugs, carry=carry, record=record)
        x, tokens = every(x, layout, of_queries), every(tokens, layout, of_queries)
        out = plugs.change_heads(out.squeeze(1).transpose(1, 2).flatten(2), tokens, site, carry, dims)
        branch = plugs.tokens('msa', self.proj(out), site)
        x = self.skip1(x) + plugs.residual('msa', branch, site, record)
        hidden = gelu(self.fc1(plugs.tokens('mlp_front', self.norm2(x), site)))
        out = self.fc2(plugs.tokens('mlp_mid', hidden, site))
        branch = plugs.tokens('mlp_end', out, site)
        return self.skip2(x) + plugs.residual('mlp', branch, site, record), carry


def every(x_BNC, layout, step):
    """Prefix tokens, and every ``step``-th of the others along both axes."""
    prefix, places = x_BNC[:, : layout.num_prefix], x_BNC[:, layout.num_prefix :].unflatten(1, layout.entering)
    return torch.cat((prefix, places[:, ::step, ::step].flatten(1, 2)), dim=1)


class PoolingHost(PluggedBackbone):
    """Blocks of :data:`SPECS`, with a class token or without.

    Args:
        plugs: Configs of the plugs.
        img_size: Pixels, height and width; patches are 4 wide.
        has_cls: Whether there is a class token.
        sockets: Sockets of the blocks that offer others than all, by index.
    """

    out_indices = (0, 1, 2)

    def __init__(self, plugs=(), img_size=(32, 40), has_cls=False, sockets=()):
        super().__init__(None)
        sockets = dict(sockets)
        self.prefix_names = ('cls_token',) * has_cls
        patches = dict(in_channels=3, embed_dims=SPECS[0].dims, kernel_size=4, stride=4)
        self.patch_embed = build_patch_embed(img_size, patches)
        self.patch_resolution = self.patch_embed.init_out_size
        self.cls_token = nn.Parameter(torch.zeros(1, 1, SPECS[0].dims)) if has_cls else None
        plug_set = PlugSet(build_plugs(plugs), len(SPECS))
        in_dims = [SPECS[0].dims, *(spec.out_dims for spec in SPECS)]
        self.blocks = nn.ModuleList(
            PoolingBlock(
                in_dims[i],
                spec,
                plug_set.shape_block(BlockShape.stock(spec.dims, spec.heads, 2 * spec.dims), i),
                sockets.get(i, BLOCK_SOCKETS),
            )
            for i, spec in enumerate(SPECS)
        )
        self.attach(plug_set)

    def embed(self, images):
        x, hw = self.patch_embed(images)
        return x if self.cls_token is None else torch.cat((self.cls_token.expand(len(x), -1, -1), x), dim=1), hw

    def sections(self):
        stages = range(len(DIMS))
        blocks = [[b for b in self.blocks if b.spec.stage == stage] for stage in stages]
        return [Section(blocks[stage], DIMS[stage], stage) for stage in stages]

    def strides(self, index):
        return SPECS[index].steps

    def _site(self, layout, index, tokens):
        site = super()._site(layout, index, tokens)
        return replace(site, layout=EnteringLayout(*site.layout.hw, self.num_prefix, entering=tokens.hw))

    def format_output(self, section, x, hw):
        return x[:, self.num_extra_tokens :].transpose(1, 2).unflatten(2, hw)

    def freeze(self):
        pass
