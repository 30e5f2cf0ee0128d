"""Parts of a config, the classes that they name, and the files behind its data sets."""

import copy
import inspect
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from mmengine.dataset import BaseDataset
from mmengine.registry import DATASETS, Registry


def strings_in(node, path: str = '') -> Iterator[tuple[str, str]]:
    """All strings in a part of a config, with the places of their settings."""
    if isinstance(node, str):
        yield path, node
    for place, child in children(node, path):
        yield from strings_in(child, place)


def children(node, path: str) -> Iterator[tuple[str, Any]]:
    """The entries of a dict or a list, with their places; nothing has others."""
    entries = node.items() if isinstance(node, Mapping) else enumerate(node if isinstance(node, list | tuple) else ())
    for key, child in entries:
        yield f'{path}.{key}' if path else str(key), child


def registered(registry: Registry, kind, scope: str):
    """The class or function that a type names in a scope; None if there is none."""
    if inspect.isclass(kind):
        return kind
    try:
        with registry.switch_scope_and_registry(scope) as local:
            return local.get(kind)
    except (TypeError, RuntimeError):
        return None


def loader_leaves(cfg, split: str) -> Iterator[tuple[str, Mapping]]:
    """The data sets of a split's loader, inside wrappers such as RepeatDataset; none where there is no loader.

    Yields:
        Place of a data set, such as ``'train_dataloader.dataset.datasets.0'``, and its settings.
    """
    yield from _leaves(cfg.get(f'{split}_dataloader'), f'{split}_dataloader')


def _leaves(node, path: str) -> Iterator[tuple[str, Mapping]]:
    if not isinstance(node, Mapping):  # a list, or built already
        inner = children(node, path)
    elif not (inner := [(f'{path}.{key}', node[key]) for key in ('datasets', 'dataset') if node.get(key) is not None]):
        yield path, node
    for place, child in inner:
        yield from _leaves(child, place)


def lazy_datasets(cfg, split: str) -> Iterator[tuple[str, BaseDataset]]:
    """The data sets of a split's loader with their places, built by their classes without reading annotations.

    Data sets that do not derive from mmengine's class are left out.

    Raises:
        FileNotFoundError: If a class looks for its files and does not find them.
    """
    scope = cfg.get('default_scope')
    for path, settings in loader_leaves(cfg, split):
        kind = registered(DATASETS, settings.get('type'), scope)
        if kind is not None and not issubclass(kind, BaseDataset):
            continue
        try:
            yield path, DATASETS.build({**settings, 'lazy_init': True, '_scope_': scope})
        except AssertionError as error:
            raise FileNotFoundError(f'{path}: {settings["type"]} does not find its files {error}') from error


def data_places(cfg, split: str) -> Iterator[tuple[str, Path]]:
    """The files and folders behind the loader of a split, as the data sets' classes join them.

    Yields:
        The setting, such as ``'train_dataloader.dataset.data_prefix.img_path'``, and the path, which may not exist.
    """
    for path, dataset in lazy_datasets(cfg, split):
        places = {f'data_prefix.{key}': folder for key, folder in dataset.data_prefix.items()}
        for key, place in {**places, 'ann_file': dataset.ann_file}.items():
            if isinstance(place, str) and place:
                yield f'{path}.{key}', Path(place)


def pipeline_of(loader: Mapping) -> tuple[str, Sequence[Mapping]]:
    """The pipeline of a loader's data set, the first one of several: its place in the loader, and its steps."""
    place, dataset = 'dataset', loader['dataset']
    while 'pipeline' not in dataset:
        place += '.dataset' if dataset.get('dataset') else '.datasets[0]'
        dataset = dataset.get('dataset') or dataset['datasets'][0]
    return f'{place}.pipeline', dataset['pipeline']


def difference(old: Mapping, new: Mapping) -> dict:
    """The parts in which a config differs from its base, as mmengine merges them into it."""
    changes = {}
    for key, value in new.items():
        before = old.get(key)
        if key in old and value == before:
            continue
        if isinstance(before, Mapping) and isinstance(value, Mapping) and before.keys() <= value.keys():
            changes[key] = difference(before, value)
        elif key in old and isinstance(value, Mapping):
            changes[key] = {'_delete_': True, **value}
        else:
            changes[key] = value
    return changes


def model_settings(cfg: Mapping) -> dict:
    """A copy of the settings of a model, with the config's outermost preprocessor, as mmengine's runner builds it."""
    model = copy.deepcopy(cfg['model'])
    if cfg.get('data_preprocessor'):
        model.setdefault('data_preprocessor', copy.deepcopy(cfg['data_preprocessor']))
    return model


def as_list(value) -> list:
    """A list of the values of a setting that may be None, one value or several."""
    if value is None:
        return []
    return list(value) if isinstance(value, (list, tuple)) else [value]
