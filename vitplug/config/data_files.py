"""The files and folders behind the data sets of a config."""

from collections.abc import Collection, Iterator, Mapping
from pathlib import Path

from mmengine.registry import DATASETS

from vitplug.files.named import is_remote

from .parts import as_list, defaults_of, loader_leaves, registered, strings_in

SPLITS = ('train', 'val', 'test')


def data_places(cfg, splits: Collection[str] = SPLITS) -> Iterator[tuple[str, Path]]:
    """The files and folders behind the loaders and evaluators of some splits.

    Data sets that make or fetch their samples, or read them from a bucket, have none.

    Yields:
        The setting, such as ``'train_dataloader.dataset.data_prefix.img_path'``, and the path, joined with the root; it
        may not exist. ``img_path`` is also the key of a prefix, or a root, that is a text.
    """
    for split in splits:
        for path, dataset in loader_leaves(cfg, split):
            settings = completed(dataset, cfg.get('default_scope'))
            if is_local(settings):
                yield from ((f'{path}.data_prefix.{key}', folder) for key, folder in folders_of(settings).items())
                yield from ((f'{path}.ann_file', file) for file in _annotation_files(settings))
        for key, file in strings_in(as_list(cfg.get(f'{split}_evaluator')), f'{split}_evaluator'):
            if key.endswith('.ann_file') and file and not is_remote(file):
                yield key, Path(file)


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


def _annotation_files(settings: Mapping) -> Iterator[Path]:
    root, file, split = settings.get('data_root') or '', settings.get('ann_file'), settings.get('split')
    if isinstance(file, str) and file:
        yield from () if is_remote(file) else (Path(root, file),)
    elif root and isinstance(split, str) and split and Path(root, 'meta', f'{split}.txt').is_file():
        yield Path(root, 'meta', f'{split}.txt')  # of mmpretrain's ImageNet
