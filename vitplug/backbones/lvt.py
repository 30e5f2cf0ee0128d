"""Lite Vision Transformer (LVT), a small hierarchical host.

*Lite Vision Transformer with Enhanced Self-Attention*. A classifier with this backbone has the parameter names of the
authors' code, such as ``backbone.1.1.0.attn.q.weight``: stage 1, its blocks, block 0.
"""

from collections.abc import Callable, Mapping, Sequence

import torch
import torch.nn.functional as F
from mmengine.model import ModuleDict, ModuleList
from mmengine.model.weight_init import trunc_normal_
from torch import Tensor, nn

from vitplug.compat import replace
from vitplug.hosting import Mlp, PixelGrid, Section
from vitplug.plugs import BlockShape
from vitplug.plugs.plug_set import is_plug
from vitplug.registry import MODELS

from .base import WITHOUT_PREFIX, PluggedBackbone
from .ffn import layer_norm
from .lvt_layers import ClassBlock, ConvMlp, ConvolutionalAttention, RecursiveAttention, StartedByOutputs
from .patch_embed import OverlappingPatches, to_map, to_tokens
from .settings import choose_arch
from .vision_layers import PreNormBlock

# Outputs that come from the class-attention blocks, and how many of these there are.
CLASS_OUT_TYPES, CLASS_DEPTH = ('cls_token', 'raw'), 2


