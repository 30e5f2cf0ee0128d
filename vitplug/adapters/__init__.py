"""Plugs in models that vitplug does not own: of timm, of Hugging Face, of your own (torch only)."""

from . import huggingface, timm  # their maps of names
from .host import AdaptedModel
from .maps import AttentionMap, BlockMap, Branch, ListMap, MlpMap, ModelMap, StageMap, known_models, register
from .plugging import host_of, intermediates, load_plugs, plug_in, unplug

__all__ = [
    'AdaptedModel',
    'AttentionMap',
    'BlockMap',
    'Branch',
    'ListMap',
    'MlpMap',
    'ModelMap',
    'StageMap',
    'host_of',
    'huggingface',
    'intermediates',
    'known_models',
    'load_plugs',
    'plug_in',
    'register',
    'timm',
    'unplug',
]
