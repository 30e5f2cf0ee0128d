"""Vision Transformer, the plain columnar host.

*An Image is Worth 16x16 Words* and its DeiT variants, with the arguments, state-dict keys and outputs
of mmpretrain's class of the same name. It takes mmseg's arguments as well (:mod:`.stock`).
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial

import torch
from torch import Tensor, nn

from vitplug.attention import Carry, GlobalLayout, Layout, Site, WindowLayout, carrying
from vitplug.registry import MODELS

from .columnar import ColumnarBackbone
from .ffn import layer_norm
from .patch_embed import build_patch_embed
from .rotary import RotaryTable, Turn
from .settings import choose_indices, named_archs
from .stock import stock_vit, takes
from .vision_layers import TransformerLayer

_archs = partial(named_archs, ('embed_dims', 'num_layers', 'num_heads', 'feedforward_channels'))


@MODELS.register_module()
class VisionTransformer(ColumnarBackbone):
    """Vision Transformer with plugs.

    Takes images of any size; the position table is resized to the token grid.

    Takes mmpretrain's arguments, those of :class:`~vitplug.backbones.base.PluggedBackbone`, and these:

    Args:
        out_type: ``'cls_token'`` ``(B, D)``, ``'featmap'`` ``(B, D, h, w)``, ``'avg_featmap'`` ``(B, D)``,
            normalised once more, ``'raw'`` ``(B, N, D)``, or ``'featmap_and_cls_token'``, a pair.
        layer_cfgs: More settings of the blocks (:class:`TransformerLayer`): one dict for all or a list with one for
            each. ``with_attn=False`` or ``with_ffn=False`` leaves a branch out.
        use_abs_pos_embed: Whether there is a table of absolute positions. Without one, a plug such as
            ``RelPosMlp`` tells the blocks where tokens lie.
        rotary: Rotary positions: ``'dinov3'``, ``'eva02'``, or a dict with this ``mode`` and arguments of
            :class:`~vitplug.backbones.rotary.RotaryTable`; None for none.
        num_storage_tokens: Learned tokens without a position behind the class token: the registers of DINOv2 and
            DINOv3. They are part of the weights and of ``'raw'`` outputs; the plug ``Registers`` adds others.
        stem: From image to tokens: ``'patch'``, one convolution, or ``'conv'``, three small ones
            before it (the stem of Refined-ViT-S/M/L).
        window_size: Side in tokens of the windows that blocks attend in, as dense tasks at high resolution
            need it; None for global attention. Maps are padded to whole windows.
        global_blocks: Blocks that attend globally although there is a ``window_size``; negative indices
            count from the end.
    """

    arch_zoo = {
        **_archs('s small', 768, 8, 8, 768 * 3),
        **_archs('b base deit-b deit-base', 768, 12, 12, 768 * 4),
        **_archs('l large', 1024, 24, 16, 1024 * 4),
        **_archs('h huge', 1280, 32, 16, 1280 * 4),
        **_archs('eva-g eva-giant', 1408, 40, 16, 6144),
        **_archs('deit-t deit-tiny', 192, 12, 3, 192 * 4),
        **_archs('deit-s deit-small dinov2-s dinov2-small', 384, 12, 6, 384 * 4),
        **_archs('dinov3-s dinov3-small dinov3-s+ dinov3-small+', 384, 12, 6, 384 * 4),
        **_archs('dinov2-b dinov2-base dinov3-b dinov3-base', 768, 12, 12, 768 * 4),
        **_archs('dinov2-l dinov2-large dinov3-l dinov3-large', 1024, 24, 16, 1024 * 4),
        **_archs('dinov2-g dinov2-giant', 1536, 40, 24, 6144),
        **_archs('dinov3-h+ dinov3-huge+', 1280, 32, 20, 5120),
        **_archs('dinov3-7b', 4096, 40, 32, 8192),
        **_archs('eva02-t eva02-tiny', 192, 12, 3, 512),
        **_archs('eva02-s eva02-small', 384, 12, 6, 1024),
        **_archs('eva02-b eva02-base', 768, 12, 12, 2048),
        **_archs('eva02-l eva02-large', 1024, 24, 16, 2730),
    }

    OUT_TYPES = (*ColumnarBackbone.OUT_TYPES, 'featmap_and_cls_token')
    EMBEDDING = (*ColumnarBackbone.EMBEDDING, 'storage_tokens')
    DRAWN = ('pos_embed', 'storage_tokens')

    @takes('VisionTransformer', ('mmseg',), stock_vit, leaves_out=('patch_embed.projection.bias', 'cls_token'))
    def __init__(
        self,
        arch: str | Mapping = 'base',
        img_size: int | Sequence[int] = 224,
        patch_size: int | Sequence[int] = 16,
        in_channels: int = 3,
        out_indices: int | Sequence[int] = -1,
        drop_rate: float = 0.0,
        drop_path_rate: float = 0.0,
        qkv_bias: bool = True,
        norm_cfg: dict = dict(type='LN', eps=1e-6),
        final_norm: bool = True,
        out_type: str = 'cls_token',
        with_cls_token: bool = True,
        frozen_stages: int = -1,
        interpolate_mode: str = 'bicubic',
        layer_scale_init_value: float = 0.0,
        patch_cfg: Mapping = dict(),
        layer_cfgs: Mapping | Sequence[Mapping] = dict(),
        pre_norm: bool = False,
        init_cfg: dict | list[dict] | None = None,
        *,
        use_abs_pos_embed: bool = True,
        rotary: str | Mapping | None = None,
        num_storage_tokens: int = 0,
        stem: str = 'patch',
        window_size: int | None = None,
        global_blocks: int | Sequence[int] = (),
        plugs: str | Sequence = (),
        with_cp: bool = False,
        frozen: str | None = None,
    ):
        super().__init__(init_cfg, frozen=frozen)
        self.choose_size(arch)
        self.choose_outputs(self.num_layers, out_indices, frozen_stages, out_type, with_cls_token)
        storage_names = tuple(f'storage_token_{index}' for index in range(num_storage_tokens))
        self.num_storage_tokens = num_storage_tokens
        self.prefix_names = (self.PREFIX if with_cls_token else ()) + storage_names
        self.choose_window(window_size)
        self.global_blocks = frozenset(choose_indices(global_blocks, self.num_layers, 'global_blocks'))
        self.final_norm = final_norm

        patch_settings = dict(in_channels=in_channels, embed_dims=self.embed_dims, kernel_size=patch_size)
        # A bias before a norm would be of no use (CLIP has both left out).
        patch_settings |= dict(stride=patch_size, bias=not pre_norm)
        self.patch_embed = build_patch_embed(img_size, patch_settings | patch_cfg, stem)
        self.add_positions(use_abs_pos_embed, interpolate_mode, drop_rate)
        storage = torch.zeros(1, num_storage_tokens, self.embed_dims)
        self.storage_tokens = nn.Parameter(storage) if num_storage_tokens else None
        self.rotary = None
        if rotary is not None:
            settings = rotary if isinstance(rotary, Mapping) else dict(mode=rotary)
            self.rotary = RotaryTable(self.embed_dims // self.arch_settings['num_heads'], **settings)

        plug_set, self.layers = self.build_layers(
            TransformerLayer,
            plugs,
            drop_path_rate,
            layer_cfgs,
            **{key: self.arch_settings[key] for key in ('embed_dims', 'num_heads', 'feedforward_channels')},
            layer_scale_init_value=layer_scale_init_value,
            drop_rate=drop_rate,
            qkv_bias=qkv_bias,
            norm_cfg=norm_cfg,
            with_cp=with_cp,
        )
        self.pre_norm = layer_norm(norm_cfg, self.embed_dims) if pre_norm else nn.Identity()
        if final_norm:
            self.ln1 = layer_norm(norm_cfg, self.embed_dims)
        if out_type == 'avg_featmap':
            self.ln2 = layer_norm(norm_cfg, self.embed_dims)
        self.attach(plug_set)

    @property
    def num_placed_tokens(self) -> int:
        return self.num_extra_tokens - self.num_storage_tokens

    def layout(self, index: int, hw: tuple[int, int]) -> Layout:
        if self.window_size is None or index in self.global_blocks:
            return GlobalLayout(*hw, self.num_prefix)
        return WindowLayout(*hw, self.window_size)

    def embed(self, images: Tensor, mix: Callable[[Tensor], Tensor] | None = None) -> tuple[Tensor, tuple[int, int]]:
        x_BND, hw = super().embed(images, mix)
        if self.storage_tokens is not None:
            placed, storage = self.num_placed_tokens, self.storage_tokens.expand(x_BND.shape[0], -1, -1)
            x_BND = torch.cat((x_BND[:, :placed], storage, x_BND[:, placed:]), dim=1)
        return self.pre_norm(x_BND), hw

    def start(self, carry: Carry, sites: Sequence[Site], x_BND: Tensor) -> Carry:
        for site in sites if self.rotary is not None else ():
            key = Turn.key(site.layout)
            if key not in carry:
                carry = carrying(carry, key, self.rotary(site.layout, x_BND.dtype))
        return carry

    def format_output(self, section: int, x_BND: Tensor, hw: tuple[int, int]) -> Tensor | tuple[Tensor, ...]:
        out = super().format_output(section, x_BND, hw)
        return self.ln2(out) if self.out_type == 'avg_featmap' else out

    def frozen_with(self, stage: int) -> Sequence[nn.Module | None]:
        last = stage == self.num_layers - 1
        # A rotary module moves its coordinates at random in training.
        after = [*super().frozen_with(stage), self.rotary] if last else []
        return [*after, self.pre_norm] if stage == 0 else after


@MODELS.register_module()
class DistilledVisionTransformer(VisionTransformer):
    """The distilled DeiT: a distillation token beside the class token.

    *Training data-efficient image transformers & distillation through attention*. It always has both
    tokens; ``out_type='cls_token'`` gives the pair of them, each ``(B, D)``.
    """

    PREFIX = ('cls_token', 'dist_token')
    DRAWN = (*VisionTransformer.DRAWN, 'dist_token')

    def __init__(self, arch: str | Mapping = 'deit-base', **settings):
        if not settings.get('with_cls_token', True):
            raise ValueError('with_cls_token=False: the distilled DeiT has both tokens; choose VisionTransformer')
        super().__init__(arch, **settings)

    def class_token(self, x_BND: Tensor) -> tuple[Tensor, Tensor]:
        return x_BND[:, 0], x_BND[:, 1]
