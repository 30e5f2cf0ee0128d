"""The plugs, a file or a folder per paper (torch only)."""

from .broad_attention import BroadAttention
from .context_broadcast import ContextBroadcast, SqueezeExcite, UniformHead
from .gaussian_bias import GaussianAttentionBias
from .plug import BlockShape, LayerPlan, Plug
from .plug_set import LayerPlugs, NetworkPlugs, PlugSet
from .position_bias import RelPosBias, RelPosMlp
from .refiner import Refiner
from .residual_attention import ResidualAttention
from .sockets import BLOCK_SOCKETS, NETWORK_SOCKETS

#: The types a config may name.
PLUG_TYPES = (
    BroadAttention,
    ContextBroadcast,
    GaussianAttentionBias,
    Refiner,
    RelPosBias,
    RelPosMlp,
    ResidualAttention,
    SqueezeExcite,
    UniformHead,
)

__all__ = [
    'BLOCK_SOCKETS',
    'NETWORK_SOCKETS',
    'PLUG_TYPES',
    'BlockShape',
    'LayerPlan',
    'LayerPlugs',
    'NetworkPlugs',
    'Plug',
    'PlugSet',
    *(plug.__name__ for plug in PLUG_TYPES),
]
