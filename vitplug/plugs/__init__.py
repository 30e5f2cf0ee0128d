"""The plugs, one file per paper (torch only)."""

from .context_broadcast import ContextBroadcast
from .plug import BlockShape, LayerPlan, Plug
from .plug_set import LayerPlugs, NetworkPlugs, PlugSet

__all__ = ['BlockShape', 'ContextBroadcast', 'LayerPlan', 'LayerPlugs', 'NetworkPlugs', 'Plug', 'PlugSet']
