"""The MLP branch of a block, with its token sockets."""

import torch.nn.functional as F
from mmcv.cnn import build_norm_layer
from mmcv.cnn.bricks.drop import build_dropout
from mmcv.cnn.bricks.scale import LayerScale as MmcvLayerScale
from mmcv.cnn.bricks.transformer import FFN
from mmengine.model import BaseModule
from torch import Tensor, nn

from vitplug.attention import LayerRecord, Site
from vitplug.hosting import feed_forward
from vitplug.plugs import Bindable


def start_mlp(mlp: nn.Module) -> None:
    """mmpretrain's start of an MLP: Xavier for weights, a standard deviation of 1e-6 for biases."""
    for module in mlp.modules():
        if isinstance(module, nn.Linear):
            nn.init.xavier_uniform_(module.weight)
            nn.init.normal_(module.bias, std=1e-6)


class PluggedFFN(FFN):
    """mmcv's FFN with the sockets ``mlp_front``, ``mlp_mid`` and ``mlp_end``."""

    def __init__(self, *args, layer_scale_init_value: float = 0.0, **settings):
        super().__init__(*args, **settings)
        self.gamma2, self.is_scaled = layer_scale(self.embed_dims, layer_scale_init_value), layer_scale_init_value > 0

    def forward(
        self, x: Tensor, identity: Tensor, plugs: Bindable, site: Site, record: LayerRecord | None = None
    ) -> Tensor:
        """``identity + drop_path(layer_scale(mlp(x)))`` of tokens ``(B, N, D)``."""
        plugs = plugs.bind()
        *hidden, last, dropout = self.layers._modules.values()
        for module in plugs.mlp_front:
            x = module(x, site)
        for layer in hidden:
            x = layer(x)
        for module in plugs.mlp_mid:
            x = module(x, site)
        x = last(x)
        if dropout.training:  # by its own mode, which Monte Carlo dropout switches alone
            x = dropout(x)
        for module in plugs.mlp_end:
            x = module(x, site)
        if self.is_scaled:
            x = self.gamma2(x)
        if self._modules['dropout_layer'].training:
            x = self.dropout_layer(x)
        if not self.add_identity:
            return x
        if plugs.mlp_residual or record is not None:
            x = plugs.residual('mlp', x, site, record)
        return identity + x


class PluggedSwiGLU(BaseModule):
    """The SwiGLU feed-forward, ``w3(norm(silu(a) * b))`` with ``(a, b) = w12(x)``, with the same sockets.

    Its keys are those of mmpretrain's class. ``norm_cfg`` is the norm of the hidden tokens, as EVA-02-B and L have it.
    """

    def __init__(
        self,
        embed_dims: int,
        hidden_dims: int,
        layer_scale_init_value: float = 0.0,
        norm_cfg: dict | None = None,
        dropout_layer: dict | None = None,
    ):
        super().__init__()
        # The names of :class:`PluggedFFN` and of other people's tools.
        self.embed_dims, self.feedforward_channels = embed_dims, hidden_dims
        self.w12 = nn.Linear(embed_dims, 2 * hidden_dims)
        self.norm = layer_norm(norm_cfg, hidden_dims)
        self.w3 = nn.Linear(hidden_dims, embed_dims)
        self.gamma2 = layer_scale(embed_dims, layer_scale_init_value)
        self.dropout_layer = build_dropout(dropout_layer) if dropout_layer else nn.Identity()

    def forward(
        self, x: Tensor, identity: Tensor, plugs: Bindable, site: Site, record: LayerRecord | None = None
    ) -> Tensor:
        """As :meth:`PluggedFFN.forward`."""
        plugs = plugs.bind()
        x = self.gamma2(feed_forward(self._hidden, self.w3, x, plugs, site))
        x = self.dropout_layer(x) if self._modules['dropout_layer'].training else x
        return identity + plugs.residual('mlp', x, site, record)

    def _hidden(self, x: Tensor) -> Tensor:
        a, b = self.w12(x).chunk(2, dim=-1)
        return self.norm(F.silu(a) * b)


class LayerScale(MmcvLayerScale):
    """mmcv's, which can be given its start again."""

    def __init__(self, dims: int, scale: float):
        super().__init__(dims, scale=scale)
        self.start = scale

    def reset_parameters(self) -> None:
        """Gives the scale its start."""
        nn.init.constant_(self.weight, self.start)


def layer_scale(dims: int, init_value: float) -> nn.Module:
    """LayerScale, or nothing where the initial value is 0."""
    return LayerScale(dims, init_value) if init_value > 0 else nn.Identity()


def layer_norm(norm_cfg: dict | None, dims: int) -> nn.Module:
    """The norm layer of a config; None for none."""
    return nn.Identity() if norm_cfg is None else build_norm_layer(norm_cfg, dims)[1]
