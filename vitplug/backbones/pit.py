"""Pooling-based Vision Transformer (PiT), a hierarchical host with global attention.

*Rethinking Spatial Dimensions of Vision Transformers*, with the state-dict keys of timm's class of the same name.
"""

from collections.abc import Mapping, Sequence
from functools import partial

import torch
from mmengine.logging import print_log
from mmengine.model import BaseModule, ModuleDict, ModuleList
from torch import Tensor, nn

from vitplug.checkpoints.position_tables import INTERPOLATE_MODES, resize_position_map
from vitplug.compat import register_load_state_dict_pre_hook
from vitplug.hosting import Mlp, PixelGrid, Section, SelfAttention
from vitplug.plugs import BlockShape
from vitplug.plugs.checks import check_choice
from vitplug.registry import MODELS

from .base import PluggedBackbone
from .ffn import layer_norm
from .patch_embed import OverlappingPatches, to_map, to_tokens
from .settings import choose_arch, named_archs
from .vision_layers import PreNormBlock


class Pooling(BaseModule):
    """From one stage to the next: a depthwise convolution over the grid, a linear layer for the tokens before it."""

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
        x_BDhw = self.conv(to_map(x_BND[:, num_prefix:], hw))
        return torch.cat((self.fc(x_BND[:, :num_prefix]), to_tokens(x_BDhw)), dim=1), tuple(x_BDhw.shape[2:])

    def place(self, pixels: PixelGrid) -> PixelGrid:
        """Where the pooled tokens lie in the image."""
        return pixels.after(self.conv)


_archs = partial(named_archs, ('embed_dims', 'depths', 'num_heads', 'patch_size', 'stride'))


