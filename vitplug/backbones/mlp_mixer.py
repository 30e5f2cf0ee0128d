"""MLP-Mixer, a host without attention.

*MLP-Mixer: An all-MLP Architecture for Vision*, with the arguments, state-dict keys and outputs of mmpretrain's class
of the same name.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial

from mmcv.cnn.bricks.transformer import FFN
from mmengine.model import BaseModule
from torch import Tensor, nn

from vitplug.attention import Carry, LayerRecord, Site
from vitplug.plugs import BlockShape, LayerPlugs
from vitplug.plugs.sockets import BRANCHES, STREAM_SOCKETS
from vitplug.registry import MODELS

from .base import WITHOUT_PREFIX
from .columnar import ColumnarBackbone
from .ffn import PluggedFFN, layer_norm, start_mlp
from .patch_embed import build_patch_embed, size_of
from .settings import named_archs


class MixerBlock(BaseModule):
    """One pre-norm block: an MLP over the tokens of each channel, then one over the channels of each token::

        x = x + token_mix(ln1(x)^T)^T
        x = x + channel_mix(ln2(x))         with the sockets of an MLP

    It takes the arguments of mmpretrain's block, so that its ``layer_cfgs`` work, and ``with_cp`` and ``reshape``, the
    plugs' changes of the block's shape.
    """

    #: The sockets that the block offers. The token-mixing MLP has none: what is a token there is a channel.
    sockets = (*BRANCHES['MLP'], *STREAM_SOCKETS)

    def __init__(
        self,
        num_tokens: int,
        embed_dims: int,
        tokens_mlp_dims: int,
        channels_mlp_dims: int,
        drop_rate: float = 0.0,
        drop_path_rate: float = 0.0,
        num_fcs: int = 2,
        act_cfg: dict = dict(type='GELU'),
        norm_cfg: dict = dict(type='LN'),
        init_cfg: dict | list[dict] | None = None,
        *,
        with_cp: bool = False,
        reshape: Callable[[BlockShape], BlockShape] = lambda shape: shape,
    ):
        super().__init__(init_cfg)
        self.with_cp = with_cp
        self.shape = reshape(
            BlockShape(head_dims=0, map_heads=0, value_heads=0, out_heads=0, hidden_dims=channels_mlp_dims)
        )
        settings = dict(num_fcs=num_fcs, ffn_drop=drop_rate, act_cfg=act_cfg)
        settings |= dict(dropout_layer=dict(type='DropPath', drop_prob=drop_path_rate))
        self.ln1 = layer_norm(norm_cfg, embed_dims)
        self.token_mix = FFN(num_tokens, tokens_mlp_dims, add_identity=False, **settings)
        self.ln2 = layer_norm(norm_cfg, embed_dims)
        self.channel_mix = PluggedFFN(embed_dims, self.shape.hidden_dims, **settings)
        self.plugs = LayerPlugs()

    def init_weights(self):
        super().init_weights()
        for mlp in (self.token_mix, self.channel_mix):
            start_mlp(mlp)

    def forward(
        self, x_BND: Tensor, site: Site, carry: Carry, record: LayerRecord | None = None
    ) -> tuple[Tensor, Carry]:
        """Tokens ``(B, N, D)`` and carry, in and out."""
        x_BND = x_BND + self.token_mix(self.ln1(x_BND).transpose(1, 2)).transpose(1, 2)
        return self.channel_mix(self.ln2(x_BND), x_BND, self.plugs, site, record), carry


_archs = partial(named_archs, ('embed_dims', 'num_layers', 'tokens_mlp_dims', 'channels_mlp_dims'))


@MODELS.register_module()
class MlpMixer(ColumnarBackbone):
    """MLP-Mixer with plugs that act on tokens.

    It mixes a fixed number of tokens, so it takes images of one size only. The blocks offer the sockets of the channel
    MLP; plugs that need attention are refused.

    Takes mmpretrain's arguments and those of :class:`~vitplug.backbones.base.PluggedBackbone`. Stochastic depth is the
    same in all blocks. ``out_type`` is ``'tokens'`` ``(B, D, N)``, as in mmpretrain, or ``'featmap'`` ``(B, D, h, w)``.
    """

    arch_zoo = {
        **_archs('s small', 512, 8, 256, 2048),
        **_archs('b base', 768, 12, 384, 3072),
        **_archs('l large', 1024, 24, 512, 4096),
    }
    OUT_TYPES = ('tokens', 'featmap')
    NORMS = ('ln1',)
    #: The token-mixing MLPs know where each token is.
    pos_embed = None
    network_sockets = WITHOUT_PREFIX

    def __init__(
        self,
        arch: str | Mapping = 'base',
        img_size: int | Sequence[int] = 224,
        patch_size: int | Sequence[int] = 16,
        out_indices: int | Sequence[int] = -1,
        drop_rate: float = 0.0,
        drop_path_rate: float = 0.0,
        norm_cfg: dict = dict(type='LN'),
        act_cfg: dict = dict(type='GELU'),
        patch_cfg: Mapping = dict(),
        layer_cfgs: Mapping | Sequence[Mapping] = dict(),
        init_cfg: dict | list[dict] | None = None,
        *,
        in_channels: int = 3,
        out_type: str = 'tokens',
        frozen_stages: int = -1,
        plugs: str | Sequence = (),
        with_cp: bool = False,
        frozen: str | None = None,
    ):
        super().__init__(init_cfg, frozen=frozen)
        self.choose_size(arch)
        self.choose_outputs(self.num_layers, out_indices, frozen_stages, out_type)

        patch_settings = dict(in_channels=in_channels, embed_dims=self.embed_dims, kernel_size=patch_size)
        self.patch_embed = build_patch_embed(img_size, patch_settings | dict(stride=patch_size) | patch_cfg)
        self.patch_resolution = self.patch_embed.init_out_size
        self.fixed_size = size_of(img_size)
        self.drop_after_pos = nn.Identity()

        plug_set, self.layers = self.build_layers(
            MixerBlock,
            plugs,
            0.0,
            layer_cfgs,
            drop_path_rate=drop_path_rate,
            **{key: self.arch_settings[key] for key in ('embed_dims', 'tokens_mlp_dims', 'channels_mlp_dims')},
            num_tokens=self.patch_resolution[0] * self.patch_resolution[1],
            drop_rate=drop_rate,
            act_cfg=act_cfg,
            norm_cfg=norm_cfg,
            with_cp=with_cp,
        )
        self.ln1 = layer_norm(norm_cfg, self.embed_dims)
        self.attach(plug_set)

    def embed(self, images: Tensor) -> tuple[Tensor, tuple[int, int]]:
        """Images to tokens ``(B, N, D)`` and their grid ``(h, w)``.

        Raises:
            ValueError: If the images have another size.
        """
        if images.shape[-2:] != self.fixed_size:
            raise ValueError(
                f'images of {tuple(images.shape[-2:])}: the number of tokens is fixed; resize or crop the images to '
                f'{self.fixed_size}, or build the backbone for their size by img_size'
            )
        return super().embed(images)

    def format_output(self, section: int, x_BND: Tensor, hw: tuple[int, int]) -> Tensor:
        if section == self.num_layers - 1:
            x_BND = self.plugs.normed(self.ln1(x_BND))
        x_BDN = x_BND.transpose(1, 2).contiguous()  # necks view it
        return x_BDN.unflatten(2, hw) if self.out_type == 'featmap' else x_BDN
