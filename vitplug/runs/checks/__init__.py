"""Checks made before anything is built or written; each raises an error that says what to do.

They use files and settings only, so that a wrong path costs a second and leaves no trace.
"""

import math
from collections.abc import Iterable, Mapping
from functools import partial
from multiprocessing.pool import ThreadPool

from mmengine.config import Config
from tqdm import tqdm

from vitplug.config.parts import as_list
from vitplug.config.reading import read_config
from vitplug.files.named import check_weights, is_remote
from vitplug.tasks.libraries import check_scope

from .accounts import check_scored
from .classes import class_complaints
from .samples import Unreadable, look_at
from .settings import check_optimizer, check_preprocessors, check_processes, check_strategy, rank_of
from .sources import Source, read_sources

# Samples of a data set that a training looks at in its first lines, evenly spaced; `vitplug check` looks at all.
SAMPLED = 32
SPLITS = ('train', 'val', 'test')


def check_run(cfg, splits: Iterable[str] = ('train', 'val')) -> list[str]:
    """Checks a merged config before a training, or before a test of ``('test',)``; gives remarks for the log.

    Raises:
        ValueError or OSError: As the single checks do.
    """
    check_scope(cfg)
    check_optimizer(cfg)
    check_preprocessors(cfg)
    check_processes(cfg)
    check_strategy(cfg)
    option = 'CHECKPOINT' if 'test' in splits else '--resume' if cfg.get('resume') else 'load_from'
    check_weights(cfg.get('load_from'), option)
    # The other processes wait for the first one, and end with it.
    return check_data(cfg, splits) if rank_of(cfg.launcher) == 0 else []


def own_splits(cfg) -> list[str]:
    """The splits of a config, without a test on the validation's data."""
    names = SPLITS[:2] if cfg.get('test_dataloader') == cfg.get('val_dataloader') else SPLITS
    return [name for name in names if cfg.get(f'{name}_dataloader')]


def check_data(cfg, splits: Iterable[str]) -> list[str]:
    """Checks the data of some splits by few samples; gives remarks on what of the files is left out, and why.

    Raises:
        FileNotFoundError: If a folder or file is missing.
        ValueError: If annotations are broken, do not match the images or leave nothing to learn, if a metric cannot
            count with them, or if a setting counts other classes; names every such setting and what to set it to.
    """
    sources, errors = examine(cfg, splits)
    for error in errors:
        if not isinstance(error, Unreadable):  # such an image is replaced
            raise error
    return [f'{source.path}: {source.account}' for source in sources if source.account and source.account.lost]


def examine(cfg, splits: Iterable[str], every: bool = False) -> tuple[list[Source], list[Exception]]:
    """Compares data sets with their files, with each other, with the evaluators, and with what counts their classes.

    Args:
        cfg: The config.
        splits: Names of loaders and evaluators, such as ``'train'``.
        every: Whether to look at all samples, and in all kinds of files.

    Returns:
        The data sets that could be read, and what is wrong.
    """
    sources, errors = [], []
    for split in splits:
        try:
            found = read_sources(cfg, split, every)
            for metric in as_list(cfg.get(f'{split}_evaluator')):
                file = metric.get('ann_file') if str(metric.get('type')).endswith('CocoMetric') else None
                if file and not is_remote(file):
                    check_scored(file, f'{split}_evaluator.ann_file', found)
            sources += found
        except (ValueError, OSError) as error:
            errors.append(error)
    if complaints := class_complaints(cfg, sources):
        errors.append(ValueError(f'settings and data that do not fit: {"; ".join(complaints)}'))
    for source in sources:
        samples = source.samples[:: 1 if every else max(1, math.ceil(len(source.samples) / SAMPLED))]
        # Threads, for decoding leaves Python's lock alone, and forked processes would inherit torch's locks.
        with ThreadPool() as pool:
            looked = pool.imap(partial(look_at, source), samples, chunksize=16)
            bar = tqdm(looked, source.path, len(samples), mininterval=1.0, disable=None if every else True)
            errors += filter(None, bar)
    return sources, errors


def model_config(path: str, checkpoint: str, option: str, settings: Mapping | None = None) -> Config:
    """The config of a trained model, after a look for the checkpoint that an option names; ValueError or OSError."""
    cfg = read_config(path, settings)
    check_scope(cfg)
    check_weights(checkpoint, option)
    return cfg