@MODELS.register_module()
class PoolingVisionTransformer(PluggedBackbone):
    """Pooling-based Vision Transformer (PiT) with plugs.

    Takes images of any size; the position table is resized to the token grid. The class token, and the distillation
    token if there is one, belong to the sequence of every stage.

    Takes the arguments of :class:`~vitplug.backbones.base.PluggedBackbone`, and these:

    Args:
        arch: Name in :attr:`arch_zoo`, or a dict with lists ``embed_dims``, ``depths`` and ``num_heads``, an entry for
            each stage, and ``patch_size`` and ``stride`` in pixels. Widths are multiples of the stage's before.
        mlp_ratio: Hidden width of the MLPs, as a multiple of the stage's width.
        distilled: Whether there is a distillation token beside the class token.
        out_type: ``'cls_token'`` ``(B, D)``, or the pair of class and distillation token; ``'featmap'``
            ``(B, D, h, w)`` and ``'avg_featmap'`` ``(B, D)``, both without these tokens; or ``'raw'`` ``(B, N, D)``.
        final_norm: Whether the last stage's output is normalised.
    """

    arch_zoo = {
        **_archs('ti tiny', [64, 128, 256], [2, 6, 4], [2, 4, 8], 16, 8),
        **_archs('xs', [96, 192, 384], [2, 6, 4], [2, 4, 8], 16, 8),
        **_archs('s small', [144, 288, 576], [2, 6, 4], [3, 6, 12], 16, 8),
        **_archs('b base', [256, 512, 1024], [3, 6, 4], [4, 8, 16], 14, 7),
    }
    OUT_TYPES = ('cls_token', 'featmap', 'avg_featmap', 'raw')
    EMBEDDING = ('patch_embed', 'pos_drop', 'pos_embed', 'cls_token')
    DRAWN = ('pos_embed', 'cls_token')
    STAGES = 'transformers'

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
        self.arch_settings = choose_arch(arch, self.arch_zoo)
        #: Width of the tokens in each stage.
        self.num_features = list(self.arch_settings['embed_dims'])
        self.embed_dims = self.num_features[0]
        self.depths = self.arch_settings['depths']
        self.choose_outputs(len(self.depths), out_indices, frozen_stages, out_type)
        self.interpolate_mode = check_choice('interpolate_mode', interpolate_mode, INTERPOLATE_MODES)
        self.prefix_names = ('cls_token', 'dist_token') if distilled else ('cls_token',)

        sizes = (self.arch_settings[key] for key in ('patch_size', 'stride'))
        self.patch_embed = OverlappingPatches('conv', nn.Conv2d(in_channels, self.embed_dims, *sizes))
        self.patch_embed.configure(img_size, in_channels)
        self.patch_resolution = self.patch_embed.init_out_size
        self.pos_embed = nn.Parameter(torch.zeros(1, self.embed_dims, *self.patch_resolution))
        #: All prefix tokens, as in timm's checkpoints.
        self.cls_token = nn.Parameter(torch.zeros(1, self.num_extra_tokens, self.embed_dims))
        register_load_state_dict_pre_hook(self, _fit_positions)
        self.pos_drop = nn.Dropout(drop_rate)

        plug_set, planned = self.plan_stages(plugs, self.depths, drop_path_rate)
        #: Of each stage the blocks, and the pooling before them, which the first has not.
        self.transformers, before = ModuleList(), None
        for dims, num_heads, of_blocks in zip(self.num_features, self.arch_settings['num_heads'], planned, strict=True):
            # In the order of the modules, which draws their first values in that of the names.
            pool, blocks, before = before and Pooling(before, dims), [], dims
            for each in of_blocks:
                shape = each['reshape'](BlockShape.stock(dims, num_heads, int(dims * mlp_ratio)))
                attn = SelfAttention(dims, shape, attn_drop=attn_drop_rate, proj_drop=drop_rate)
                mlp = Mlp(dims, shape.hidden_dims, drop_rate=drop_rate)
                blocks.append(PreNormBlock(dims, shape, attn, mlp, each['drop_path'], with_cp, norm_cfg))
            self.transformers.append(ModuleDict(dict(pool=pool, blocks=ModuleList(blocks))))
        self.norm = layer_norm(norm_cfg, self.num_features[-1]) if final_norm else nn.Identity()
        self.attach(plug_set)

    def sections(self) -> list[Section]:
        stages = self.transformers
        return self.sections_of((stage['blocks'] for stage in stages), [stage['pool'] for stage in stages[1:]])

    def embed(self, images: Tensor) -> tuple[Tensor, tuple[int, int]]:
        """Images to tokens ``(B, N, D)``, the class token first, and their grid ``(h, w)``."""
        x_BND, hw = self.patch_embed(images)
        positions_1ND = to_tokens(resize_position_map(self.pos_embed, hw, self.interpolate_mode))
        x_BND = self.pos_drop(x_BND + positions_1ND)
        return torch.cat((self.cls_token.expand(x_BND.shape[0], -1, -1), x_BND), dim=1), hw

    def normalise(self, section: int, x_BND: Tensor, hw: tuple[int, int]) -> Tensor:
        return self.norm(x_BND) if section == len(self.depths) - 1 else x_BND

    def class_token(self, x_BND: Tensor) -> Tensor | tuple[Tensor, ...]:
        tokens = x_BND[:, : self.num_extra_tokens].unbind(1)
        return tokens if len(tokens) > 1 else tokens[0]

    def frozen_with(self, stage: int) -> Sequence[nn.Module]:
        return [self.norm] if stage == len(self.depths) - 1 else []


def _fit_positions(backbone: PoolingVisionTransformer, state_dict, prefix, *_) -> None:
    """Resizes the position table."""
    key, target = f'{prefix}pos_embed', tuple(backbone.patch_resolution)
    table = state_dict.get(key)
    if table is not None and table.ndim == 4 and table.shape[2:] != target:
        print_log(f'resizing {key} from a {table.shape[2]}x{table.shape[3]} grid to {target[0]}x{target[1]}', 'current')
        state_dict[key] = resize_position_map(table, target, backbone.interpolate_mode)
