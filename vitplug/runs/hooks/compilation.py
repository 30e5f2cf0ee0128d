"""Makes mmengine's `compile=True` work with the optimizers of mmengine, and with detectors and segmentors."""

import torch
from mmengine.hooks import Hook
from mmengine.model import is_model_wrapper

from vitplug.registry import HOOKS


@HOOKS.register_module()
class CompileHook(Hook):
    """Chooses what `compile` in a config compiles; `tools/train.py` adds this hook to every config.

    mmengine compiles the whole training step. Of that, torch cannot trace what follows the loss: with `paramwise_cfg`
    the optimizer's groups are mmengine's own dicts, and hooks of the step look at the numbers in gradients. Model and
    losses are compiled all the same, and so are their gradients.

    Losses of mmdet and mmseg read values, which breaks their graph many times: there the backbone alone is compiled.
    """

    def before_run(self, runner) -> None:
        """Before mmengine compiles."""
        settings = runner.cfg.get('compile')
        if settings and runner.cfg.get('default_scope') in ('mmdet', 'mmseg'):
            model = runner.model.module if is_model_wrapper(runner.model) else runner.model
            model.backbone.compile(**({} if settings is True else settings))
            runner._maybe_compile = lambda target: None

    def before_train(self, runner) -> None:
        """Before the first step, which compiles."""
        if runner.cfg.get('compile'):
            wrapper = runner.optim_wrapper
            wrapper.update_params = torch.compiler.disable(wrapper.update_params)
