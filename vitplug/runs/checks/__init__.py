"""Checks made before anything is built or written; each raises an error that says what to do.

They use files and settings only, so that a wrong path costs a second and leaves no trace.
"""

from collections.abc import Mapping

from mmengine.config import Config

from vitplug.config.reading import read_config
from vitplug.files.named import check_weights
from vitplug.tasks import check_scope

from .data import check_data
from .settings import check_optimizer, check_preprocessors, check_processes, rank_and_size, remarks_on_settings


def check_training(cfg) -> list[str]:
    """Checks a merged config before a training.

    Returns:
        Remarks for the log.

    Raises:
        ValueError, OSError or ImportError: as the single checks below say.
    """
    check_optimizer(cfg)
    check_preprocessors(cfg)
    remarks = _check_run(cfg, cfg.get('load_from'), '--resume' if cfg.get('resume') else 'load_from', ('train', 'val'))
    return [*remarks, *remarks_on_settings(cfg)]


def check_testing(cfg) -> list[str]:
    """The same as :func:`check_training`, before a test."""
    return _check_run(cfg, cfg.load_from, 'CHECKPOINT', ('test',))


def _check_run(cfg, weights: str | None, option: str, splits: tuple[str, ...]) -> list[str]:
    check_scope(cfg)
    check_processes(cfg)
    check_weights(weights, option)
    # The other processes wait for the first one, and end with it.
    return check_data(cfg, splits=splits) if rank_and_size(cfg.launcher)[0] == 0 else []


def model_config(path: str, checkpoint: str, option: str, settings: Mapping | None = None) -> Config:
    """The config of a trained model, after a look for its checkpoint.

    Args:
        path: The config file.
        checkpoint: The checkpoint, which is not read.
        option: The option that names it, for errors.
        settings: Settings by their dotted names, which win over the config.

    Raises:
        FileNotFoundError: If a file does not exist.
        ValueError: If the config is none of a model of a known task.
    """
    cfg = read_config(path, settings)
    check_scope(cfg)
    check_weights(checkpoint, option)
    return cfg
