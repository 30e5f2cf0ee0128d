"""Swin Transformer, the hierarchical windowed host.

*Swin Transformer: Hierarchical Vision Transformer using Shifted Windows*, with the arguments,
state-dict keys and outputs of mmpretrain's class of the same name. It takes mmdet's and mmseg's arguments as well
(:mod:`.stock`).
"""

from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from functools import partial

import torch
from mmcv.cnn.bricks.drop import build_dropout
from mmengine.model import BaseModule, ModuleList
from mmengine.model.weight_init import trunc_normal_
from mmengine.utils.dl_utils.parrots_wrapper import _BatchNorm
from torch import Tensor, nn

from vitplug.attention import Carry, LayerRecord, OffsetBias, Site, WindowLayout
from vitplug.attention.grids import GridPair, TokenGrid, pair_index
from vitplug.checkpoints.position_tables import fit_bias_table
from vitplug.compat import register_load_state_dict_pre_hook
from vitplug.hosting import Section, SelfAttention
from vitplug.plugs import BLOCK_SOCKETS, Bindable, BlockShape, LayerPlugs
from vitplug.plugs.checks import check_integer
from vitplug.registry import MODELS

from .base import WITHOUT_PREFIX, PluggedBackbone
from .ffn import PluggedFFN, layer_norm
from .patch_embed import build_patch_embed
from .patch_merging import FastPatchMerging
from .settings import choose_arch, named_archs, per_item
from .stock import stock_swin, takes


class WindowAttention(SelfAttention):
    """Self-attention inside windows of a side, with a learned table of relative position bias."""

    head_tables = ('relative_position_bias_table',)

    def __init__(self, embed_dims: int, shape: BlockShape, window_size: int, **settings):
        super().__init__(embed_dims, shape, **settings)
        #: Offsets along one axis.
        self.offsets = 2 * window_size - 1
        self.relative_position_bias_table = nn.Parameter(torch.empty(self.offsets**2, shape.map_heads))
        # In the state dict because the host's checkpoints have it there.
        self.register_buffer('relative_position_index', torch.empty(window_size**2, window_size**2, dtype=torch.long))
        register_load_state_dict_pre_hook(self, _fit_bias_table)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Gives the table and the index their start."""
        nn.init.zeros_(self.relative_position_bias_table)
        self.relative_position_index.copy_(relative_position_index((self.offsets + 1) // 2))

    def init_weights(self) -> None:
        """Draws the table."""
        trunc_normal_(self.relative_position_bias_table, std=0.02)

    def biases(self, site: Site) -> tuple[OffsetBias]:
        """The position bias of one window."""
        return (OffsetBias(self.relative_position_bias_table.T, site.pairs),)


def relative_position_index(window: int) -> Tensor:
    """Index of every pair of tokens of a window into its table of offsets, ``(window^2, window^2)``."""
    grid = TokenGrid(window, window)
    return pair_index(GridPair(grid, grid), 1, torch.device('cpu')).unflatten(0, (grid.num_tokens, -1))


class ShiftWindowAttention(BaseModule):
    """Multi-head self-attention inside (shifted) windows of a feature map, with mmpretrain's arguments.

    ``shape`` are its heads, ``window_msa`` the attention inside a window, which gets the further arguments.

    Raises:
        ValueError: If the shift is no part of the window.
    """

    def __init__(
        self,
        embed_dims: int,
        shape: BlockShape,
        window_size: int,
        shift_size: int,
        dropout_layer: Mapping,
        pad_small_map: bool = False,
        window_msa: type[SelfAttention] = WindowAttention,
        **settings,
    ):
        super().__init__()
        if not 0 <= shift_size < window_size:
            raise ValueError(f'shift_size={shift_size}: expected 0 to {window_size - 1}, less than window_size')
        self.window_size = window_size
        self.shift_size = shift_size
        self.pad_small_map = pad_small_map
        self.w_msa = window_msa(embed_dims, shape, window_size, **settings)
        self.drop = build_dropout(dropout_layer)

    def layout(self, hw: tuple[int, int]) -> WindowLayout:
        """How a map of ``(h, w)`` tokens is cut.

        Raises:
            ValueError: If the map is smaller than a window and may not be padded.
        """
        if min(hw) < self.window_size and not self.pad_small_map:
            raise ValueError(
                f'the feature map {tuple(hw)} is smaller than the window ({self.window_size}): set '
                'pad_small_map=True, use a smaller window_size or larger images'
            )
        # Where one window spans the map there is nothing to shift, unless maps are padded as a rule.
        shifts = min(hw) != self.window_size or self.pad_small_map
        return WindowLayout(*hw, self.window_size, self.shift_size if shifts else 0)

    def forward(
        self, x_BND: Tensor, site: Site, plugs: Bindable, carry: Carry, record: LayerRecord | None
    ) -> tuple[Tensor, Carry]:
        """The branch's output ``(B, h * w, D)`` and the carry."""
        x_BND, carry = self.w_msa(x_BND, site, plugs, carry, record)
        return (self.drop(x_BND) if self._modules['drop'].training else x_BND), carry


