"""Pooling-based Vision Transformer (PiT), a hierarchical host with global attention.

*Rethinking Spatial Dimensions of Vision Transformers*, with the state-dict keys of timm's class of the same name.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import pairwise

import torch
from mmcv.cnn.bricks.drop import build_dropout
from mmengine.logging import print_log
from mmengine.model import BaseModule, ModuleList
from mmengine.model.weight_init import trunc_normal_
from mmengine.utils import to_2tuple
from torch import Tensor, nn

from vitplug.attention import Carry, LayerRecord, Site
from vitplug.checkpoints.position_tables import resize_position_map
from vitplug.compat import register_load_state_dict_pre_hook
from vitplug.hosting import Mlp, PixelGrid, Section
from vitplug.plugs import BLOCK_SOCKETS, BlockShape, LayerPlugs, PlugSet
from vitplug.plugs.checks import check_choice
from vitplug.registry import MODELS

from .base import PluggedBackbone, freeze_module
from .checks import checked
from .ffn import layer_norm
from .patch_embed import check_patches, is_size, pixels_of
from .plug_configs import build_plugs
from .settings import choose_arch, choose_frozen, choose_indices, named_archs, rising_rates
from .vision_layers import ScaledAttention


class ConvEmbedding(BaseModule):
    """Images to tokens by one convolution without padding, whose patches may overlap.

    Args:
        in_channels: Channels of the images.
        embed_dims: Width of a token.
        img_size: Image size the tokens are counted for.
        patch_size: Side of a patch in pixels.
        stride: Distance of patches in pixels.

    Raises:
        ValueError: If ``img_size`` is no size, or smaller than a patch.
    """

    #: No padding to whole patches, as mmcv's ``PatchEmbed`` may have.
    adaptive_padding = None

    def __init__(self, in_channels: int, embed_dims: int, img_size: int | Sequence[int], patch_size: int, stride: int):
        super().__init__()
        if not is_size(img_size):
            raise ValueError(f'img_size={img_size!r}: expected a positive integer or a pair of them')
        self.conv = nn.Conv2d(in_channels, embed_dims, patch_size, stride)
        self.image_channels = in_channels
        self.image_stride = self.conv.stride
        check_patches(self, to_2tuple(img_size))
        #: Rows and columns of tokens at the configured image size.
        self.init_out_size = pixels_of(self, to_2tuple(img_size)).hw

    @property
    def projection(self) -> nn.Conv2d:
        """The convolution, as mmcv's ``PatchEmbed`` names it."""
        return self.conv

    def forward(self, images: Tensor) -> tuple[Tensor, tuple[int, int]]:
        """Images ``(B, C, H, W)`` to tokens ``(B, h * w, D)`` and their grid ``(h, w)``."""
        return _to_tokens(self.conv(images))


