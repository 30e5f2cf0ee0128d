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
from vitplug.attention.grids import relative_position_index
from vitplug.checkpoints.position_tables import fit_bias_table, fit_position_table, resize_position_table
from vitplug.compat import register_load_state_dict_pre_hook
from vitplug.hosting import Section
from vitplug.plugs import BLOCK_SOCKETS, NETWORK_SOCKETS, Bindable, BlockShape, LayerPlugs, PlugSet
from vitplug.plugs.checks import check_integer
from vitplug.registry import MODELS

from .attention import SelfAttention
from .base import PluggedBackbone, freeze_module
from .checks import WRONG_SETTINGS, checked
from .ffn import PluggedFFN, layer_norm
from .patch_embed import build_patch_embed
from .patch_merging import FastPatchMerging
from .plug_configs import build_plugs
from .settings import choose_arch, choose_frozen, choose_indices, named_archs, per_item, rising_rates
from .stock import SWIN, takes


class WindowAttention(SelfAttention):
    """Self-attention inside windows, with a learned table of relative position bias.

    Args:
        embed_dims: Width of a token, ``D``.
        shape: The heads.
        window_size: Side of a window.
        settings: Further arguments of :class:`SelfAttention`.
    """

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
        window_size = (self.offsets + 1) // 2
        self.relative_position_index.copy_(relative_position_index(window_size, window_size))

    def init_weights(self):
        super().init_weights()
        trunc_normal_(self.relative_position_bias_table, std=0.02)

    def biases(self, site: Site) -> tuple[OffsetBias]:
        """The position bias of one window."""
        return (OffsetBias(self.relative_position_bias_table.T, site.pairs),)


class ShiftWindowAttention(BaseModule):
    """Multi-head self-attention inside (shifted) windows of a feature map.

    Args:
        embed_dims: Width of a token, ``D``.
        shape: The heads.
        window_size: Side of a window.
        shift_size: Tokens by which the windows are shifted.
        dropout_layer: Stochastic depth of the branch.
        pad_small_map: Whether a map smaller than a window is padded to one; otherwise it is refused.
        window_msa: The attention inside a window, such as :class:`WindowAttention`.
        settings: Further arguments of it.

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
        return (self.drop(x_BND) if self.training else x_BND), carry


class SwinBlock(BaseModule):
    """One pre-norm block: attention in windows, then MLP.

    It takes the arguments of mmpretrain's block, so that its ``block_cfgs`` work, and ``reshape``, the plugs' changes
    of the block's shape.
    """

    #: The sockets that the block offers.
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
        attn_settings = dict(window_size=window_size, shift_size=window_size // 2 if shift else 0)
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

    It takes the arguments of mmpretrain's block sequence, so that its ``stage_cfgs`` work, and
    ``reshape(shape, index)``, the plugs' changes of the shape of the stage's block ``index``.
    """

    def __init__(
        self,
        embed_dims: int,
        depth: int,
        num_heads: int,
        window_size: int = 7,
        downsample: bool = False,
        downsample_cfg: Mapping = dict(),
        drop_paths: float | Sequence[float] = 0.0,
        block_cfgs: Mapping | Sequence[Mapping] = dict(),
        with_cp: bool = False,
        pad_small_map: bool = False,
        init_cfg: dict | list[dict] | None = None,
        *,
        reshape: Callable[[BlockShape, int], BlockShape] = lambda shape, index: shape,
    ):
        super().__init__(init_cfg)
        shared = dict(embed_dims=embed_dims, num_heads=num_heads, window_size=window_size)
        shared |= dict(with_cp=with_cp, pad_small_map=pad_small_map)
        self.embed_dims = embed_dims
        block_cfgs = per_item(block_cfgs, depth, 'block_cfgs')
        self.blocks = build_blocks(SwinBlock, shared, drop_paths, block_cfgs, reshape)
        merging = dict(in_channels=embed_dims, out_channels=2 * embed_dims, norm_cfg=dict(type='LN'))
        self.downsample = FastPatchMerging(**{**merging, **downsample_cfg}) if downsample else None

    @property
    def out_channels(self) -> int:
        return self.downsample.out_channels if self.downsample else self.embed_dims


