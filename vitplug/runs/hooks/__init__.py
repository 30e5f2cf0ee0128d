"""What vitplug adds to a training of mmengine, one file each; `configs/_base_/hooks.py` switches them on."""

from ..checkpoint_fit import CheckpointFitHook
from .bad_samples import BadSampleHook
from .checkpoint import CheckpointHook
from .compilation import CompileHook
from .interruption import InterruptionHook
from .non_finite import NonFiniteLossHook
from .paired_weights import PairedWeightsHook
from .plug_values import PlugValuesHook
from .randomness import RandomnessHook
from .validation import DryValidationHook, ValidationLossHook

__all__ = [
    'BadSampleHook',
    'CheckpointFitHook',
    'CheckpointHook',
    'CompileHook',
    'DryValidationHook',
    'InterruptionHook',
    'NonFiniteLossHook',
    'PairedWeightsHook',
    'PlugValuesHook',
    'RandomnessHook',
    'ValidationLossHook',
]