class Pooling(BaseModule):
    """From one stage to the next: a depthwise convolution over the grid, a linear layer for the tokens before it.

    Args:
        in_dims: Width of the tokens, ``D``.
        out_dims: Their width in the next stage, a multiple of ``in_dims``.
    """

    STRIDE = 2

    def __init__(self, in_dims: int, out_dims: int):
        super().__init__()
        self.conv = nn.Conv2d(in_dims, out_dims, self.STRIDE + 1, self.STRIDE, padding=self.STRIDE // 2, groups=in_dims)
        self.fc = nn.Linear(in_dims, out_dims)

    @property
    def stride(self) -> tuple[int, int]:
        """Rows and columns of tokens that become one."""
        return self.conv.stride

    def forward(self, x_BND: Tensor, hw: tuple[int, int]) -> tuple[Tensor, tuple[int, int]]:
        """Tokens ``(B, N, D)``, those of the grid ``hw`` last, and the grid, in and out."""
        num_prefix = x_BND.shape[1] - hw[0] * hw[1]
        pooled_BND, hw = _to_tokens(self.conv(_to_map(x_BND[:, num_prefix:], hw)))
        return torch.cat((self.fc(x_BND[:, :num_prefix]), pooled_BND), dim=1), hw

    def place(self, pixels: PixelGrid) -> PixelGrid:
        """Where the pooled tokens lie in the image."""
        return pixels.after(self.conv)


def _to_tokens(x_BDhw: Tensor) -> tuple[Tensor, tuple[int, int]]:
    return x_BDhw.flatten(2).transpose(1, 2), tuple(x_BDhw.shape[2:])


def _to_map(x_BND: Tensor, hw: tuple[int, int]) -> Tensor:
    return x_BND.transpose(1, 2).unflatten(2, hw)


class PoolingBlock(BaseModule):
    """One pre-norm block of global attention and an MLP, under timm's names.

    Args:
        embed_dims: Width of a token.
        num_heads: Heads.
        hidden_dims: Width in the MLP.
        drop_rate: Drop rate after the attention's projection and in the MLP.
        attn_drop_rate: Drop rate of the attention probabilities.
        drop_path_rate: Stochastic depth.
        norm_cfg: The norm layers.
        with_cp: Whether activations are computed again in backward.
        reshape: Changes of the block's shape by the plugs.
    """

    #: The sockets that the block offers.
    sockets = BLOCK_SOCKETS

    def __init__(
        self,
        embed_dims: int,
        num_heads: int,
        hidden_dims: int,
        *,
        drop_rate: float = 0.0,
        attn_drop_rate: float = 0.0,
        drop_path_rate: float = 0.0,
        norm_cfg: dict = dict(type='LN', eps=1e-6),
        with_cp: bool = False,
        reshape: Callable[[BlockShape], BlockShape] = lambda shape: shape,
    ):
        super().__init__()
        self.with_cp = with_cp
        self.shape = reshape(BlockShape.stock(embed_dims, num_heads, hidden_dims))
        self.norm1 = layer_norm(norm_cfg, embed_dims)
        self.attn = ScaledAttention(
            embed_dims, self.shape, drop_path_rate, 0.0, attn_drop=attn_drop_rate, proj_drop=drop_rate
        )
        self.norm2 = layer_norm(norm_cfg, embed_dims)
        self.mlp = Mlp(embed_dims, self.shape.hidden_dims, drop_rate=drop_rate)
        self.drop_path = build_dropout(dict(type='DropPath', drop_prob=drop_path_rate))
        self.plugs = LayerPlugs()

    def forward(
        self, x_BND: Tensor, site: Site, carry: Carry, record: LayerRecord | None = None
    ) -> tuple[Tensor, Carry]:
        """Tokens ``(B, N, D)`` and carry, in and out."""
        plugs = self.plugs.bind()
        branch, carry = self.attn(self.norm1(x_BND), site, plugs, carry, record)
        x_BND = x_BND + plugs.residual('msa', branch, site, record)
        mlp = self.drop_path(self.mlp(self.norm2(x_BND), plugs, site))
        return x_BND + plugs.residual('mlp', mlp, site, record), carry


class PoolingStage(BaseModule):
    """Blocks of one resolution, and the pooling before them; the first stage has none."""

    def __init__(self, pool: Pooling | None, blocks: Sequence[PoolingBlock]):
        super().__init__()
        self.pool = pool
        self.blocks = ModuleList(blocks)


_ARCH_KEYS = ('embed_dims', 'depths', 'num_heads', 'patch_size', 'stride')
_archs = partial(named_archs, _ARCH_KEYS)


@MODELS.register_module()
class PoolingVisionTransformer(PluggedBackbone):
    """Pooling-based Vision Transformer (PiT) with plugs.

    Takes images of any size; the position table is resized to the token grid. The class token, and the distillation
    token if there is one, belong to the sequence of every stage.

    Args:
        arch: Name in :attr:`arch_zoo`, or a dict with lists ``embed_dims``, ``depths`` and ``num_heads``, an entry for
            each stage, and ``patch_size`` and ``stride`` in pixels. Widths are multiples of the stage's before.
        img_size: Image size ``(h, w)`` the position table is made for.
        in_channels: Channels of the images.
        mlp_ratio: Hidden width of the MLPs, as a multiple of the stage's width.
        distilled: Whether there is a distillation token beside the class token.
        out_indices: Stages whose output is returned; negative ones count from the end.
        out_type: ``'cls_token'`` ``(B, D)``, or the pair of class and distillation token; ``'featmap'``
            ``(B, D, h, w)`` and ``'avg_featmap'`` ``(B, D)``, both without these tokens; or ``'raw'`` ``(B, N, D)``.
        final_norm: Whether the last stage's output is normalised.
        drop_rate: Drop rate after the position table, the attention projection and in the MLP.
        attn_drop_rate: Drop rate of the attention probabilities.
        drop_path_rate: Stochastic depth of the last block; grows linearly from 0.
        norm_cfg: The norm layers.
        interpolate_mode: How the position table is resized.
        frozen_stages: Last stage to freeze; -1 freezes nothing.
        frozen: ``'host'`` freezes all but the plugs; None leaves it to ``frozen_stages``.
        plugs: A text such as ``'gab+residual(alpha=0.25)'``, or a list of texts, dicts and plugs.
        with_cp: Whether activations are computed again in backward instead of being kept.
        init_cfg: Weight initialisation.

    Raises:
        ValueError: Names the argument, its value and what is allowed.
    """

    arch_zoo = {
        **_archs('ti tiny', [64, 128, 256], [2, 6, 4], [2, 4, 8], 16, 8),
        **_archs('xs', [96, 192, 384], [2, 6, 4], [2, 4, 8], 16, 8),
        **_archs('s small', [144, 288, 576], [2, 6, 4], [3, 6, 12], 16, 8),
        **_archs('b base', [256, 512, 1024], [3, 6, 4], [4, 8, 16], 14, 7),
    }
    OUT_TYPES = ('cls_token', 'featmap', 'avg_featmap', 'raw')

    @checked
    def __init__(
        self,
        arch: str | Mapping = 'base',
        img_size: int | Sequence[int] = 224,
        in_channels: int = 3,
        mlp_ratio: float = 4.0,
        distilled: bool = False,
        out_indices: int | Sequence[int] = -1,
        out_type: str = 'cls_token',
        final_norm: bool = True,
        drop_rate: float = 0.0,
        attn_drop_rate: float = 0.0,
        drop_path_rate: float = 0.0,
        norm_cfg: dict = dict(type='LN', eps=1e-6),
        interpolate_mode: str = 'bicubic',
        frozen_stages: int = -1,
        plugs: str | Sequence = (),
        with_cp: bool = False,
        init_cfg: dict | list[dict] | None = None,
        *,
        frozen: str | None = None,
    ):
        super().__init__(init_cfg, frozen=frozen)
        self.arch_settings = choose_arch(arch, self.arch_zoo, set(_ARCH_KEYS))
        #: Width of the tokens in each stage.
        self.num_features = list(self.arch_settings['embed_dims'])
        self.embed_dims = self.num_features[0]
        self.depths = self.arch_settings['depths']
        _check_widths(self.num_features)
        self.out_indices = choose_indices(out_indices, len(self.depths))
        self.out_type = check_choice('out_type', out_type, self.OUT_TYPES)
        self.frozen_stages = choose_frozen(frozen_stages, self.frozen, len(self.depths) - 1)
        self.interpolate_mode = interpolate_mode
        self.prefix_names = ('cls_token', 'dist_token') if distilled else ('cls_token',)

        sizes = (self.arch_settings[key] for key in ('patch_size', 'stride'))
        self.patch_embed = ConvEmbedding(in_channels, self.embed_dims, img_size, *sizes)
        self.patch_resolution = self.patch_embed.init_out_size
        self.pos_embed = nn.Parameter(torch.zeros(1, self.embed_dims, *self.patch_resolution))
        #: All prefix tokens, as in timm's checkpoints.
        self.cls_token = nn.Parameter(torch.zeros(1, self.num_extra_tokens, self.embed_dims))
        register_load_state_dict_pre_hook(self, _fit_checkpoint)
        self.pos_drop = nn.Dropout(drop_rate)

        plug_set = PlugSet(build_plugs(plugs), sum(self.depths))
        shared = dict(drop_rate=drop_rate, attn_drop_rate=attn_drop_rate, norm_cfg=norm_cfg, with_cp=with_cp)
        self.transformers = self._build_stages(plug_set, mlp_ratio, drop_path_rate, shared)
        self.norm = layer_norm(norm_cfg, self.num_features[-1]) if final_norm else nn.Identity()
        self.attach(plug_set)
        self.freeze()

    def _build_stages(self, plug_set: PlugSet, mlp_ratio: float, drop_path_rate: float, shared: Mapping) -> ModuleList:
        rates = rising_rates(drop_path_rate, sum(self.depths))
        stages, before, first = ModuleList(), None, 0
        for dims, depth, num_heads in zip(self.num_features, self.depths, self.arch_settings['num_heads'], strict=True):
            hidden_dims = int(dims * mlp_ratio)
            if not hidden_dims:
                raise ValueError(f'mlp_ratio={mlp_ratio}: leaves nothing of a width of {dims}')
            # In the order of the modules, which draws their first values in that of the names.
            pool = before and Pooling(before, dims)
            blocks = [
                PoolingBlock(
                    dims,
                    num_heads,
                    hidden_dims,
                    drop_path_rate=rates[index],
                    reshape=partial(plug_set.shape_block, index=index),
                    **shared,
                )
                for index in range(first, first + depth)
            ]
            stages.append(PoolingStage(pool, blocks))
            before, first = dims, first + depth
        return stages

    def sections(self) -> list[Section]:
        poolings = [stage.pool for stage in self.transformers]
        return [
            Section(list(stage.blocks), dims, number, pool)
            for number, (stage, dims, pool) in enumerate(
                zip(self.transformers, self.num_features, (*poolings[1:], None), strict=True)
            )
        ]

    def init_weights(self):
        super().init_weights()
        if not self.is_pretrained:
            trunc_normal_(self.pos_embed, std=0.02)
            trunc_normal_(self.cls_token, std=0.02)

    def embed(self, images: Tensor) -> tuple[Tensor, tuple[int, int]]:
        """Images to tokens ``(B, N, D)``, the class token first, and their grid ``(h, w)``."""
        x_BND, hw = self.patch_embed(images)
        positions_1ND, _ = _to_tokens(resize_position_map(self.pos_embed, hw, self.interpolate_mode))
        x_BND = self.pos_drop(x_BND + positions_1ND)
        return torch.cat((self.cls_token.expand(x_BND.shape[0], -1, -1), x_BND), dim=1), hw

    def format_output(self, section: int, x_BND: Tensor, hw: tuple[int, int]) -> Tensor | tuple[Tensor, ...]:
        if section == len(self.depths) - 1:
            x_BND = self.norm(x_BND)
        if self.out_type == 'raw':
            return x_BND
        if self.out_type == 'cls_token':
            tokens = x_BND[:, : self.num_extra_tokens].unbind(1)
            return tokens if len(tokens) > 1 else tokens[0]
        patches_BND = x_BND[:, x_BND.shape[1] - hw[0] * hw[1] :]
        return _to_map(patches_BND, hw) if self.out_type == 'featmap' else patches_BND.mean(dim=1)

    def freeze(self) -> None:
        if self.frozen_stages < 0:
            return
        for parameter in (self.pos_embed, self.cls_token):
            parameter.requires_grad_(False)
        frozen = [self.patch_embed, self.pos_drop, *self.plugs.at('prefix')]
        frozen += self.transformers[: self.frozen_stages + 1]
        if self.frozen_stages == len(self.depths) - 1:
            frozen.append(self.norm)
        for module in frozen:
            freeze_module(module)

    def depth_of(self, name: str) -> int | None:
        # A pooling has the depth of the last block before it.
        if name.startswith('transformers.'):
            _, stage, part, block, *_ = name.split('.')
            return sum(self.depths[: int(stage)]) + (int(block) + 1 if part == 'blocks' else 0)
        return 0 if name in ('cls_token', 'pos_embed') or name.startswith('patch_embed.') else None


def _check_widths(widths: Sequence[int]) -> None:
    """Checks that the poolings, which are depthwise, can widen the tokens.

    Raises:
        ValueError: If a width is no multiple of the one before.
    """
    if any(after % before for before, after in pairwise(widths)):
        raise ValueError(f"arch: embed_dims={widths}: expected each stage's width to be a multiple of the one before")


def _fit_checkpoint(backbone: PoolingVisionTransformer, state_dict, prefix, *_) -> None:
    """Gives the poolings of the authors' checkpoints timm's names; resizes the position table."""
    for key in [key for key in state_dict if key.startswith(f'{prefix}pools.')]:
        number, _, rest = key.removeprefix(f'{prefix}pools.').partition('.')
        state_dict[f'{prefix}transformers.{int(number) + 1}.pool.{rest}'] = state_dict.pop(key)
    key, target = f'{prefix}pos_embed', tuple(backbone.patch_resolution)
    table = state_dict.get(key)
    if table is not None and table.ndim == 4 and table.shape[2:] != target:
        print_log(f'resizing {key} from a {table.shape[2]}x{table.shape[3]} grid to {target[0]}x{target[1]}', 'current')
        state_dict[key] = resize_position_map(table, target, backbone.interpolate_mode)
