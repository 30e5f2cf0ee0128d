"""Registers the plugs. Apart from them, because they need no OpenMMLab package and this does."""

from vitplug.registry import PLUGS

from .context_broadcast import ContextBroadcast

for plug in (ContextBroadcast,):
    PLUGS.register_module(module=plug)
