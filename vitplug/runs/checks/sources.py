"""From the settings of a data set to what its files hold: read once, by the config's own class and loader.

Shared by `vitplug check`, `vitplug new` and the first lines of a training.
"""

import math
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from mmengine.dataset import BaseDataset
from mmengine.registry import DATASETS

from vitplug.config.parts import loader_leaves, registered
from vitplug.files.named import is_remote

from .accounts import Account, account_coco, account_folders, pair_maps, read_coco
from .classes import match_categories, match_folders

# Samples that a training looks at in its first lines, evenly spaced; `vitplug check` looks at all.
SAMPLED = 32


@dataclass
class Source:
    """A data set, and what its files hold.

    Attributes:
        path: Its place in the config, such as ``'train_dataloader.dataset'``.
        dataset: Built by its class, which may not have read its files yet.
        classes: Names of its classes by label; empty if unknown.
        labels: Their names in the files; empty where files have none.
        account: What is kept of the files; None for kinds of files that are not known.
        coco: Content of its COCO file; None for others.
        samples: Information on some samples, as the data set gives it.
    """

    path: str
    dataset: BaseDataset
    classes: tuple[str, ...]
    labels: tuple[str, ...] = ()
    account: Account | None = None
    coco: dict | None = None
    samples: list[dict] = field(default_factory=list)


def read_sources(cfg, split: str) -> list[Source]:
    """Reads the data sets behind the loader of a split; those that do not derive from mmengine's class are left out.

    The config's `data_help` has the `root` of the data it is about, and the `command` that makes them. It ends messages
    about files below the root, so that a config that inherits it for data of its own is not told to make others.

    Raises:
        FileNotFoundError: If a folder or file is missing.
        ValueError: If annotations are broken or do not match the images or the classes, or nothing is left to learn.
    """
    sources, made = [], cfg.get('data_help') or {}
    for path, settings in loader_leaves(cfg, split):
        kind = registered(DATASETS, settings.get('type'), cfg.default_scope)
        if kind is not None and not issubclass(kind, BaseDataset):
            continue
        try:
            sources.append(_read_source(path, {**settings, 'lazy_init': True, '_scope_': cfg.default_scope}))
        except FileNotFoundError as error:
            if 'root' in made and Path(settings.get('data_root') or '').is_relative_to(made['root']):
                raise FileNotFoundError(f'{error}; make the data with: {made["command"]}') from error
            raise
    return sources


def _read_source(path: str, settings: Mapping) -> Source:
    try:
        dataset = DATASETS.build(settings)
    except AssertionError as error:  # of a class that looks for its files
        raise FileNotFoundError(f'{path}: {settings["type"]} does not find its files {error}') from error
    source = Source(path, dataset, _class_names(dataset, path))
    fetches = getattr(dataset, 'download', False) or getattr(dataset, 'backend_args', None)
    if fetches or is_remote(dataset.data_root or ''):
        return source
    for folder in dataset.data_prefix.values():
        if folder and not Path(folder).is_dir():
            raise FileNotFoundError(f'no such data folder: {Path(folder).absolute()}')
    if dataset.ann_file and not Path(dataset.ann_file).exists():
        raise FileNotFoundError(f'no such annotation file: {Path(dataset.ann_file).absolute()}')
    for is_of_kind, read in KINDS:
        if is_of_kind(dataset):
            read(source)
            break
    account = source.account
    for what in account.kept if account else ():
        if not account.kept[what]:
            raise ValueError(f'{path}: no {what} are left. {account}')
    return source


def _class_names(dataset: BaseDataset, path: str) -> tuple[str, ...]:
    """Names of the classes; none for panoptic data, where some parts of a model count things, some all classes."""
    names = dataset.metainfo.get('classes') or ()
    if isinstance(names, str):
        raise ValueError(f'{path}.metainfo.classes = {names!r}: expected a list; a comma makes it one: ({names!r},)')
    return () if dataset.metainfo.get('stuff_classes') else tuple(map(str, names))


def sampled(items: Sequence) -> Sequence:
    """The items that a training looks at, evenly spaced."""
    return items[:: max(1, math.ceil(len(items) / SAMPLED))]


# --- kinds of data sets ---


def _finds_categories(dataset: BaseDataset) -> bool:
    """True if labels are found by the names of a COCO file's categories; not for LVIS and panoptic data."""
    return type(dataset).load_data_list.__qualname__ == 'CocoDataset.load_data_list'


def _read_categories(source: Source) -> None:
    dataset = source.dataset
    source.coco = read_coco(Path(dataset.ann_file))
    source.labels = match_categories(source.classes, source.coco, dataset.ann_file, source.path)
    source.account = account_coco(source.coco, dataset)
    folder = dataset.data_prefix.get('img') or dataset.data_root or ''
    source.samples = [
        dict(img_path=os.path.join(folder, image['file_name']), width=image['width'], height=image['height'])
        for image in sampled(source.coco['images'])
    ]


def _read_list(source: Source) -> None:
    """Lines with an image, and perhaps a label; other annotations are left to the data set."""
    dataset = source.dataset
    has_labels = hasattr(dataset, 'with_label')  # mmpretrain's lists may end in anything
    if str(dataset.ann_file).endswith('.txt') or has_labels:
        try:
            dataset.full_init()
        except Exception as error:  # data sets of any kind
            raise ValueError(f'{source.path}: {type(dataset).__name__} cannot read its files: {error}') from error
        if has_labels and dataset.with_label and source.classes:
            _check_labels(Path(dataset.ann_file), len(source.classes))
        source.samples = [dataset.get_data_info(index) for index in sampled(range(len(dataset)))]


def _check_labels(path: Path, classes: int) -> None:
    for number, line in enumerate(path.read_text(encoding='utf-8').splitlines(), 1):
        if line.strip() and not 0 <= int(line.split()[-1]) < classes:
            raise ValueError(f'{path}, line {number}: label {line.split()[-1]} is none of the {classes} classes')


def _read_folders(source: Source) -> None:
    """The folders that mmpretrain counts as classes, in alphabetical order."""
    folder = Path(source.dataset.img_prefix)
    folders = tuple(sorted(entry.name for entry in os.scandir(folder) if entry.is_dir()))
    if folders:  # else without classes
        source.classes = match_folders(source.classes, folders, folder, source.path)
        source.labels = folders
        source.account = account_folders(folder, folders, source.dataset.extensions)


def _read_maps(source: Source) -> None:
    dataset = source.dataset
    source.account, pairs = pair_maps(dataset)
    told = dict(label_map=dataset.label_map, reduce_zero_label=dataset.reduce_zero_label)
    source.samples = [
        dict(img_path=str(image), seg_map_path=str(label_map), seg_fields=[], **told)
        for image, label_map in sampled(pairs)
    ]


# The first that fits reads the files.
KINDS: tuple[tuple[Callable[[BaseDataset], bool], Callable[[Source], None]], ...] = (
    (_finds_categories, _read_categories),
    (lambda dataset: bool(dataset.ann_file), _read_list),
    (lambda dataset: getattr(dataset, 'with_label', False), _read_folders),
    (lambda dataset: hasattr(dataset, 'img_suffix') and bool(dataset.data_prefix.get('seg_map_path')), _read_maps),
)
