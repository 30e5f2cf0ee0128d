"""Multiscale Vision Transformer, version 2 (MViTv2), the hierarchical host that pools queries, keys and values.

*MViTv2: Improved Multiscale Vision Transformers for Classification and Detection*, with the arguments, state-dict keys
and outputs of mmpretrain's ``MViT``. A class token, a dropout after the embedding, frozen stages and activation
checkpointing are added.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import pairwise

import torch
import torch.nn.functional as F
from mmengine.logging import print_log
from mmengine.model import ModuleList
from mmengine.model.weight_init import trunc_normal_
from torch import Tensor, nn

from vitplug.attention import Carry, GlobalLayout, LayerRecord, Layout, QueryBias, Site, WindowLayout, attend
from vitplug.checkpoints.position_tables import is_same
from vitplug.compat import is_exporting, register_load_state_dict_pre_hook
from vitplug.hosting import Mlp, Section, SelfAttention
from vitplug.hosting.pooling import convolve, decomposed_bias, on_grid, relative_offsets
from vitplug.plugs import Bindable, BlockShape
from vitplug.registry import MODELS

from .base import PluggedBackbone
from .ffn import layer_norm
from .patch_embed import build_patch_embed
from .settings import choose_arch, choose_indices, named_archs
from .vision_layers import PreNormBlock

# Rows and columns of tokens that become one in the first block of a stage.
DOWNSCALE = 2


class PooledAttention(SelfAttention):
    """Self-attention with pooled queries, keys and values::

        q, k, v = norm(pool(t)) for t of split(qkv(x))          depthwise convolutions, the same for all heads
        bias_ij = q_i . R_h[y_i, y_j] + q_i . R_w[x_i, x_j]     decomposed relative positions
        out     = proj(softmax(scale * q @ k^T + bias) @ v + q)

    Maps are pooled as a whole, then cut into windows. The last sum is residual pooling. Prefix tokens are not pooled
    and have no relative position. Heads of plugs that have no q attend as they do elsewhere and get nothing from
    residual pooling. Arguments that are not named here are those of :class:`MViT`.

    Args:
        in_dims: Width of the tokens that come in.
        embed_dims: Width of the tokens that go out.
        shape: The heads.
        stride_q: Rows and columns of queries that become one.
        stride_kv: The same of keys and values.
        map_size: Rows and columns of tokens that come in at the configured image size; for the length of the tables.
    """

    def __init__(
        self,
        in_dims: int,
        embed_dims: int,
        shape: BlockShape,
        stride_q: int,
        stride_kv: int,
        pool_kernel: Sequence[int],
        map_size: Sequence[int],
        norm_cfg: dict,
        rel_pos_spatial: bool,
        rel_pos_zero_init: bool,
        residual_pooling: bool,
        qkv_bias: bool,
    ):
        super().__init__(embed_dims, shape, qkv_bias=qkv_bias, in_dims=in_dims)
        self.strides = stride_q, stride_kv
        self.residual_pooling = residual_pooling
        self.rel_pos_zero_init = rel_pos_zero_init
        dims, padding = shape.head_dims, tuple(side // 2 for side in pool_kernel)
        # A block that reuses the map of an earlier one has neither q nor k.
        pooled = ('q', 'k', 'v') if shape.map_heads else ('v',)
        for name, stride in zip('qkv', (stride_q, stride_kv, stride_kv), strict=True):
            pool = nn.Conv2d(dims, dims, tuple(pool_kernel), stride, padding, groups=dims, bias=False)
            setattr(self, f'pool_{name}', pool if name in pooled else None)
            setattr(self, f'norm_{name}', layer_norm(norm_cfg, dims) if name in pooled else None)
        self.rel_pos_h = self.rel_pos_w = None
        if rel_pos_spatial and shape.map_heads:
            lengths = [2 * max(side // stride_q, side // stride_kv, 1) - 1 for side in map_size]
            self.rel_pos_h, self.rel_pos_w = (nn.Parameter(torch.zeros(length, dims)) for length in lengths)
        register_load_state_dict_pre_hook(self, _fit_pooling)

    def reset_parameters(self) -> None:
        """Starts the tables with zeros."""
        for table in self.parameters(recurse=False):
            nn.init.zeros_(table)

    def init_weights(self) -> None:
        """Draws the tables."""
        for table in (self.rel_pos_h, self.rel_pos_w):
            if table is not None and not self.rel_pos_zero_init:
                trunc_normal_(table, std=0.02)

    def forward(
        self, x_BND: Tensor, site: Site, plugs: Bindable, carry: Carry, record: LayerRecord | None = None
    ) -> tuple[Tensor, Carry]:
        plugs, site, heads = plugs.bind(), site.in_windows(x_BND.device), self.shape.map_heads
        parts = self.to_qkv(x_BND).unsqueeze(1).unflatten(-1, (-1, self.shape.head_dims))
        poolings = (
            (self.pool_q, self.norm_q, site.layout),
            (self.pool_k, self.norm_k, site.key_layout),
            (self.pool_v, self.norm_v, site.key_layout),
        )
        split = parts.split((heads, heads, self.shape.value_heads), dim=-2)
        q, k, v = (self._pool(t, *how, site) for t, how in zip(split, poolings, strict=True))
        out_BWHNd, carry = attend(
            *(q, k, v),
            scale=self.scale,
            site=site,
            plugs=plugs,
            carry=carry,
            biases=self._relative_positions(q, site),
            record=record,
        )
        if self.residual_pooling:
            out_BWHNd = self._add_queries(out_BWHNd, q)
        heads_BNe = site.layout.from_windows(out_BWHNd.transpose(2, 3).flatten(3))
        return self.join_heads(heads_BNe, x_BND, site, plugs, carry, record), carry

    def _pool(
        self, t_BWNHd: Tensor, pool: nn.Conv2d | None, norm: nn.Module | None, layout: Layout, site: Site
    ) -> Tensor:
        """q, k or v of all tokens ``(B, 1, N, H, d)`` to those that are left, in windows ``(B, W, H, N', d)``."""
        if pool is None:  # of no head
            return t_BWNHd.transpose(2, 3)
        pooled_BND = on_grid(partial(convolve, pool), t_BWNHd.flatten(3).squeeze(1), site)
        normed_BNHd = norm(pooled_BND.unflatten(-1, t_BWNHd.shape[3:]))
        # Padding of windows is zeros, also of k and v: it comes after the norm.
        return layout.to_windows(normed_BNHd.flatten(2)).unflatten(-1, t_BWNHd.shape[3:]).transpose(2, 3)

    def _relative_positions(self, q_BWHNd: Tensor, site: Site) -> tuple[QueryBias, ...]:
        if self.rel_pos_h is None:
            return ()
        pairs = site.pairs
        axes = zip((self.rel_pos_h, self.rel_pos_w), pairs.queries.hw, pairs.keys.hw, strict=True)
        return (decomposed_bias(q_BWHNd, [relative_positions(*axis) for axis in axes], site),)

    def _add_queries(self, out_BWHNd: Tensor, q_BWHNd: Tensor) -> Tensor:
        """Residual pooling; where a head has several outputs, each gets its q."""
        heads = q_BWHNd.shape[2] * self.shape.repeats
        if self.shape.repeats > 1:
            q_BWHNd = q_BWHNd.repeat_interleave(self.shape.repeats, dim=2)
        if heads == out_BWHNd.shape[2]:
            return out_BWHNd + q_BWHNd
        return torch.cat((out_BWHNd[:, :, :heads] + q_BWHNd, out_BWHNd[:, :, heads:]), dim=2)


def relative_positions(table: Tensor, queries: int, keys: int) -> Tensor:
    """A table ``(length, d)`` of relative positions along one axis, for all pairs of so many ``(queries, keys, d)``.

    Where queries and keys differ in number, the fewer are spread evenly among the places of the others. The table is
    resized to ``2 * max(queries, keys) - 1`` offsets.
    """
    length = 2 * max(queries, keys) - 1
    return _resized(table, length)[relative_offsets(queries, keys, table.device)]


def _resized(table: Tensor, length: int) -> Tensor:
    if is_same(table.shape[:1], (length,)):
        return table
    return F.interpolate(table.T[None], size=length, mode='linear', align_corners=False)[0].T


class MaxPool(nn.MaxPool2d):
    """torch's. A graph that it exports takes sides of one remainder alone, so a graph gets the same as a maximum."""

    def forward(self, x_BDhw: Tensor) -> Tensor:
        if not is_exporting():
            return super().forward(x_BDhw)
        padded = F.pad(x_BDhw, (self.padding,) * 4, value=-torch.inf)
        steps = self.kernel_size, self.stride
        return padded.unfold(2, *steps).unfold(3, *steps).amax((-2, -1))


class MultiScaleBlock(PreNormBlock):
    """One pre-norm block: attention, which may pool the tokens, then MLP. One of them may change their width.

    Args:
        in_dims: Width of the tokens that come in.
        out_dims: Width of the tokens that go out.
        num_heads: Heads.
        mlp_ratio: Hidden width of the MLP, divided by the width that it gets.
        drop_path: Stochastic depth of both branches.
        norm_cfg: The norms.
        stride_q: Rows and columns of tokens that become one.
        dim_mul_in_attention: Whether attention changes the width, not the MLP.
        with_cp: As of :class:`MViT`.
        reshape: Changes of the block's shape by the plugs.
        settings: Further arguments of :class:`PooledAttention`.
    """

    def __init__(
        self,
        in_dims: int,
        out_dims: int,
        num_heads: int,
        mlp_ratio: float,
        drop_path: float,
        norm_cfg: dict,
        stride_q: int,
        dim_mul_in_attention: bool,
        with_cp: bool,
        reshape: Callable[[BlockShape], BlockShape],
        **settings,
    ):
        dims = out_dims if dim_mul_in_attention else in_dims
        shape = reshape(BlockShape.stock(dims, num_heads, int(dims * mlp_ratio)))
        attn = PooledAttention(in_dims, dims, shape, stride_q, norm_cfg=norm_cfg, **settings)
        mlp = Mlp(dims, shape.hidden_dims, out_dims)
        super().__init__(in_dims, shape, attn, mlp, drop_path, with_cp, norm_cfg, mlp_dims=dims)
        self.out_dims = out_dims
        self.dim_mul_in_attention = dim_mul_in_attention
        #: Width of the tokens in the sockets where it may differ from that after the stage.
        self.widths = dict(prefix=in_dims, block_in=in_dims, heads=in_dims, msa=dims, msa_residual=dims)
        self.widths |= dict(mlp_front=dims, mlp_end=out_dims, mlp_residual=out_dims, block_out=out_dims)
        self.proj = nn.Linear(in_dims, out_dims) if in_dims != out_dims else None
        self.pool_skip = MaxPool(stride_q + 1, stride_q, (stride_q + 1) // 2) if stride_q > 1 else None
        self.plugs = self._modules.pop('plugs')  # the last one, and so in the optimizer's order

    @property
    def reuses_queries(self) -> bool:
        """Whether its queries are part of the output, or of the position biases."""
        return self.attn.residual_pooling or self.attn.rel_pos_h is not None

    def forward(
        self, x_BND: Tensor, site: Site, carry: Carry, record: LayerRecord | None = None
    ) -> tuple[Tensor, Carry]:
        """Tokens ``(B, N, in_dims)`` to those of the queries ``(B, Nq, out_dims)``, and carry."""
        normed, plugs = self.norm1(x_BND), self.plugs.bind()
        branch, carry = self.attn(normed, site, plugs, carry, record)
        attn = plugs.residual('msa', self.drop_path(branch), site, record)
        x_BND = self._skip(x_BND, normed, in_attention=True)
        x_BND = (x_BND if self.pool_skip is None else on_grid(self.pool_skip, x_BND, site)) + attn
        normed = self.norm2(x_BND)
        mlp = plugs.residual('mlp', self.drop_path(self.mlp(normed, plugs, site)), site, record)
        return self._skip(x_BND, normed, in_attention=False) + mlp, carry

    def _skip(self, x_BND: Tensor, normed: Tensor, in_attention: bool) -> Tensor:
        """The tokens beside a branch; where the branch changes their width, a projection of its normed input."""
        changes = self.proj is not None and self.dim_mul_in_attention == in_attention
        return self.proj(normed) if changes else x_BND


_archs = partial(named_archs, ('embed_dims', 'num_layers', 'num_heads', 'downscale_indices'))


@MODELS.register_module()
class MViT(PluggedBackbone):
    """MViTv2 with plugs.

    Takes images of any size; the tables of positions are resized to the token grids.

    Takes mmpretrain's arguments, those of :class:`~vitplug.backbones.base.PluggedBackbone`, and these:

    Args:
        with_cls_token: Whether there is a class token.
        out_type: ``'featmap'``, ``(B, D, h, w)``, or ``'cls_token'``, ``(B, D)``.
        window_size: Side in tokens of the windows that the first stage attends in, as detectors need them; from stage
            to stage half as many, the same part of the image. The last block of every stage but the first attends
            globally, and in stages between the first and the last to keys that are pooled twice as much. None for
            global attention. Maps are padded to whole windows.
        shows_padding: Whether the softmax sees that padding, as the official detector's does.
    """

    arch_zoo = {
        **_archs('tiny', 96, 10, 1, [1, 3, 8]),
        **_archs('small', 96, 16, 1, [1, 3, 14]),
        **_archs('base', 96, 24, 1, [2, 5, 21]),
        **_archs('large', 144, 48, 2, [2, 8, 44]),
    }
    OUT_TYPES = ('featmap', 'cls_token')
    DRAWN = ('pos_embed', 'cls_token')

    def __init__(
        self,
        arch: str | Mapping = 'base',
        img_size: int | Sequence[int] = 224,
        in_channels: int = 3,
        out_scales: int | Sequence[int] = -1,
        drop_path_rate: float = 0.0,
        use_abs_pos_embed: bool = False,
        interpolate_mode: str = 'bicubic',
        pool_kernel: Sequence[int] = (3, 3),
        dim_mul: int = 2,
        head_mul: int = 2,
        adaptive_kv_stride: int = 4,
        rel_pos_spatial: bool = True,
        residual_pooling: bool = True,
        dim_mul_in_attention: bool = True,
        rel_pos_zero_init: bool = False,
        mlp_ratio: float = 4.0,
        qkv_bias: bool = True,
        norm_cfg: dict = dict(type='LN', eps=1e-6),
        patch_cfg: Mapping = dict(kernel_size=7, stride=4, padding=3),
        init_cfg: dict | list[dict] | None = None,
        *,
        with_cls_token: bool = False,
        out_type: str = 'featmap',
        drop_rate: float = 0.0,
        window_size: int | None = None,
        shows_padding: bool = False,
        frozen_stages: int = -1,
        with_cp: bool = False,
        plugs: str | Sequence = (),
        frozen: str | None = None,
    ):
        super().__init__(init_cfg, frozen=frozen)
        self.arch_settings = choose_arch(arch, self.arch_zoo)
        self.embed_dims = self.arch_settings['embed_dims']
        self.num_layers = self.arch_settings['num_layers']
        self.num_heads = self.arch_settings['num_heads']
        self.downscale_indices = indices = list(self.arch_settings['downscale_indices'])
        if sorted({*indices, 0, self.num_layers}) != [0, *indices, self.num_layers]:
            raise ValueError(
                f'arch: downscale_indices={indices}: expected ascending block indices from 1, below {self.num_layers}'
            )
        self.num_scales = len(self.downscale_indices) + 1
        out_indices = sorted(choose_indices(out_scales, self.num_scales, 'out_scales'))
        self.choose_outputs(self.num_scales, out_indices, frozen_stages, out_type, with_cls_token)
        self.prefix_names = ('cls_token',) if with_cls_token else ()
        self.choose_window(window_size)
        self.shows_padding = shows_padding

        # Where patch_cfg leaves something out, mmcv's default holds, as in mmpretrain.
        patch_settings = dict(in_channels=in_channels, embed_dims=self.embed_dims, kernel_size=16, stride=16)
        self.patch_embed = build_patch_embed(img_size, patch_settings | patch_cfg)
        self.add_positions(use_abs_pos_embed, interpolate_mode, drop_rate)

        plug_set, of_blocks = self.plan_blocks(plugs, self.num_layers, drop_path_rate)
        #: Blocks that attend globally although there is a ``window_size``.
        self.global_blocks = frozenset(
            () if window_size is None else (end - 1 for end in (*self.downscale_indices[1:], self.num_layers))
        )
        sizes = self._sizes(dim_mul, head_mul, adaptive_kv_stride, dim_mul_in_attention)
        self.blocks = ModuleList(
            MultiScaleBlock(
                **of_block,
                **each,
                mlp_ratio=mlp_ratio,
                qkv_bias=qkv_bias,
                norm_cfg=norm_cfg,
                pool_kernel=pool_kernel,
                rel_pos_spatial=rel_pos_spatial,
                rel_pos_zero_init=rel_pos_zero_init,
                residual_pooling=residual_pooling,
                dim_mul_in_attention=dim_mul_in_attention,
                with_cp=with_cp,
            )
            for of_block, each in zip(sizes, of_blocks, strict=True)
        )
        self.windows = self._choose_windows()
        self.num_features = [section.embed_dims for section in self.sections()]
        self.add_norms(norm_cfg)
        self.attach(plug_set)

    def _sizes(self, dim_mul: int, head_mul: int, stride_kv: int, dim_mul_in_attention: bool) -> Iterator[dict]:
        """Widths, heads, strides and the map of tokens that comes in, of every block."""
        dims, num_heads, map_size = self.embed_dims, self.num_heads, tuple(self.patch_resolution)
        for index in range(self.num_layers):
            downscales = index in self.downscale_indices
            if downscales:
                num_heads, stride_kv = num_heads * head_mul, max(stride_kv // DOWNSCALE, 1)
            # As the official detector: attention between all tokens gets fewer keys, but in the last stage.
            fewer = DOWNSCALE if index in self.global_blocks and index != self.num_layers - 1 else 1
            changes = downscales if dim_mul_in_attention else index + 1 in self.downscale_indices
            out_dims, stride_q = dims * dim_mul if changes else dims, DOWNSCALE if downscales else 1
            yield dict(
                in_dims=dims,
                out_dims=out_dims,
                num_heads=num_heads,
                stride_q=stride_q,
                stride_kv=stride_kv * fewer,
                map_size=map_size,
            )
            dims, map_size = out_dims, tuple(side // stride_q for side in map_size)

    def _choose_windows(self) -> list[tuple[int, int] | None]:
        """Sides of the windows of queries and of keys, of every block; None for global attention.

        Raises:
            ValueError: If the windows of some queries or keys are no whole ones.
        """
        if self.window_size is None:
            return [None] * self.num_layers
        windows, entering = [], self.window_size
        for index in range(self.num_layers):
            is_global, strides = index in self.global_blocks, self.strides(index)
            if any(entering % stride for stride in (strides[:1] if is_global else strides)):
                raise ValueError(
                    f'window_size={self.window_size}: block {index} pools its windows of {entering} tokens by '
                    f'{max(strides)}, which leaves no whole ones; choose a multiple of larger powers of 2'
                )
            windows.append(None if is_global else tuple(entering // stride for stride in strides))
            entering //= strides[0]
        return windows

    def sections(self) -> list[Section]:
        cuts = pairwise((0, *self.downscale_indices, self.num_layers))
        return [
            Section(list(self.blocks[first:end]), self.blocks[end - 1].out_dims, stage)
            for stage, (first, end) in enumerate(cuts)
        ]

    def strides(self, index: int) -> tuple[int, int]:
        return self.blocks[index].attn.strides

    def layout(self, index: int, hw: tuple[int, int]) -> Layout:
        return self._layout(hw, index, 0)

    def key_layout(self, index: int, hw: tuple[int, int]) -> Layout:
        return self._layout(hw, index, 1)

    def _layout(self, hw: tuple[int, int], index: int, side: int) -> Layout:
        if self.windows[index] is None:
            return GlobalLayout(*hw, self.num_prefix)
        return WindowLayout(*hw, self.windows[index][side], hides_padding=not self.shows_padding)

    @property
    def stages(self) -> list[ModuleList]:
        """The blocks of every stage."""
        return [ModuleList(section.blocks) for section in self.sections()]


def _fit_pooling(attention: PooledAttention, state_dict, prefix, *_) -> None:
    """Resizes a checkpoint's tables of relative positions, and leaves out those of q and k where a map is reused."""
    if not attention.shape.map_heads:
        names = ('pool_q.', 'pool_k.', 'norm_q.', 'norm_k.', 'rel_pos_h', 'rel_pos_w')
        for key in [key for key in state_dict if key.startswith(tuple(prefix + name for name in names))]:
            del state_dict[key]
    for name in ('rel_pos_h', 'rel_pos_w'):
        table, stock = getattr(attention, name), state_dict.get(prefix + name)
        if table is not None and stock is not None and stock.ndim == 2 and len(stock) != len(table):
            print_log(f'resizing {prefix}{name} from {len(stock)} offsets to {len(table)}', logger='current')
            state_dict[prefix + name] = _resized(stock, len(table))