def build_blocks(
    block: type[SwinBlock],
    shared: Mapping,
    drop_paths: float | Sequence[float],
    block_cfgs: Sequence[Mapping],
    reshape: Callable[[BlockShape, int], BlockShape],
) -> ModuleList:
    """The blocks of one stage, regular and shifted in turn.

    Args:
        block: Their class.
        shared: The settings of all.
        drop_paths: Stochastic depth of all, or of each.
        block_cfgs: Further settings of each.
        reshape: The plugs' changes of the shape of the stage's block ``index``, ``reshape(shape, index)``.
    """
    drop_paths = drop_paths if isinstance(drop_paths, Sequence) else [drop_paths] * len(block_cfgs)
    blocks = ModuleList()
    for index, block_cfg in enumerate(block_cfgs):
        settings = {**shared, 'shift': index % 2 == 1, 'drop_path': drop_paths[index], **block_cfg}
        blocks.append(block(**settings, reshape=partial(reshape, index=index)))
    return blocks


class SwinBackbone(PluggedBackbone):
    """What both Swin Transformers share: everything but their stages, and where patches are merged."""

    #: The class of the stages.
    stage_type: type[BaseModule]
    network_sockets = tuple(socket for socket in NETWORK_SOCKETS if socket != 'prefix')

    # --- building, in this order ---

    def _choose(self, arch: Mapping, out_indices: int | Sequence[int], frozen_stages: int) -> None:
        """Notes the architecture, the outputs and the frozen stages."""
        self.arch_settings = arch
        self.embed_dims = arch['embed_dims']
        self.depths = arch['depths']
        self.num_heads = arch['num_heads']
        self.out_indices = choose_indices(out_indices, len(self.depths))
        self.frozen_stages = choose_frozen(frozen_stages, self.frozen, len(self.depths) - 1)

    def _build_embedding(
        self,
        img_size: int | Sequence[int],
        patch_size: int | Sequence[int],
        in_channels: int,
        patch_cfg: Mapping,
        use_abs_pos_embed: bool,
        drop_rate: float,
    ) -> None:
        """Patches, their absolute positions and the dropout after them."""
        patch_settings = dict(in_channels=in_channels, embed_dims=self.embed_dims, kernel_size=patch_size)
        patch_settings |= dict(stride=patch_size, norm_cfg=dict(type='LN'))
        self.patch_embed = build_patch_embed(img_size, patch_settings | patch_cfg)
        self.patch_resolution = self.patch_embed.init_out_size
        self.absolute_pos_embed = None
        if use_abs_pos_embed:
            num_patches = self.patch_resolution[0] * self.patch_resolution[1]
            self.absolute_pos_embed = nn.Parameter(torch.zeros(1, num_patches, self.embed_dims))
        register_load_state_dict_pre_hook(self, _fit_old_checkpoint)
        self.drop_after_pos = nn.Dropout(drop_rate)

    def _build_stages(
        self,
        plug_set: PlugSet,
        drop_path_rate: float,
        settings: Sequence[Mapping],
        stage_cfgs: Mapping | Sequence[Mapping],
    ) -> None:
        """The stages, of the settings of each and the configured ones that replace them."""
        rates = rising_rates(drop_path_rate, sum(self.depths))
        stage_cfgs = per_item(stage_cfgs, len(self.depths), 'stage_cfgs')
        self.stages, embed_dims = ModuleList(), self.embed_dims
        for i, (depth, num_heads) in enumerate(zip(self.depths, self.num_heads, strict=True)):
            BlockShape.stock(embed_dims, num_heads, hidden_dims=1)  # a clear error, whatever the stage is built of
            first = sum(self.depths[:i])
            stage_settings = dict(settings[i], embed_dims=embed_dims, depth=depth, num_heads=num_heads)
            stage_settings |= dict(drop_paths=rates[first : first + depth])
            stage_settings |= dict(reshape=lambda shape, index, first=first: plug_set.shape_block(shape, first + index))
            try:
                self.stages.append(self.stage_type(**{**stage_settings, **deepcopy(stage_cfgs[i])}))
            except WRONG_SETTINGS as error:
                if not stage_cfgs[i]:
                    raise
                raise ValueError(f'stage_cfgs={stage_cfgs[i]!r} makes no stage: {error}') from error
            embed_dims = self.stages[-1].out_channels

    def _build_norms(self, norm_cfg: dict | None) -> None:
        """The norms of the outputs."""
        self.num_features = [
            stage.out_channels if self.out_after_downsample else stage.embed_dims for stage in self.stages
        ]
        for i in self.out_indices:
            norm = nn.Identity() if norm_cfg is None else layer_norm(norm_cfg, self.num_features[i])
            self.add_module(f'norm{i}', norm)

    # --- of every host ---

    def layout(self, index: int, hw: tuple[int, int]) -> WindowLayout:
        return self._attention(index).layout(hw)

    def planned_layout(self, index: int, hw: tuple[int, int]) -> WindowLayout:
        # Images are often larger than the configured ones, which may be smaller than a window.
        attention = self._attention(index)
        return WindowLayout(*hw, attention.window_size, attention.shift_size)

    def blocks_merged(self, stage: int) -> int:
        """Blocks of a stage that come before the patch merging that the stage holds."""
        return self.depths[stage]

    def _attention(self, index: int) -> ShiftWindowAttention:
        return self.plugged_blocks()[index].attn

    def init_weights(self):
        super().init_weights()
        if self.absolute_pos_embed is not None and not self.is_pretrained:
            trunc_normal_(self.absolute_pos_embed, std=0.02)

    def embed(self, images: Tensor) -> tuple[Tensor, tuple[int, int]]:
        """Images to tokens ``(B, N, D)`` and their grid ``(h, w)``."""
        x_BND, hw = self.patch_embed(images)
        if self.absolute_pos_embed is not None:
            x_BND = x_BND + resize_position_table(
                self.absolute_pos_embed, self.patch_resolution, hw, self.interpolate_mode, 0
            )
        return self.drop_after_pos(x_BND), hw

    def format_output(self, section: int, x_BND: Tensor, hw: tuple[int, int]) -> Tensor:
        normed = getattr(self, f'norm{section}')(x_BND)
        return normed.unflatten(1, hw).permute(0, 3, 1, 2).contiguous()

    def freeze(self) -> None:
        if self.frozen_stages >= 0:
            freeze_module(self.patch_embed)
            freeze_module(self.drop_after_pos)
            if self.absolute_pos_embed is not None:  # mmpretrain's stays trainable, mmdet's and mmseg's does not
                self.absolute_pos_embed.requires_grad_(False)
        for i, stage in enumerate(self.stages[: self.frozen_stages + 1]):
            freeze_module(stage)
            if i in self.out_indices:
                getattr(self, f'norm{i}').requires_grad_(False)
        if self.norm_eval:
            for module in self.modules():
                if isinstance(module, _BatchNorm):
                    module.eval()

    def depth_of(self, name: str) -> int | None:
        # Patch merging has the depth of the last block before it.
        if name.startswith('stages.'):
            _, stage, part, block, *_ = name.split('.')
            before = sum(self.depths[: int(stage)])
            return before + (int(block) + 1 if part == 'blocks' else self.blocks_merged(int(stage)))
        return 0 if name.startswith(('patch_embed.', 'absolute_pos_embed')) else None


