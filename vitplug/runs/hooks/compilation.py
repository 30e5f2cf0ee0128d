"""Makes mmengine's `compile=True` work with the optimizers of mmengine."""

import torch
from mmengine.hooks import Hook

from vitplug.registry import HOOKS


@HOOKS.register_module()
class CompileHook(Hook):
    """Keeps backward and the optimizer's step out of what `compile` in a config compiles.

    mmengine compiles the whole training step. Of that, torch cannot trace what follows the loss: with `paramwise_cfg`
    the optimizer's groups are mmengine's own dicts, and hooks of the step look at the numbers in gradients. Model and
    losses are compiled all the same, and so are their gradients. `tools/train.py` adds this hook to every config.
    """

    def before_train(self, runner) -> None:
        """Before the first step, which compiles."""
        if runner.cfg.get('compile'):
            wrapper = runner.optim_wrapper
            wrapper.update_params = torch.compiler.disable(wrapper.update_params)
