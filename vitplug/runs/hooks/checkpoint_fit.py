"""Refuses a checkpoint of another model or training."""

from mmengine.hooks import Hook
from mmengine.runner import Runner

from vitplug.registry import HOOKS

from ..saving.checkpoint_checks import check_checkpoint


@HOOKS.register_module()
class CheckpointFitHook(Hook):
    """Refuses a checkpoint of another model or training before anything uses it; see :func:`check_checkpoint`.

    `tools/train.py` and `tools/test.py` add it to every config; in a config, it works with other tools as well.

    Args:
        allow_changes: Whether a checkpoint of other settings is loaded all the same, if its weights fit.

    Raises:
        CheckpointNotRead: as :func:`check_checkpoint` says.
    """

    priority = 'VERY_HIGH'  # before EMAHook loads it

    def __init__(self, allow_changes: bool = False):
        self.allow_changes = allow_changes

    def after_load_checkpoint(self, runner: Runner, checkpoint: dict) -> None:
        """Checks the checkpoint."""
        check_checkpoint(runner, checkpoint, self.allow_changes)