_ARCH_KEYS = ('embed_dims', 'depths', 'num_heads')
_archs = partial(named_archs, _ARCH_KEYS)


@MODELS.register_module()
class SwinTransformer(SwinBackbone):
    """Swin Transformer with plugs.

    Takes images of any size; maps are padded to whole windows.

    Args:
        arch: Name in :attr:`arch_zoo`, or a dict with ``embed_dims``, ``depths`` and ``num_heads``.
        img_size: Image size ``(h, w)`` the absolute position table is made for.
        patch_size: Side of a patch in pixels.
        in_channels: Channels of the images.
        window_size: Side of a window in tokens.
        drop_rate: Drop rate after the embedding.
        drop_path_rate: Stochastic depth of the last block; grows linearly from 0.
        out_indices: Stages whose output is returned, each ``(B, D, h, w)``.
        out_after_downsample: Whether that is the output after the stage's patch merging.
        use_abs_pos_embed: Whether there is a table of absolute positions.
        interpolate_mode: How that table is resized.
        with_cp: Whether activations are computed again in backward instead of being kept.
        frozen_stages: Last stage to freeze; -1 freezes nothing.
        frozen: ``'host'`` freezes all but the plugs; None leaves it to ``frozen_stages``.
        norm_eval: Whether batch norms stay in evaluation mode.
        pad_small_map: Whether maps smaller than a window are padded to one (dense tasks) instead of
            being refused.
        norm_cfg: The norm of every output; None leaves them out.
        stage_cfgs: More settings of the stages: one dict for all or a list with one for each.
        patch_cfg: More settings of mmcv's ``PatchEmbed``.
        plugs: A text such as ``'gab+residual(alpha=0.25)'``, or a list of texts, dicts and plugs.
        init_cfg: Weight initialisation.

    Raises:
        ValueError: Names the argument, its value and what is allowed.
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

    @takes(SWIN)
    @checked
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
        check_integer('window_size', window_size, least=1)
        self._choose(choose_arch(arch, self.arch_zoo, set(_ARCH_KEYS)), out_indices, frozen_stages)
        self.out_after_downsample = out_after_downsample
        self.interpolate_mode = interpolate_mode
        self.norm_eval = norm_eval
        self._build_embedding(img_size, patch_size, in_channels, patch_cfg, use_abs_pos_embed, drop_rate)
        plug_set = PlugSet(build_plugs(plugs), sum(self.depths))
        shared = dict(window_size=window_size, with_cp=with_cp, pad_small_map=pad_small_map)
        last = len(self.depths) - 1
        settings = [dict(shared, downsample=stage < last) for stage in range(last + 1)]
        self._build_stages(plug_set, drop_path_rate, settings, stage_cfgs)
        self._build_norms(norm_cfg)
        self.attach(plug_set)
        self.freeze()

    def sections(self) -> list[Section]:
        return [
            Section(list(stage.blocks), stage.embed_dims, number, stage.downsample)
            for number, stage in enumerate(self.stages)
        ]


def _fit_bias_table(attention: WindowAttention, state_dict, prefix, *_) -> None:
    """Resizes a checkpoint's relative position table made for another window size."""
    key = f'{prefix}relative_position_bias_table'
    if key not in state_dict:
        return
    state_dict[key] = fit_bias_table(state_dict[key], attention.relative_position_bias_table, key)
    # It depends on the window alone, so the one of the checkpoint says nothing new.
    state_dict[f'{prefix}relative_position_index'] = attention.relative_position_index


def _fit_old_checkpoint(backbone: SwinBackbone, state_dict, prefix, local_metadata, *_) -> None:
    """Resizes the absolute position table; renames and drops keys of older checkpoints."""
    key = f'{prefix}absolute_pos_embed'
    if backbone.absolute_pos_embed is not None and key in state_dict:
        state_dict[key] = fit_position_table(
            state_dict[key], backbone.patch_resolution, backbone.interpolate_mode, 0, key
        )
    last_norm = f'{prefix}norm{len(backbone.stages) - 1}.'
    for key in [k for k in state_dict if k.startswith(f'{prefix}norm.')]:
        state_dict[key.replace(f'{prefix}norm.', last_norm)] = state_dict.pop(key)
    for key in [k for k in state_dict if k.startswith(prefix) and k.endswith('attn_mask')]:
        del state_dict[key]