class SwinBlock(BaseModule):
    """One pre-norm block: attention in windows, then MLP.

    It takes the arguments of mmpretrain's block, so that its ``block_cfgs`` work, and ``reshape``, the plugs' changes
    of the block's shape.
    """

    sockets = BLOCK_SOCKETS

    def __init__(
        self,
        embed_dims: int,
        num_heads: int,
        window_size: int = 7,
        shift: bool = False,
        ffn_ratio: float = 4.0,
        drop_path: float = 0.0,
        pad_small_map: bool = False,
        attn_cfgs: Mapping = dict(),
        ffn_cfgs: Mapping = dict(),
        norm_cfg: dict = dict(type='LN'),
        with_cp: bool = False,
        init_cfg: dict | list[dict] | None = None,
        *,
        reshape: Callable[[BlockShape], BlockShape] = lambda shape: shape,
    ):
        super().__init__(init_cfg)
        self.with_cp = with_cp
        ffn_settings = dict(feedforward_channels=int(embed_dims * ffn_ratio)) | ffn_cfgs
        shape = reshape(BlockShape.stock(embed_dims, num_heads, ffn_settings['feedforward_channels']))
        branch_drop = dict(type='DropPath', drop_prob=drop_path)
        attn_settings = dict(window_size=check_integer('window_size', window_size, least=1))
        attn_settings |= dict(shift_size=window_size // 2 if shift else 0)
        attn_settings |= dict(pad_small_map=pad_small_map, dropout_layer=branch_drop)
        ffn_defaults = dict(ffn_drop=0, dropout_layer=branch_drop, act_cfg=dict(type='GELU'))
        ffn_settings = ffn_defaults | ffn_settings | dict(feedforward_channels=shape.hidden_dims)
        self.shape = shape
        self._build(embed_dims, norm_cfg, attn_settings | attn_cfgs, ffn_settings)
        self.plugs = LayerPlugs()

    def _build(self, embed_dims: int, norm_cfg: dict, attn_settings: Mapping, ffn_settings: Mapping) -> None:
        """The branches and their norms, in the order of the host's keys."""
        self.norm1 = layer_norm(norm_cfg, embed_dims)
        self.attn = ShiftWindowAttention(embed_dims, self.shape, **attn_settings)
        self.norm2 = layer_norm(norm_cfg, embed_dims)
        self.ffn = PluggedFFN(embed_dims, **ffn_settings)

    def forward(
        self, x_BND: Tensor, site: Site, carry: Carry, record: LayerRecord | None = None
    ) -> tuple[Tensor, Carry]:
        """Tokens ``(B, h * w, D)`` and carry, in and out."""
        plugs = self.plugs.bind()
        branch, carry = self.attn(self.norm1(x_BND), site, plugs, carry, record)
        if plugs.msa_residual or record is not None:
            branch = plugs.residual('msa', branch, site, record)
        x_BND = x_BND + branch
        return self.ffn(self.norm2(x_BND), x_BND, plugs, site, record), carry


class SwinStage(BaseModule):
    """Blocks of one resolution, regular and shifted in turn, and the merging of patches after them.

    It takes the arguments of mmpretrain's block sequence, so that its ``stage_cfgs`` work, and ``reshapes``, the plugs'
    changes of the shape of each block. Those that are not named here are settings of all blocks.
    """

    block_type: type[BaseModule] = SwinBlock
    merging_type = FastPatchMerging
    #: Whether patches are merged before the blocks.
    MERGES_FIRST = False

    def __init__(
        self,
        embed_dims: int,
        depth: int,
        downsample: bool = False,
        downsample_cfg: Mapping = dict(),
        drop_paths: float | Sequence[float] = 0.0,
        block_cfgs: Mapping | Sequence[Mapping] = dict(),
        init_cfg: dict | list[dict] | None = None,
        *,
        reshapes: Sequence[Callable[[BlockShape], BlockShape]],
        **shared,
    ):
        super().__init__(init_cfg)
        merging = dict(in_channels=embed_dims, out_channels=2 * embed_dims, norm_cfg=dict(type='LN'))
        merging = partial(self.merging_type, **{**merging, **downsample_cfg}) if downsample else lambda: None
        rates, block_cfgs = per_item(drop_paths, depth, 'drop_paths'), per_item(block_cfgs, depth, 'block_cfgs')
        settings = [
            {'shift': i % 2 == 1, 'drop_path': rates[i], **shared, **block_cfgs[i], 'reshape': reshapes[i]}
            for i in range(depth)
        ]
        # In the order of the host's keys.
        if self.MERGES_FIRST:
            self.downsample = merging()
            embed_dims = self.downsample.out_channels if self.downsample else embed_dims
        self.embed_dims = embed_dims
        self.blocks = ModuleList(self.block_type(embed_dims, **each) for each in settings)
        if not self.MERGES_FIRST:
            self.downsample = merging()

    @property
    def out_channels(self) -> int:
        return self.downsample.out_channels if self.downsample else self.embed_dims


_archs = partial(named_archs, ('embed_dims', 'depths', 'num_heads'))


@MODELS.register_module()
class SwinTransformer(PluggedBackbone):
    """Swin Transformer with plugs.

    Takes images of any size; maps are padded to whole windows.

    Takes mmpretrain's arguments and those of :class:`~vitplug.backbones.base.PluggedBackbone`. ``norm_cfg`` is the norm
    of every output, None leaves them out; ``pad_small_map`` pads maps smaller than a window to one (dense tasks)
    instead of refusing them.
    """

    arch_zoo = {
        **_archs('t tiny', 96, [2, 2, 6, 2], [3, 6, 12, 24]),
        **_archs('s small', 96, [2, 2, 18, 2], [3, 6, 12, 24]),
        **_archs('b base', 128, [2, 2, 18, 2], [4, 8, 16, 32]),
        **_archs('l large', 192, [2, 2, 18, 2], [6, 12, 24, 48]),
    }
    stage_type = SwinStage
    # The version that mmpretrain writes into its checkpoints.
    _version = 3
    EMBEDDING = ('patch_embed', 'drop_after_pos', 'absolute_pos_embed')
    POSITIONS = 'absolute_pos_embed'
    network_sockets = WITHOUT_PREFIX

    @takes('SwinTransformer', ('mmdet', 'mmseg'), stock_swin)
    def __init__(
        self,
        arch: str | Mapping = 'tiny',
        img_size: int | Sequence[int] = 224,
        patch_size: int | Sequence[int] = 4,
        in_channels: int = 3,
        window_size: int = 7,
        drop_rate: float = 0.0,
        drop_path_rate: float = 0.1,
        out_indices: int | Sequence[int] = (3,),
        out_after_downsample: bool = False,
        use_abs_pos_embed: bool = False,
        interpolate_mode: str = 'bicubic',
        with_cp: bool = False,
        frozen_stages: int = -1,
        norm_eval: bool = False,
        pad_small_map: bool = False,
        norm_cfg: dict | None = dict(type='LN'),
        stage_cfgs: Mapping | Sequence[Mapping] = dict(),
        patch_cfg: Mapping = dict(),
        init_cfg: dict | list[dict] | None = None,
        *,
        plugs: str | Sequence = (),
        frozen: str | None = None,
    ):
        super().__init__(init_cfg, frozen=frozen)
        self.out_after_downsample = out_after_downsample
        self.norm_eval = norm_eval
        self.arch_settings = arch = choose_arch(arch, self.arch_zoo)
        self.embed_dims, self.depths, self.num_heads = arch['embed_dims'], arch['depths'], arch['num_heads']
        self.choose_outputs(len(self.depths), out_indices, frozen_stages)

        patch_settings = dict(in_channels=in_channels, embed_dims=self.embed_dims, kernel_size=patch_size)
        patch_settings |= dict(stride=patch_size, norm_cfg=dict(type='LN'))
        self.patch_embed = build_patch_embed(img_size, patch_settings | patch_cfg)
        self.add_positions(use_abs_pos_embed, interpolate_mode, drop_rate)

        plug_set, planned = self.plan_stages(plugs, self.depths, drop_path_rate)
        shared = dict(window_size=window_size, with_cp=with_cp, pad_small_map=pad_small_map)
        self.stages = self._build_stages(planned, shared, per_item(stage_cfgs, len(self.depths), 'stage_cfgs'))
        self.num_features = [stage.out_channels if out_after_downsample else stage.embed_dims for stage in self.stages]
        self.add_norms(norm_cfg)
        self.attach(plug_set)

    def _build_stages(
        self, planned: Sequence[Sequence[Mapping]], shared: Mapping, stage_cfgs: Sequence[Mapping]
    ) -> ModuleList:
        """The stages, of the plans of their blocks, the settings that all share and those that replace them."""
        stages, embed_dims = ModuleList(), self.embed_dims
        merging = range(1, len(planned)) if self.stage_type.MERGES_FIRST else range(len(planned) - 1)
        for i, (blocks, num_heads) in enumerate(zip(planned, self.num_heads, strict=True)):
            BlockShape.stock(embed_dims, num_heads, hidden_dims=1)  # a clear error, whatever the stage is built of
            settings = dict(shared, embed_dims=embed_dims, num_heads=num_heads)
            settings |= dict(depth=len(blocks), downsample=i in merging)
            for name in ('drop_path', 'reshape'):
                settings[f'{name}s'] = [block[name] for block in blocks]
            stages.append(self.stage_type(**{**settings, **deepcopy(stage_cfgs[i])}))
            embed_dims = stages[-1].out_channels
        return stages

    def sections(self) -> list[Section]:
        return [
            Section(list(stage.blocks), stage.embed_dims, number, stage.downsample)
            for number, stage in enumerate(self.stages)
        ]

    def layout(self, index: int, hw: tuple[int, int]) -> WindowLayout:
        return self.plugged_blocks()[index].attn.layout(hw)

    def planned_layout(self, index: int, hw: tuple[int, int]) -> WindowLayout:
        # Images are often larger than the configured ones, which may be smaller than a window.
        attention = self.plugged_blocks()[index].attn
        return WindowLayout(*hw, attention.window_size, attention.shift_size)

    @property
    def pos_embed(self) -> Tensor | None:
        return self.absolute_pos_embed

    def freeze(self) -> None:
        super().freeze()
        for module in self.modules() if self.norm_eval else ():
            if isinstance(module, _BatchNorm):
                module.eval()


def _fit_bias_table(attention: WindowAttention, state_dict, prefix, *_) -> None:
    """Resizes a checkpoint's relative position table made for another window size."""
    key = f'{prefix}relative_position_bias_table'
    if key not in state_dict:
        return
    state_dict[key] = fit_bias_table(state_dict[key], attention.relative_position_bias_table, key)
    # It depends on the window alone, so the one of the checkpoint says nothing new.
    state_dict[f'{prefix}relative_position_index'] = attention.relative_position_index
