"""Checks made before anything is built or written; each raises an error that says what to do.

They use files and settings only, so that a wrong path costs a second and leaves no trace.
"""

from collections.abc import Mapping
from contextlib import suppress

from mmengine.config import Config

from vitplug.config.reading import read_config
from vitplug.files.named import check_weights
from vitplug.tasks import check_scope

from .classes import class_complaints
from .metrics import check_metrics
from .samples import Unreadable, look_at
from .settings import check_optimizer, check_preprocessors, check_processes, rank_and_size, unexpected_batch
from .sources import Source, read_sources


def check_training(cfg) -> list[str]:
    """Checks a merged config before a training.

    Returns:
        Remarks for the log.

    Raises:
        ValueError, OSError or ImportError: as the single checks say.
    """
    check_optimizer(cfg)
    check_preprocessors(cfg)
    remarks = _check_run(cfg, cfg.get('load_from'), '--resume' if cfg.get('resume') else 'load_from', ('train', 'val'))
    return [*remarks, *unexpected_batch(cfg)]


def check_testing(cfg) -> list[str]:
    """The same as :func:`check_training`, before a test."""
    return _check_run(cfg, cfg.load_from, 'CHECKPOINT', ('test',))


def _check_run(cfg, weights: str | None, option: str, splits: tuple[str, ...]) -> list[str]:
    check_scope(cfg)
    check_processes(cfg)
    check_weights(weights, option)
    # The other processes wait for the first one, and end with it.
    return check_data(cfg, splits) if rank_and_size(cfg.launcher)[0] == 0 else []


def check_data(cfg, splits: tuple[str, ...]) -> list[str]:
    """Checks the files behind the loaders and evaluators of some splits, and the settings that count their classes.

    Returns:
        Remarks: what of the files is left out, and why.

    Raises:
        FileNotFoundError: If a folder or file is missing or empty.
        ValueError: If annotations are broken, do not match the images or leave nothing to learn, if a metric cannot
            count with them, or if a setting counts other classes; names every such setting and what to set it to.
    """
    sources = [source for split in splits for source in check_split(cfg, split)]
    if complaints := [f'{setting} {reason}' for setting, reason in class_complaints(cfg, sources)]:
        raise ValueError(f'other classes than those of the data: {"; ".join(complaints)}')
    for source in sources:
        for info in source.samples:
            with suppress(Unreadable):  # such an image is replaced
                if faults := look_at(source, info)[0]:
                    raise ValueError(faults[0])
    return [f'{source.path}: {source.account}' for source in sources if source.account and source.account.lost]


def check_split(cfg, split: str) -> list[Source]:
    """The data sets of a split, compared with their files and with the evaluators; raises as :func:`check_data`."""
    sources = read_sources(cfg, split)
    check_metrics(cfg, split, sources)
    return sources


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
