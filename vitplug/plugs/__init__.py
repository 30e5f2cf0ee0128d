"""The plugs, one file per paper (torch only)."""

from .context_broadcast import ContextBroadcast
from .plug import LayerPlan, LayerPlugs, Plug, plug_layers, summarize

__all__ = ['ContextBroadcast', 'LayerPlan', 'LayerPlugs', 'Plug', 'plug_layers', 'summarize']
