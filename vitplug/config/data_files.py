"""The files and folders behind the data sets of a config."""

from collections.abc import Collection, Iterator
from pathlib import Path

from mmengine.dataset import BaseDataset
from mmengine.registry import DATASETS

from .parts import as_list, loader_leaves, registered, strings_in


def data_places(cfg, splits: Collection[str] = ('train', 'val', 'test')) -> Iterator[tuple[str, Path]]:
    """The files and folders behind the loaders and evaluators of some splits, as the data sets' classes join them.

    Yields:
        The setting, such as ``'train_dataloader.dataset.data_prefix.img_path'``, and the path, which may not exist.
    """
    scope = cfg.get('default_scope')
    for split in splits:
        for path, settings in loader_leaves(cfg, split):
            kind = registered(DATASETS, settings.get('type'), scope)
            if kind is None or not issubclass(kind, BaseDataset):
                continue
            dataset = DATASETS.build({**settings, 'lazy_init': True, '_scope_': scope})
            places = {f'data_prefix.{key}': folder for key, folder in dataset.data_prefix.items()}
            for key, place in {**places, 'ann_file': dataset.ann_file}.items():
                if isinstance(place, str) and place:
                    yield f'{path}.{key}', Path(place)
        for key, file in strings_in(as_list(cfg.get(f'{split}_evaluator')), f'{split}_evaluator'):
            if key.endswith('.ann_file') and file:
                yield key, Path(file)
