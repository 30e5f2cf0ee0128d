"""Hooks that let a long training survive, and one that records what plugs learn.

`configs/_base_/default_runtime_*.py` switch them on.
"""

from .bad_samples import BadSampleHook
from .checkpoint import CheckpointHook
from .compilation import CompileHook
from .hook_states import HookStatesHook
from .interruption import InterruptionHook
from .non_finite import NonFiniteLossHook
from .paired_weights import PairedWeightsHook
from .plug_values import PlugValuesHook
from .randomness import RandomnessHook
from .validation_loss import ValidationLossHook

__all__ = [
    'BadSampleHook',
    'CheckpointHook',
    'CompileHook',
    'HookStatesHook',
    'InterruptionHook',
    'NonFiniteLossHook',
    'PairedWeightsHook',
    'PlugValuesHook',
    'RandomnessHook',
    'ValidationLossHook',
]
