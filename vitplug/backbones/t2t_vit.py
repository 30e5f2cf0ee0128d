"""T2T-ViT, the columnar host whose tokens are made in steps.

*Tokens-to-Token ViT: Training Vision Transformers from Scratch on ImageNet*, with the arguments, state-dict keys and
outputs of mmpretrain's class of the same name, and the numbers of the official code: mmpretrain's scores are
``sqrt(d)`` times the dot products, not ``1 / sqrt(d)`` times.
"""

from collections.abc import Mapping, Sequence

import torch
from mmengine.model import BaseModule
from torch import Tensor

from vitplug.registry import MODELS

from .columnar import ColumnarBackbone
from .ffn import layer_norm
from .stock import START
from .tokens_to_token import TokensToToken
from .vision_layers import TransformerLayer


class T2TLayer(TransformerLayer):
    """A block of T2T-ViT; all of it starts as the network's ``init_cfg`` says."""

    def init_weights(self):
        BaseModule.init_weights(self)


@MODELS.register_module()
class T2T_ViT(ColumnarBackbone):
    """T2T-ViT with plugs, which act on the blocks behind the token stage.

    Takes images of any size; the position table is resized to the token grid.

    Takes mmpretrain's arguments, those of :class:`~vitplug.backbones.base.PluggedBackbone`, and these:

    Args:
        t2t_cfg: Settings of the token stage (:class:`~vitplug.backbones.tokens_to_token.TokensToToken`):
            ``token_dims``, ``use_performer``, ``performer_drop_rate``.
        layer_cfgs: More settings of the blocks (:class:`~vitplug.backbones.vision_transformer.TransformerLayer`): one
            dict for all or a list with one for each. There are 6 heads and MLPs of width ``3 * embed_dims`` by default.
        qk_scale: Factor of the blocks' dot products, ``d ** -0.5`` for None, with ``d`` the width of a head, as in
            the official training. The official builder has ``embed_dims ** -0.5`` for ``pretrained=True``.
    """

    EMBEDDING = ('tokens_to_token', *ColumnarBackbone.EMBEDDING[1:])
    STAGES, NORMS = 'encoder', ('norm',)
    DRAWN = ('cls_token',)

    def __init__(
        self,
        img_size: int | Sequence[int] = 224,
        in_channels: int = 3,
        embed_dims: int = 384,
        num_layers: int = 14,
        out_indices: int | Sequence[int] = -1,
        drop_rate: float = 0.0,
        drop_path_rate: float = 0.0,
        norm_cfg: dict = dict(type='LN'),
        final_norm: bool = True,
        out_type: str = 'cls_token',
        with_cls_token: bool = True,
        interpolate_mode: str = 'bicubic',
        t2t_cfg: Mapping = dict(),
        layer_cfgs: Mapping | Sequence[Mapping] = dict(),
        init_cfg: dict | list[dict] | None = START,
        *,
        qk_scale: float | None = None,
        frozen_stages: int = -1,
        plugs: str | Sequence = (),
        with_cp: bool = False,
        frozen: str | None = None,
    ):
        super().__init__(init_cfg, frozen=frozen)
        self.embed_dims = embed_dims
        self.num_layers = num_layers
        self.choose_outputs(num_layers, out_indices, frozen_stages, out_type, with_cls_token)
        self.prefix_names = self.PREFIX if with_cls_token else ()
        self.final_norm = final_norm

        stage = dict(img_size=img_size, in_channels=in_channels, embed_dims=embed_dims, with_cp=with_cp)
        self.tokens_to_token = TokensToToken(**stage, **t2t_cfg)
        self.add_positions(True, interpolate_mode, drop_rate)
        # Fixed, but in the state dict, and counted among the parameters as the official code does.
        self.pos_embed.requires_grad_(False)
        self.reset_parameters()

        plug_set, self.encoder = self.build_layers(
            T2TLayer,
            plugs,
            drop_path_rate,
            layer_cfgs,
            embed_dims=embed_dims,
            num_heads=6,
            feedforward_channels=3 * embed_dims,
            drop_rate=drop_rate,
            qkv_bias=False,
            qk_scale=qk_scale,
            norm_cfg=norm_cfg,
            with_cp=with_cp,
        )
        if final_norm:
            self.norm = layer_norm(norm_cfg, embed_dims)
        self.attach(plug_set)

    @property
    def patch_embed(self) -> TokensToToken:
        return self.tokens_to_token

    def reset_parameters(self) -> None:
        super().reset_parameters()
        self.pos_embed.data.copy_(sinusoids(*self.pos_embed.shape[1:]))


def sinusoids(num_positions: int, dims: int) -> Tensor:
    """Positions in a sequence as sines and cosines, ``(num_positions, dims)``.

    *Attention Is All You Need*, section 3.5: channels ``2i`` and ``2i + 1`` are sine and cosine of the position over
    ``10000 ** (2i / dims)``.
    """
    places = torch.arange(num_positions, dtype=torch.float64)
    pairs = torch.arange(0, dims, 2, dtype=torch.float64)
    angles = places[:, None] / 10000 ** (pairs / dims)
    table = torch.stack((angles.sin(), angles.cos()), dim=-1).flatten(1)
    return table[:, :dims].to(torch.get_default_dtype())
