"""Parts of a config, the classes that they name, and the files behind its data sets."""

import copy
import functools
import inspect
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mmengine.dataset import BaseDataset
from mmengine.registry import DATASETS, Registry


@dataclass(frozen=True)
class Part:
    """A dict in a config, most often one that something is built of.

    Attributes:
        path: Its place, as `--cfg-options` has it, such as ``'model.roi_head.bbox_head.0'``.
        settings: The dict.
        kind: The class that its `type` names; None where that is no class or none is named.
    """

    path: str
    settings: Mapping
    kind: type | None

    @property
    def name(self) -> str:
        """The last key of the path that is no index, such as ``'bbox_head'``."""
        return next(key for key in reversed(self.path.split('.')) if not key.isdecimal())

    def is_a(self, *names: str) -> bool:
        """Whether its class, or a class that this inherits from, has one of some names."""
        return any(base.__name__ in names for base in inspect.getmro(self.kind)) if self.kind else False

    def get(self, key: str):
        """A setting, or the default of the class."""
        return self.settings[key] if key in self.settings else defaults_of(self.kind).get(key)


def find_parts(node, path: str, registry: Registry, scope: str, leave_out=lambda part: False) -> Iterator[Part]:
    """All dicts in a part of a config, outer ones first, but those that `leave_out` says and all in them.

    ``path`` is the place of the part; types are found in ``registry`` by the ``scope`` of the task's library.
    """
    if isinstance(node, Mapping):
        kind = registered(registry, node['type'], scope) if 'type' in node else None
        part = Part(path, node, kind if inspect.isclass(kind) else None)
        if leave_out(part):
            return
        yield part
    for place, child in _children(node, path):
        if isinstance(child, Mapping | list | tuple):
            yield from find_parts(child, place, registry, scope, leave_out)


def strings_in(node, path: str = '') -> Iterator[tuple[str, str]]:
    """All strings in a part of a config, with the places of their settings."""
    for place, child in _children(node, path):
        if isinstance(child, str):
            yield place, child
        elif isinstance(child, Mapping | list | tuple):
            yield from strings_in(child, place)


def _children(node, path: str) -> Iterator[tuple[str, Any]]:
    """The entries of a dict or a list, with their places."""
    for key, child in node.items() if isinstance(node, Mapping) else enumerate(node or ()):
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


@functools.cache
def defaults_of(kind: type | None) -> dict:
    """The constructor defaults of a class and its bases; not to be changed."""
    defaults = {}
    for base in reversed(inspect.getmro(kind) if kind else ()):
        parameters = inspect.signature(base.__init__).parameters.values()
        defaults |= {p.name: p.default for p in parameters if p.default is not p.empty}
    return defaults


def dataset_leaves(dataset: Mapping | Sequence, path: str) -> Iterator[tuple[str, Mapping]]:
    """The data sets inside wrappers such as RepeatDataset (`dataset`) and ConcatDataset (`datasets`).

    Yields:
        Place of a data set, such as ``'train_dataloader.dataset.datasets.0'``, and its settings.
    """
    if isinstance(dataset, list | tuple):
        for place, child in _children(dataset, path):
            yield from dataset_leaves(child, place)
    elif isinstance(dataset, Mapping):  # not built already
        inner = [key for key in ('datasets', 'dataset') if dataset.get(key) is not None]
        for key in inner:
            yield from dataset_leaves(dataset[key], f'{path}.{key}')
        if not inner:
            yield path, dataset


def loader_leaves(cfg, split: str) -> Iterator[tuple[str, Mapping]]:
    """The data sets of a split's loader, as `dataset_leaves`; none where there is no loader."""
    loader = cfg.get(f'{split}_dataloader')
    if loader:
        yield from dataset_leaves(loader['dataset'], f'{split}_dataloader.dataset')


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


def pipeline_of(loader: Mapping) -> tuple[str, Sequence[Mapping]]:
    """The pipeline of a loader's data set: its place in the loader, and its steps."""
    place, dataset = 'dataset', loader['dataset']
    while 'pipeline' not in dataset:
        inner = dataset.get('dataset') or dataset['datasets'][0]
        place, dataset = f'{place}.dataset' if 'dataset' in dataset else f'{place}.datasets[0]', inner
    return f'{place}.pipeline', dataset['pipeline']


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
