"""Has mmengine's `compile` compile the backbone."""

from mmengine.hooks import Hook

from vitplug.checkpoints.through_mmengine import bare_model
from vitplug.registry import HOOKS


@HOOKS.register_module()
class CompileHook(Hook):
    """Compiles the backbone where a config has `compile`; `tools/train.py` adds this hook to every config.

    mmengine would compile the whole training step, which torch cannot trace: the optimizer's groups are mmengine's own
    dicts, and losses of mmdet and mmseg, like hooks of the step, read values.
    """

    def before_run(self, runner) -> None:
        """Compiles, and keeps mmengine from it."""
        if settings := runner.cfg.get('compile'):
            bare_model(runner.model).backbone.compile(**({} if settings is True else settings))
            runner._maybe_compile = lambda target: None
