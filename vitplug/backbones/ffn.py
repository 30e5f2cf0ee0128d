"""The MLP branch of a block, with its token sockets."""

import torch.nn.functional as F
from mmcv.cnn import build_norm_layer
from mmcv.cnn.bricks.scale import LayerScale
from mmcv.cnn.bricks.transformer import FFN
from mmengine.model import BaseModule
from torch import Tensor, nn

from vitplug.plugs import LayerPlugs


class PluggedFFN(FFN):
    """mmcv's FFN with the sockets ``mlp_front``, ``mlp_mid`` and ``mlp_end``."""

    @property
    def hidden_dims(self) -> int:
        """Width of the tokens at ``mlp_mid``."""
        return self.feedforward_channels

    def forward(self, x: Tensor, identity: Tensor, plugs: LayerPlugs) -> Tensor:
        """``identity + drop_path(layer_scale(mlp(x)))`` of tokens ``(B, N, D)``."""
        *hidden, last, dropout = self.layers
        x = plugs.tokens('mlp_front', x)
        for layer in hidden:
            x = layer(x)
        x = plugs.tokens('mlp_mid', x)
        x = plugs.tokens('mlp_end', dropout(last(x)))
        x = self.dropout_layer(self.gamma2(x))
        return identity + x if self.add_identity else x


class PluggedSwiGLU(BaseModule):
    """The SwiGLU feed-forward of mmpretrain's ``ffn_type='swiglu_fused'``, with the same sockets and keys.

    ``w3(silu(a) * b)`` with ``(a, b) = w12(x)``; the hidden width is two thirds of the given one,
    rounded up to a multiple of 8.
    """

    def __init__(self, embed_dims: int, feedforward_channels: int, layer_scale_init_value: float = 0.0):
        super().__init__()
        #: Width of the tokens at ``mlp_mid``.
        self.hidden_dims = (int(feedforward_channels * 2 / 3) + 7) // 8 * 8
        self.w12 = nn.Linear(embed_dims, 2 * self.hidden_dims)
        self.norm = nn.Identity()
        self.w3 = nn.Linear(self.hidden_dims, embed_dims)
        self.gamma2 = layer_scale(embed_dims, layer_scale_init_value)

    def forward(self, x: Tensor, identity: Tensor, plugs: LayerPlugs) -> Tensor:
        """As :meth:`PluggedFFN.forward`."""
        a, b = self.w12(plugs.tokens('mlp_front', x)).chunk(2, dim=-1)
        x = plugs.tokens('mlp_mid', self.norm(F.silu(a) * b))
        return identity + self.gamma2(plugs.tokens('mlp_end', self.w3(x)))


def layer_scale(dims: int, init_value: float) -> nn.Module:
    """LayerScale, or nothing where the initial value is 0."""
    return LayerScale(dims, scale=init_value) if init_value > 0 else nn.Identity()


def layer_norm(norm_cfg: dict, dims: int) -> nn.Module:
    """The norm layer of a config."""
    return build_norm_layer(norm_cfg, dims)[1]
