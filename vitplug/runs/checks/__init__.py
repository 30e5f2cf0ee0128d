"""Checks made before anything is built or written; each raises an error that says what to do.

They use files and settings only, so that a wrong path costs a second and leaves no trace.
"""

from vitplug.files.named import check_weights, check_writable
from vitplug.tasks import check_scope

from ..metrics import check_save_best
from .data import check_data
from .environment import check_amp, check_launcher, is_first_process
from .settings import check_optimizer, check_preprocessors, check_validations, long_schedules, unexpected_batch
from .strategy import check_strategy, unused_strategy


def check_training(cfg) -> list[str]:
    """Checks a merged config before a training.

    Returns:
        Remarks for the log.

    Raises:
        ValueError, OSError or ImportError: as the single checks below say.
    """
    _check_run(cfg)
    check_optimizer(cfg)
    check_preprocessors(cfg)
    check_validations(cfg)
    check_save_best(cfg)
    check_amp(cfg)
    check_weights(cfg.get('load_from'), option='--resume' if cfg.get('resume') else 'load_from')
    check_writable(cfg.work_dir)
    # The others wait for the first process, and end with it.
    remarks = check_data(cfg, splits=('train', 'val')) if is_first_process(cfg.launcher) else []
    return [*remarks, *long_schedules(cfg), *unexpected_batch(cfg), *unused_strategy(cfg)]


def _check_run(cfg) -> None:
    check_scope(cfg)
    check_launcher(cfg.launcher)
    check_strategy(cfg)


def check_testing(cfg) -> list[str]:
    """The same as :func:`check_training`, before a test."""
    _check_run(cfg)
    check_weights(cfg.load_from, option='CHECKPOINT')
    remarks = check_data(cfg, splits=('test',)) if is_first_process(cfg.launcher) else []
    return [*remarks, *unused_strategy(cfg)]
