"""Registers the plugs. Apart from them, because they need no OpenMMLab package and this does."""

from vitplug.registry import PLUGS

from . import PLUG_TYPES

for plug in PLUG_TYPES:
    PLUGS.register_module(module=plug)
