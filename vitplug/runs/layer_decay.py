"""Layer-wise decay of the learning rate, for any task."""

from collections.abc import Callable
from functools import partial

from mmpretrain.engine import LearningRateDecayOptimWrapperConstructor
from torch import nn

from vitplug.registry import OPTIM_WRAPPER_CONSTRUCTORS


@OPTIM_WRAPPER_CONSTRUCTORS.register_module()
class LayerDecayOptimWrapperConstructor(LearningRateDecayOptimWrapperConstructor):
    """mmpretrain's constructor, for detectors and segmentors too.

    mmpretrain's models say themselves how deep a parameter lies; those of mmdet and mmseg do not, so the
    backbone is asked. A parameter outside the backbone has the full learning rate::

        lr(parameter) = lr * layer_decay_rate ** (deepest - depth)

    ``paramwise_cfg`` is as there: ``layer_decay_rate``, ``norm_decay_mult``, ``flat_decay_mult``, ``custom_keys``
    (with ``decay_mult`` only). A ValueError names a ``lr_mult``, which mmpretrain's would not heed.
    """

    def add_params(
        self, params: list[dict], module: nn.Module, prefix: str = '', get_layer_depth: Callable | None = None, **kwargs
    ) -> None:
        """Adds the groups of a module's parameters to ``params``."""
        get_layer_depth = get_layer_depth or partial(module.backbone.get_layer_depth, prefix='backbone.')
        rules = self.paramwise_cfg.get('custom_keys') or {}
        if not prefix and (wrong := [key for key, rule in rules.items() if 'lr_mult' in rule]):
            raise ValueError(f'paramwise_cfg.custom_keys: lr_mult of {wrong} goes with no layer_decay_rate: drop it')
        super().add_params(params, module, prefix=prefix, get_layer_depth=get_layer_depth, **kwargs)
        if not prefix:  # what modules share, as the heads of RTMDet do, counts once
            first = {id(group['params'][0]): group for group in reversed(params)}
            params[:] = [group for group in params if first[id(group['params'][0])] is group]
