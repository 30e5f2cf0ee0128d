"""From the settings of a data set to what its files hold: read once, by the config's own class.

Shared by `vitplug check`, `vitplug new` and the first lines of a training.
"""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from mmengine.dataset import BaseDataset

from vitplug.config.parts import lazy_datasets
from vitplug.files.named import is_remote

from .accounts import Account, account_coco, account_folders, read_coco
from .classes import check_categories, check_folders


@dataclass
class Source:
    """A data set, and what its files hold.

    Attributes:
        path: Its place in the config, such as ``'train_dataloader.dataset'``.
        dataset: Built by its class; it may not have read its files.
        classes: Names of its classes by label; empty if unknown.
        folders: Names of the folders that are its classes; empty where none are.
        account: What is kept of the files; None for kinds of files that are not known.
        coco: Content of its COCO file; None for others.
        samples: Information on all samples, as the data set gives it.
    """

    path: str
    dataset: BaseDataset
    classes: tuple[str, ...] = ()
    folders: tuple[str, ...] = ()
    account: Account | None = None
    coco: dict | None = None
    samples: Sequence[dict] = field(default_factory=list)


def read_sources(cfg, split: str, every: bool = False) -> list[Source]:
    """Reads the data sets behind the loader of a split; those that do not derive from mmengine's class are left out.

    Messages about files below the `root` of the config's `data_help` end with its `command`, which makes the data.

    Raises:
        FileNotFoundError: If a folder or file is missing.
        ValueError: If annotations are broken or do not match the images or the classes, or nothing is left to learn.
    """
    made = cfg.get('data_help') or {}
    return [_read_source(Source(path, dataset), every, made) for path, dataset in lazy_datasets(cfg, split)]


def _read_source(source: Source, every: bool, made: Mapping) -> Source:
    dataset, path, names = source.dataset, source.path, source.dataset.metainfo.get('classes') or ()
    if isinstance(names, str):
        raise ValueError(f'{path}.metainfo.classes = {names!r}: expected a list; a comma makes it one: ({names!r},)')
    fetches = getattr(dataset, 'download', False) or getattr(dataset, 'backend_args', None)
    if not fetches and not is_remote(dataset.data_root or ''):
        folders = (('data folder', folder) for folder in dataset.data_prefix.values())
        for what, place in (*folders, ('annotation file', dataset.ann_file)):
            if place and not Path(place).exists():
                lacking = Path(os.path.abspath(place))
                is_made = 'root' in made and lacking.is_relative_to(os.path.abspath(made['root']))
                advice = f'; make the data with: {made["command"]}' if is_made else ''
                raise FileNotFoundError(f'no such {what}: {lacking}{advice}')
        _read_files(source, every)
    # None for panoptic data, where some parts of a model count things, some all classes.
    if not dataset.metainfo.get('stuff_classes'):
        source.classes = tuple(map(str, dataset.metainfo.get('classes') or ()))
    if source.coco:
        check_categories(path, source.classes, source.coco, dataset.ann_file)
    check_folders(path, source.classes, source.folders)
    for what, number in source.account.kept.items() if source.account else ():
        if not number:
            raise ValueError(f'{path}: no {what} are left. {source.account}')
    return source


def _read_files(source: Source, every: bool) -> None:
    """Lists the samples: of COCO files by their form, for mmdet needs long for large ones; else by the class."""
    dataset, labelled = source.dataset, getattr(source.dataset, 'with_label', False)
    # Labels are found by the names of a COCO file's categories; not those of LVIS and panoptic data.
    if type(dataset).load_data_list.__qualname__ == 'CocoDataset.load_data_list':
        source.coco = read_coco(Path(dataset.ann_file))
        source.account = account_coco(source.coco, dataset)
        folder = dataset.data_prefix.get('img') or dataset.data_root or ''
        source.samples = [
            dict(img_path=os.path.join(folder, image['file_name']), width=image['width'], height=image['height'])
            for image in source.coco['images']
        ]
        return
    if not (every or labelled or hasattr(dataset, 'img_suffix') or str(dataset.ann_file).endswith('.txt')):
        return
    try:
        source.samples = dataset.load_data_list()
    except Exception as error:  # data sets of any kind
        raise ValueError(f'{source.path}: {type(dataset).__name__} cannot read its files: {error}') from error
    images, number = dataset.data_prefix.get('img_path'), len(dataset.metainfo.get('classes') or ())
    if labelled:
        source.folders = tuple(getattr(dataset, 'folder_to_idx', ()))
        for line, info in enumerate(source.samples, start=1):
            if number and not 0 <= (label := info['gt_label']) < number:
                raise ValueError(f'{dataset.ann_file}, line {line}: label {label} is none of the {number} classes')
    if images and not dataset.ann_file:
        source.account = account_folders(dataset, source.samples, images, dataset.data_prefix.get('seg_map_path'))
    elif not source.samples:
        raise ValueError(f'{source.path}: {type(dataset).__name__} lists no images')