@MODELS.register_module()
class LVT(PluggedBackbone):
    """Lite Vision Transformer with plugs.

    The first stage has convolutional self-attention and an MLP without convolution, the others have recursive atrous
    self-attention and an MLP with a depthwise convolution. Takes images of any size.

    Takes the arguments of :class:`~vitplug.backbones.base.PluggedBackbone`, and these:

    Args:
        arch: Name in :attr:`arch_zoo`, or a dict with lists of one entry for each stage: ``embed_dims``, ``depths``,
            ``num_heads``, ``mlp_ratios`` and ``sr_ratios``, the strides of the keys. The first stage has no keys; the
            first of ``sr_ratios`` is not used.
        attn_drop_rate: Drop rate of attention probabilities.
        out_type: ``'featmap'`` ``(B, D, h, w)`` for each of ``out_indices``; of the last stage only,
            ``'avg_featmap'`` ``(B, D)``, the mean of the tokens, ``'cls_token'`` ``(B, D)``, the class token of the
            two class-attention blocks, or ``'raw'`` ``(B, 1 + N, D)``, the same with the stage's tokens after it.
        norm_cfg: The norm of every output; None leaves them out.
    """

    arch_zoo = {
        'lvt': dict(
            embed_dims=[64, 64, 160, 256],
            depths=[2, 2, 2, 2],
            num_heads=[2, 2, 5, 8],
            mlp_ratios=[4, 8, 4, 4],
            sr_ratios=[8, 4, 2, 1],
        )
    }
    OUT_TYPES = ('featmap', 'avg_featmap', 'cls_token', 'raw')
    EMBEDDING = ('0.0',)
    DRAWN = ()  # by `reset_parameters`
    # Convolutions, and keys with a stride, have no place for further tokens.
    network_sockets = WITHOUT_PREFIX

    def __init__(
        self,
        arch: str | Mapping = 'lvt',
        img_size: int | Sequence[int] = 224,
        in_channels: int = 3,
        drop_rate: float = 0.0,
        attn_drop_rate: float = 0.0,
        drop_path_rate: float = 0.0,
        out_type: str = 'featmap',
        out_indices: int | Sequence[int] = -1,
        with_cp: bool = False,
        frozen_stages: int = -1,
        norm_cfg: dict | None = dict(type='LN'),
        init_cfg: dict | list[dict] | None = None,
        *,
        plugs: str | Sequence = (),
        frozen: str | None = None,
    ):
        super().__init__(init_cfg, frozen=frozen)
        self.arch_settings = choose_arch(arch, self.arch_zoo)
        self.num_features = self.embed_dims = list(self.arch_settings['embed_dims'])
        self.depths = self.arch_settings['depths']
        self.choose_outputs(len(self.depths), out_indices, frozen_stages, out_type)
        if out_type != 'featmap' and self.out_indices != [len(self.depths) - 1]:
            raise ValueError(f'out_indices={out_indices!r}: out_type={out_type!r} is of the last stage alone')
        plug_set, planned = self.plan_stages(plugs, self.depths, drop_path_rate)
        entering = [in_channels, *self.embed_dims]
        for stage, of_blocks in enumerate(planned):
            # In the order of the modules, which draws their first values in that of the names.
            kernel, stride = (3, 2) if stage else (7, 4)
            conv = StartedByOutputs(entering[stage], self.embed_dims[stage], kernel, stride, padding=kernel // 2)
            patch_embed = OverlappingPatches('proj', conv, nn.LayerNorm(self.embed_dims[stage]))
            blocks = [self._build_block(stage, drop_rate, attn_drop_rate, with_cp, **each) for each in of_blocks]
            # By its number, so that a classifier's names are the authors'.
            self.add_module(str(stage), ModuleList([patch_embed, ModuleList(blocks)]))
        self.patch_embed.configure(img_size, in_channels)
        self.patch_resolution = self.patch_embed.init_out_size
        self._build_outputs(norm_cfg, drop_rate)
        self.reset_parameters()
        self.attach(plug_set)

    def reset_parameters(self) -> None:
        """Draws the class token, and the linear layers, but those of plugs, anew."""
        if self.out_type in CLASS_OUT_TYPES:
            trunc_normal_(self.cls_token, std=0.02)
        for name, module in self.named_modules():
            if isinstance(module, nn.Linear) and not is_plug(name):
                trunc_normal_(module.weight, std=0.02)
                if module.bias is not None:
                    nn.init.zeros_(module.bias)

    def _build_block(
        self,
        stage: int,
        drop_rate: float,
        attn_drop_rate: float,
        with_cp: bool,
        drop_path: float,
        reshape: Callable[[BlockShape], BlockShape],
    ) -> PreNormBlock:
        dims, num_heads, mlp_ratio, sr_ratio = (
            self.arch_settings[key][stage] for key in ('embed_dims', 'num_heads', 'mlp_ratios', 'sr_ratios')
        )
        shape, drops = BlockShape.stock(dims, num_heads, mlp_ratio * dims), (attn_drop_rate, drop_rate)
        if stage:
            shape = reshape(shape)
            attn = RecursiveAttention(dims, shape, sr_ratio, *drops)
            mlp = ConvMlp(dims, shape.hidden_dims, drop_rate)
        else:
            # No q and k, and no head of a width that a plug could add to or take from.
            shape = reshape(replace(shape, head_dims=0, map_heads=0))
            attn = ConvolutionalAttention(dims, num_heads, *drops)
            mlp = Mlp(dims, shape.hidden_dims, drop_rate=drop_rate)
        return PreNormBlock(dims, shape, attn, mlp, drop_path, with_cp)

    def _build_outputs(self, norm_cfg: dict | None, drop_rate: float) -> None:
        """The norms of the outputs and the class-attention blocks, as far as ``out_type`` needs them."""
        if self.out_type == 'featmap':
            norms = {str(i): layer_norm(norm_cfg, self.embed_dims[i]) for i in self.out_indices}
            self.downstream_norms = ModuleDict(norms)
            return
        dims = self.embed_dims[-1]
        self.norm = layer_norm(norm_cfg, dims)
        if self.out_type in CLASS_OUT_TYPES:
            heads, ratio = (self.arch_settings[key][-1] for key in ('num_heads', 'mlp_ratios'))
            self.post_network = ModuleList(ClassBlock(dims, heads, ratio * dims, drop_rate) for _ in range(CLASS_DEPTH))
            self.cls_token = nn.Parameter(torch.empty(1, 1, dims))

    @property
    def stages(self) -> list[ModuleList]:
        """Of each stage the patch embedding and the blocks."""
        return [getattr(self, str(stage)) for stage in range(len(self.depths))]

    @property
    def patch_embed(self) -> OverlappingPatches:
        return self.stages[0][0]

    def sections(self) -> list[Section]:
        embeddings, blocks = zip(*self.stages, strict=True)
        return self.sections_of(blocks, embeddings[1:])

    def strides(self, index: int) -> tuple[int, int]:
        return 1, getattr(self.plugged_blocks()[index].attn, 'sr_ratio', 1)

    def key_pixels(self, index: int, entering: PixelGrid) -> PixelGrid:
        # Every key is a convolution of the tokens of one square.
        return entering.merged(self.strides(index)[1])

    def embed(self, images: Tensor, mix: Callable[[Tensor], Tensor] | None = None) -> tuple[Tensor, tuple[int, int]]:
        """Images to tokens ``(B, N, D)`` of the first stage and their grid ``(h, w)``.

        ``mix`` changes them as ``(B, h, w, C)`` on the grid of the last stage: each entry has the channels of all
        tokens that the last stage's one stands for.

        Raises:
            ValueError: If tokens are to be mixed, and the grid of the last stage does not divide the first's.
        """
        x_BND, hw = self.patch_embed(images)
        return (x_BND if mix is None else self._mix(x_BND, hw, mix)), hw

    def _mix(self, x_BND: Tensor, hw: tuple[int, int], mix: Callable[[Tensor], Tensor]) -> Tensor:
        side = 2 ** (len(self.depths) - 1)
        if any(length % side for length in hw):
            raise ValueError(
                f'MixToken: the map of {hw} tokens has no whole pieces of {side} x {side}, a token of the last stage '
                f'each: use images of a multiple of {4 * side} pixels'
            )
        mixed_BhwC = mix(F.pixel_unshuffle(to_map(x_BND, hw), side).permute(0, 2, 3, 1))
        return to_tokens(F.pixel_shuffle(mixed_BhwC.permute(0, 3, 1, 2), side))

    def normalise(self, section: int, x_BND: Tensor, hw: tuple[int, int]) -> Tensor:
        if self.out_type in CLASS_OUT_TYPES:
            x_BND = torch.cat((self.cls_token.expand(x_BND.shape[0], -1, -1).to(x_BND.dtype), x_BND), dim=1)
            for block in self.post_network:
                x_BND = block(x_BND)
        return self._norm(section)(x_BND)

    def _norm(self, stage: int) -> nn.Module:
        return self.downstream_norms[str(stage)] if hasattr(self, 'downstream_norms') else self.norm

    def frozen_with(self, stage: int) -> Sequence[nn.Module]:
        # Class attention comes after all stages, and its norm with it.
        return [self._norm(stage)] if stage in self.out_indices and self.out_type not in CLASS_OUT_TYPES else []
