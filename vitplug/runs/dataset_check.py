"""Looks at every file of a config's data before a training does: behind `tools/misc/check_dataset.py`."""

import argparse
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import partial
from multiprocessing.pool import ThreadPool

from mmengine.config import Config
from mmengine.registry import init_default_scope
from PIL import Image, UnidentifiedImageError
from tqdm import tqdm

from vitplug.config.options import OptionsAction, config_parser
from vitplug.config.reading import read_config
from vitplug.errors import printable
from vitplug.tasks import check_scope

from .checks import check_split
from .checks.classes import class_complaints, listed
from .checks.samples import look_at
from .checks.sources import Source

ERROR, NOTE, SEEN = 'error  ', 'note   ', ''


def inspect(cfg: Config, splits: Sequence[str], num_threads: int) -> Iterator[tuple[str, str]]:
    """Lines on a config's data, as a training checks them and on every sample, with what they are: errors, notes."""
    sources = []
    for split in splits:
        try:
            found = check_split(cfg, split)
        except (ValueError, OSError) as error:
            yield ERROR, f'{split}_dataloader: {error}'
            continue
        for source in found:
            yield from inspect_source(source, split, num_threads)
            if source.account and source.account.lost:
                yield NOTE, f'{source.path}: {source.account}'
        sources += found
    yield from ((ERROR, f'{setting} {reason}') for setting, reason in class_complaints(cfg, sources))


def inspect_source(source: Source, split: str, num_threads: int) -> Iterator[tuple[str, str]]:
    """Lines on all samples of a data set and on what is in it, with a progress bar on stderr."""
    counts, dataset, classes = Counter(), source.dataset, source.classes
    try:
        dataset.full_init()
    except Exception as error:  # data sets of any kind
        yield ERROR, f'{source.path}: the data set cannot be built: {_one_line(error)}'
        return
    # Threads, for decoding leaves Python's lock alone, and forked processes would inherit torch's locks.
    with ThreadPool(num_threads) as pool:
        samples = pool.imap(partial(inspect_sample, source), range(len(dataset)), chunksize=16)
        for faults, labels in tqdm(samples, desc=split, total=len(dataset), mininterval=1.0, disable=None):
            yield from ((ERROR, fault) for fault in faults)
            counts.update(labels)
    of_objects = f', {counts.total():,} objects' if len(dataset) and 'instances' in dataset.get_data_info(0) else ''
    of_classes = f', {len(counts)} of {len(classes)} classes' if counts and classes else ''
    yield SEEN, f'{split}: {len(dataset):,} images{of_objects}{of_classes}'
    if missing := [name for label, name in enumerate(classes) if counts and label not in counts]:
        yield SEEN, f'nothing in {split} of the classes {listed(missing)}'


def inspect_sample(source: Source, index: int) -> tuple[list[str], list[int]]:
    """Looks at the files of a sample and, if they are sound, makes it as training does; its faults and its labels."""
    info, labels = source.dataset.get_data_info(index), []
    path = info.get('img_path', f'sample {index}')
    try:
        faults, labels = look_at(source, info)
        if not faults and 'img_path' in info:
            # More strictly than training does, which takes a truncated JPEG as it is.
            with suppress(UnidentifiedImageError), Image.open(path) as image:
                image.load()
        if not faults:
            source.dataset.prepare_data(index)
    except Exception as error:  # decoders and transforms of any kind
        faults = [f'{path}: cannot be loaded: {_one_line(error)}']
    return faults, labels


def _one_line(error: Exception) -> str:
    return f'{type(error).__name__}: {" ".join(str(error).split())}'


def main(argv: Sequence[str] | None = None) -> int:
    """Checks the data of a config.

    Returns:
        Exit status: 0 without errors, 1 with errors.
    """
    args = _parser().parse_args(argv)
    cfg = read_config(args.config, args.cfg_options)
    check_scope(cfg)
    init_default_scope(cfg.default_scope)
    found = list(inspect(cfg, args.splits, args.workers))
    lines = {kind: [printable(f'{kind}{line}') for one, line in found if one == kind] for kind in (SEEN, ERROR, NOTE)}
    print('\n'.join((*lines[SEEN], '', *lines[ERROR], *lines[NOTE])))
    print(f'{len(lines[ERROR])} errors, {len(lines[NOTE])} notes')
    return int(bool(lines[ERROR]))


def _parser() -> argparse.ArgumentParser:
    parser = config_parser('check', 'Look at every image and annotation of a config before training.')
    parser.add_argument(
        '--splits', nargs='+', choices=('train', 'val', 'test'), default=('train', 'val'), help='default: train val'
    )
    parser.add_argument('--workers', type=int, default=1, metavar='N', help='threads (default 1)')
    parser.add_argument(
        '--cfg-options', nargs='+', action=OptionsAction, metavar='KEY=VALUE', help='settings that win over the config'
    )
    return parser
