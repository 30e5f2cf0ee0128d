"""Pre-norm blocks."""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from mmcv.cnn.bricks.drop import build_dropout
from mmengine.model import BaseModule
from torch import Tensor, nn

from vitplug.attention import Carry, LayerRecord, Site
from vitplug.compat import replace
from vitplug.hosting import SelfAttention
from vitplug.plugs import BLOCK_SOCKETS, Bindable, BlockShape, LayerPlugs
from vitplug.plugs.checks import check_choice

from .ffn import PluggedFFN, PluggedSwiGLU, layer_norm, layer_scale, start_mlp
from .rotary import Turn


class WithoutKeyBias(nn.Linear):
    """A projection to q, k and v of these ``widths``, whose bias of k keeps its place and does nothing."""

    def __init__(self, linear: nn.Linear, widths: list[int]):
        nn.Module.__init__(self)
        vars(self).update(in_features=linear.in_features, out_features=linear.out_features, widths=widths)
        self.weight, self.bias = linear.weight, linear.bias

    @property
    def used_bias(self) -> Tensor:
        """``(sum of widths,)``"""
        of_q, of_k, of_v = self.bias.split(self.widths)
        return torch.cat((of_q, 0 * of_k, of_v))

    def forward(self, tokens: Tensor) -> Tensor:
        """q, k and v of tokens ``(..., D)``, side by side."""
        return F.linear(tokens, self.weight, self.used_bias)


class ScaledAttention(SelfAttention):
    """The attention branch of a block, with LayerScale and stochastic depth.

    Args:
        embed_dims: Width of a token, ``D``.
        shape: The heads.
        drop_path: Drop rate of the whole branch, per image.
        layer_scale_init_value: Start of LayerScale; 0 leaves it out.
        key_bias: Whether keys have a bias. Without, their part of the parameter keeps its place and does nothing.
        settings: Further arguments of :class:`SelfAttention`.
    """

    def __init__(
        self,
        embed_dims: int,
        shape: BlockShape,
        drop_path: float,
        layer_scale_init_value: float,
        key_bias: bool = True,
        **settings,
    ):
        super().__init__(embed_dims, shape, **settings)
        self.key_bias = key_bias or self.qkv.bias is None
        if not self.key_bias:
            self.qkv = WithoutKeyBias(self.qkv, [n * shape.head_dims for n in self.projected_heads['qkv']])
        self.out_drop = build_dropout(dict(type='DropPath', drop_prob=drop_path))
        self.gamma1, self.is_scaled = layer_scale(embed_dims, layer_scale_init_value), layer_scale_init_value > 0

    @property
    def qkv_bias(self) -> Tensor | None:
        qkv = self.qkv._modules.get('original_layer', self.qkv)
        return qkv.bias if self.key_bias else qkv.used_bias

    def place(self, q: Tensor, k: Tensor, v: Tensor, carry: Carry, site: Site) -> tuple[Tensor, Tensor, Tensor]:
        turn = carry.get(Turn.key(site.layout))
        return (q, k, v) if turn is None else (turn.of(q), turn.of(k), v)

    def forward(
        self, x_BND: Tensor, site: Site, plugs: Bindable, carry: Carry, record: LayerRecord | None = None
    ) -> tuple[Tensor, Carry]:
        """Tokens ``(B, N, D)`` and carry, in and out."""
        x_BND, carry = super().forward(x_BND, site, plugs, carry, record)
        if self.is_scaled:
            x_BND = self.gamma1(x_BND)
        return (self.out_drop(x_BND) if self._modules['out_drop'].training else x_BND), carry


class PreNormBlock(BaseModule):
    """One pre-norm block, attention, then MLP, of ready branches.

    Args:
        embed_dims: Width of a token.
        shape: Heads and widths.
        attn: The attention; one that offers other ``sockets`` than all says so.
        mlp: The MLP.
        drop_path: Drop rate of a whole branch, per image.
        with_cp: As of the host.
        norm_cfg: The norms.
        mlp_dims: Width of the tokens that enter the MLP, where it is another.
    """

    def __init__(
        self,
        embed_dims: int,
        shape: BlockShape,
        attn: nn.Module,
        mlp: nn.Module,
        drop_path: float,
        with_cp: bool,
        norm_cfg: dict = dict(type='LN'),
        mlp_dims: int | None = None,
    ):
        super().__init__()
        self.shape = shape
        self.with_cp = with_cp
        self.norm1 = layer_norm(norm_cfg, embed_dims)
        self.attn = attn
        self.norm2 = layer_norm(norm_cfg, mlp_dims or embed_dims)
        self.mlp = mlp
        self.drop_path = build_dropout(dict(type='DropPath', drop_prob=drop_path))
        self.plugs = LayerPlugs()

    @property
    def sockets(self) -> tuple[str, ...]:
        """The sockets that the block offers."""
        return getattr(self.attn, 'sockets', BLOCK_SOCKETS)

    def forward(
        self, x_BND: Tensor, site: Site, carry: Carry, record: LayerRecord | None = None
    ) -> tuple[Tensor, Carry]:
        """Tokens ``(B, N, D)`` and carry, in and out."""
        plugs = self.plugs.bind()
        attn, carry = self.attn(self.norm1(x_BND), site, plugs, carry, record)
        x_BND = x_BND + plugs.residual('msa', self.drop_path(attn), site, record)
        mlp = self.drop_path(self.mlp(self.norm2(x_BND), plugs, site))
        return x_BND + plugs.residual('mlp', mlp, site, record), carry


