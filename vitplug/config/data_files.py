"""The files and folders behind the data sets of a config."""

from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from mmengine.registry import DATASETS

from vitplug.files.named import is_remote

from .parts import as_list, defaults_of, loader_leaves, registered, strings_in

SPLITS = ('train', 'val', 'test')


class Place(NamedTuple):
    """A file or a folder that a data set reads.

    Attributes:
        key: Its setting, such as ``'train_dataloader.dataset.data_prefix.img_path'``; ``img_path`` is also that of a
            prefix, or a root, that is a text.
        path: Where it is, joined with the root; it may not exist.
        suffixes: Endings of its files that the data set takes; empty for all.
    """

    key: str
    path: Path
    suffixes: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """The last part of the key."""
        return self.key.rpartition('.')[2]


def data_places(cfg, splits: Collection[str] = SPLITS) -> Iterator[tuple[str, Path]]:
    """The files and folders behind the loaders and evaluators of some splits.

    Data sets that make or fetch their samples, or read them from a bucket, have none.

    Yields:
        The setting, see :class:`Place`, and the path.
    """
    for split in splits:
        for path, dataset in loader_leaves(cfg, split):
            yield from (place[:2] for place in dataset_places(dataset, cfg.get('default_scope'), path))
        for key, file in strings_in(as_list(cfg.get(f'{split}_evaluator')), f'{split}_evaluator'):
            if key.endswith('.ann_file') and file and not is_remote(file):
                yield key, Path(file)


def dataset_places(dataset: Mapping, scope: str | None, path: str) -> list[Place]:
    """The files and folders of one data set, less those that are not on this machine.

    Args:
        dataset: Its settings.
        scope: The task's library.
        path: Its place in the config.
    """
    settings = completed(dataset, scope)
    if not is_local(settings):
        return []
    folders = [
        Place(f'{path}.data_prefix.{key}', folder, _suffixes(settings, key))
        for key, folder in folders_of(settings).items()
    ]
    file = annotation_file(settings)
    return [*([Place(f'{path}.ann_file', file)] if file else []), *folders]


def completed(dataset: Mapping, scope: str | None) -> dict:
    """Settings of a data set, with the defaults of its class, such as the file name endings of Cityscapes."""
    return {**defaults_of(registered(DATASETS, dataset.get('type'), scope)), **dataset}


def is_local(settings: Mapping) -> bool:
    """False for classes that fetch their own files, and for file backends that know no local paths."""
    return not (settings.get('download') or settings.get('backend_args') or is_remote(settings.get('data_root') or ''))


def folders_of(settings: Mapping) -> dict[str, Path]:
    """The folders of a data set's files by their names, such as ``img_path``; none where it names no place.

    Args:
        settings: From :func:`completed`.
    """
    prefixes = settings.get('data_prefix') or ''
    prefixes = prefixes if isinstance(prefixes, Mapping) else {'img_path': prefixes}
    root = settings.get('data_root') or ''
    split = settings.get('split')
    if root and not any(prefixes.values()) and isinstance(split, str) and Path(root, split).is_dir():
        root = str(Path(root, split))  # as mmpretrain's ImageNet
    return {key: Path(root, prefix) for key, prefix in prefixes.items() if prefix is not None and (root or prefix)}


def annotation_file(settings: Mapping) -> Path | None:
    """The annotation file of a data set, if it reads one.

    Args:
        settings: From :func:`completed`.
    """
    root, file, split = settings.get('data_root') or '', settings.get('ann_file'), settings.get('split')
    if isinstance(file, str) and file:
        return None if is_remote(file) else Path(root, file)
    listed = Path(root, 'meta', f'{split}.txt')  # of mmpretrain's ImageNet
    return listed if root and isinstance(split, str) and split and listed.is_file() else None


def _suffixes(settings: Mapping, key: str) -> tuple[str, ...]:
    """The endings of files that count as samples: mmseg has one for each folder, mmpretrain several."""
    suffix = settings.get({'img_path': 'img_suffix', 'seg_map_path': 'seg_map_suffix'}.get(key))
    if isinstance(suffix, str):
        return (suffix,) if suffix else ()
    extensions = settings.get('extensions') if key == 'img_path' else None
    return tuple(map(str, as_list(extensions)))
