"""Registers the plugs, which need no OpenMMLab package."""

from .plugs import PLUG_TYPES
from .registry import PLUGS

for plug in PLUG_TYPES:
    PLUGS.register_module(module=plug)