class TransformerLayer(BaseModule):
    """One pre-norm block: attention, then MLP.

    It takes the arguments of mmpretrain's encoder layer, so that its ``layer_cfgs`` work, and these:

    Args:
        with_attn: Whether there is an attention branch.
        with_ffn: Whether there is an MLP branch.
        attn_drop_path_rate: Drop path of the attention branch, where it is another than the MLP's.
        qk_scale: Factor of the dot products, ``d ** -0.5`` for None, with ``d`` the width of a head.
        key_bias: Whether keys have a bias, see :class:`ScaledAttention`.
        ffn_norm: Whether a SwiGLU normalises its hidden tokens. It has no ``num_fcs``, ``drop_rate`` and ``act_cfg``.
        reshape: Changes of the block's shape by the plugs.
        init_cfg: How the block's weights start. None is mmpretrain's start: Xavier for the MLP, and for attention
            the network's ``init_cfg``.

    Raises:
        ValueError: If the width is no multiple of the heads, ``ffn_type`` is unknown, or no branch is left.
    """

    #: The sockets that the block offers.
    sockets = BLOCK_SOCKETS

    def __init__(
        self,
        embed_dims: int,
        num_heads: int,
        feedforward_channels: int,
        layer_scale_init_value: float = 0.0,
        drop_rate: float = 0.0,
        attn_drop_rate: float = 0.0,
        drop_path_rate: float = 0.0,
        num_fcs: int = 2,
        qkv_bias: bool = True,
        ffn_type: str = 'origin',
        act_cfg: dict = dict(type='GELU'),
        norm_cfg: dict = dict(type='LN'),
        init_cfg: dict | list[dict] | None = None,
        *,
        with_cp: bool = False,
        with_attn: bool = True,
        with_ffn: bool = True,
        attn_drop_path_rate: float | None = None,
        qk_scale: float | None = None,
        key_bias: bool = True,
        ffn_norm: bool = False,
        reshape: Callable[[BlockShape], BlockShape] = lambda shape: shape,
    ):
        super().__init__(init_cfg)
        self.embed_dims = embed_dims
        self.with_cp = with_cp
        check_choice('ffn_type', ffn_type, ('origin', 'swiglu_fused', 'swiglu'))
        if not (with_attn or with_ffn):
            raise ValueError('with_attn=False and with_ffn=False leave nothing of the block; set one of them to True')
        shape = BlockShape.stock(embed_dims, num_heads, feedforward_channels if with_ffn else 0)
        shape = reshape(shape if with_attn else replace(shape, map_heads=0, value_heads=0, out_heads=0))
        self.ln1 = self.attn = self.ln2 = self.ffn = None
        if with_attn:
            self.ln1 = layer_norm(norm_cfg, embed_dims)
            self.attn = ScaledAttention(
                embed_dims,
                shape,
                drop_path_rate if attn_drop_path_rate is None else attn_drop_path_rate,
                layer_scale_init_value,
                qkv_bias=qkv_bias,
                qk_scale=qk_scale,
                key_bias=key_bias,
                attn_drop=attn_drop_rate,
                proj_drop=drop_rate,
            )
        if with_ffn:
            self.ln2 = layer_norm(norm_cfg, embed_dims)
            shared = dict(layer_scale_init_value=layer_scale_init_value)
            shared |= dict(dropout_layer=dict(type='DropPath', drop_prob=drop_path_rate))
            if ffn_type == 'swiglu_fused':  # as mmpretrain's: two thirds, rounded up to a multiple of 8
                shape = replace(shape, hidden_dims=(int(shape.hidden_dims * 2 / 3) + 7) // 8 * 8)
            if ffn_type == 'origin':
                settings = dict(num_fcs=num_fcs, ffn_drop=drop_rate, act_cfg=act_cfg)
                self.ffn = PluggedFFN(embed_dims, shape.hidden_dims, **settings, **shared)
            else:
                norm_cfg = norm_cfg if ffn_norm else None
                self.ffn = PluggedSwiGLU(embed_dims, shape.hidden_dims, norm_cfg=norm_cfg, **shared)
        self.shape = shape
        self.plugs = LayerPlugs()

    def init_weights(self):
        super().init_weights()
        if not self.init_cfg and self.ffn is not None:
            start_mlp(self.ffn)

    def forward(
        self, x_BND: Tensor, site: Site, carry: Carry, record: LayerRecord | None = None
    ) -> tuple[Tensor, Carry]:
        """Tokens ``(B, N, D)`` and carry, in and out."""
        plugs, attn, ffn = self.plugs.bind(), self.attn, self.ffn
        if attn is not None:
            branch, carry = attn(self.ln1(x_BND), site, plugs, carry, record)
            x_BND = x_BND + plugs.residual('msa', branch, site, record)
        if ffn is not None:
            x_BND = ffn(self.ln2(x_BND), x_BND, plugs, site, record)
        return x_BND, carry
