"""T2T-ViT, the columnar host whose tokens are made in steps.

*Tokens-to-Token ViT: Training Vision Transformers from Scratch on ImageNet*, with the arguments, state-dict keys and
outputs of mmpretrain's class of the same name, and the numbers of the official code: mmpretrain's scores are
``sqrt(d)`` times the dot products, not ``1 / sqrt(d)`` times.
"""

from collections.abc import Mapping, Sequence

import torch
from mmengine.model import BaseModule
from mmengine.model.weight_init import trunc_normal_
from torch import Tensor, nn

from vitplug.checkpoints.position_tables import fit_stored_positions
from vitplug.compat import register_load_state_dict_pre_hook
from vitplug.hosting import PixelGrid
from vitplug.plugs import PlugSet
from vitplug.registry import MODELS

from .checks import check_images, checked
from .columnar import ColumnarBackbone
from .ffn import layer_norm
from .plug_configs import build_plugs
from .settings import choose_frozen, choose_indices, choose_out_type, rising_rates
from .tokens_to_token import TokensToToken
from .vision_layers import TransformerLayer

# The official start; mmpretrain's configs have the same.
_START = [
    dict(type='TruncNormal', layer='Linear', std=0.02, bias=0.0),
    dict(type='Constant', layer='LayerNorm', val=1.0, bias=0.0),
]


class T2TLayer(TransformerLayer):
    """A block of T2T-ViT; all of it starts as the network's ``init_cfg`` says."""

    def init_weights(self):
        BaseModule.init_weights(self)


@MODELS.register_module()
class T2T_ViT(ColumnarBackbone):
    """T2T-ViT with plugs, which act on the blocks behind the token stage.

    Takes images of any size; the position table is resized to the token grid.

    Args:
        img_size: Image size, one side or ``(h, w)``, the position table is made for.
        in_channels: Channels of the images.
        embed_dims: Width of the tokens, ``D``.
        num_layers: Number of blocks.
        out_indices: Blocks whose output is returned; negative ones count from the end.
        drop_rate: Drop rate after the position table, the attention projection and in the MLP.
        drop_path_rate: Stochastic depth of the last block; grows linearly from 0.
        norm_cfg: The norm layers of the blocks and after them.
        final_norm: Whether the last block's output is normalised.
        out_type: ``'cls_token'`` ``(B, D)``, ``'featmap'`` ``(B, D, h, w)``, ``'avg_featmap'`` ``(B, D)`` or
            ``'raw'`` ``(B, N, D)``.
        with_cls_token: Whether there is a class token.
        interpolate_mode: How the position table is resized.
        t2t_cfg: Settings of the token stage (:class:`~vitplug.backbones.tokens_to_token.TokensToToken`):
            ``token_dims``, ``use_performer``, ``performer_drop_rate``.
        layer_cfgs: More settings of the blocks (:class:`~vitplug.backbones.vision_transformer.TransformerLayer`): one
            dict for all or a list with one for each. There are 6 heads and MLPs of width ``3 * embed_dims`` by default.
        init_cfg: Weight initialisation; by default the official one.
        qk_scale: Factor of the blocks' dot products, ``d ** -0.5`` for None, with ``d`` the width of a head, as in
            the official training. The official builder has ``embed_dims ** -0.5`` for ``pretrained=True``.
        frozen_stages: Blocks (and everything before them) to freeze; nothing for values below 1.
        frozen: ``'host'`` freezes all but the plugs; None leaves it to ``frozen_stages``.
        plugs: A text such as ``'gab+residual(alpha=0.25)'``, or a list of texts, dicts and plugs.
        with_cp: Whether activations of the blocks and of the token stage are computed again in backward instead of
            being kept.

    Raises:
        ValueError: Names the argument, its value and what is allowed.
    """

    EMBED, BLOCKS, NORMS = 'tokens_to_token', 'encoder', ('norm',)

    @checked
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
        init_cfg: dict | list[dict] | None = _START,
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
        self.out_indices = choose_indices(out_indices, num_layers)
        self.out_type = choose_out_type(out_type, self.OUT_TYPES, with_cls_token)
        self.prefix_names = self.PREFIX if with_cls_token else ()
        self.interpolate_mode = interpolate_mode
        self.final_norm = final_norm
        self.frozen_stages = choose_frozen(frozen_stages, self.frozen, num_layers)

        stage = dict(img_size=img_size, in_channels=in_channels, embed_dims=embed_dims, with_cp=with_cp)
        try:
            self.tokens_to_token = TokensToToken(**stage, **t2t_cfg)
        except TypeError as error:
            raise ValueError(f't2t_cfg={dict(t2t_cfg)!r} makes no token stage: {error}') from error
        self.patch_resolution = self.tokens_to_token.init_out_size
        num_tokens = self.num_extra_tokens + self.patch_resolution[0] * self.patch_resolution[1]
        self.add_prefix_tokens()
        # Fixed, but in the state dict, and counted among the parameters as the official code does.
        self.pos_embed = nn.Parameter(torch.empty(1, num_tokens, embed_dims), requires_grad=False)
        self.reset_parameters()
        register_load_state_dict_pre_hook(self, fit_stored_positions)
        self.drop_after_pos = nn.Dropout(drop_rate)

        plug_set = PlugSet(build_plugs(plugs), num_layers)
        self.encoder = self.build_layers(
            T2TLayer,
            plug_set,
            rising_rates(drop_path_rate, num_layers),
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
        self.freeze()

    def check_images(self, images: Tensor) -> None:
        stage = self.tokens_to_token
        check_images(images, stage.image_channels, stage.project.weight.dtype)
        stage.check_size(images.shape[-2:])

    @property
    def image_stride(self) -> tuple[int, int]:
        return self.tokens_to_token.STRIDE

    def pixels(self, image_size: tuple[int, int]) -> PixelGrid:
        return self.tokens_to_token.pixels(image_size)

    def reset_parameters(self) -> None:
        super().reset_parameters()
        self.pos_embed.data.copy_(sinusoids(*self.pos_embed.shape[1:]))

    def init_weights(self):
        super().init_weights()
        if self.cls_token is not None and not self.is_pretrained:
            trunc_normal_(self.cls_token, std=0.02)


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
