"""Parts of a config, the classes that they name, and the files behind its data sets."""

import copy
import functools
import inspect
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from mmengine.dataset import BaseDataset
from mmengine.registry import DATASETS, Registry


def without(node: Any, name: str) -> Any:
    """A part of a config less all settings of one name in it."""
    if isinstance(node, Mapping):
        return type(node)({key: without(child, name) for key, child in node.items() if key != name})
    return type(node)(without(child, name) for child in node) if isinstance(node, list | tuple) else node


class Part(NamedTuple):
    """A dict in a config, most often one that something is built of.

    Attributes:
        path: Its place, as `--cfg-options` has it, such as ``'model.roi_head.bbox_head.0'``.
        settings: The dict.
        kind: The class that its `type` names; None where that is no class or none is named.
    """

    path: str
    settings: Mapping
    kind: type | None

    def goes_by(self, *names: str) -> bool:
        """Whether its key, its class or a class that this inherits from has one of some names."""
        key = next(key for key in reversed(self.path.split('.')) if not key.isdecimal())
        return not {key, *(base.__name__ for base in inspect.getmro(self.kind or object))}.isdisjoint(names)

    def get(self, key: str) -> Any:
        """A setting, or the default of the class; None if there is neither."""
        return self.settings[key] if key in self.settings else defaults_of(self.kind or object).get(key)


def parts_in(node, path: str, registry: Registry, scope: str, apart: Sequence[str] = ()) -> Iterator[Part]:
    """All dicts in a part of a config, outer ones first, but those that go by a name of ``apart`` and all in them.

    ``path`` is the place of the part; types are found in ``registry`` by the ``scope`` of the task's library.
    """
    if isinstance(node, Mapping):
        kind = registered(registry, node.get('type'), scope)
        part = Part(path, node, kind if inspect.isclass(kind) else None)
        if part.goes_by(*apart):
            return
        yield part
    for place, child in children(node, path):
        yield from parts_in(child, place, registry, scope, apart)


@functools.cache
def defaults_of(kind: type) -> dict[str, Any]:
    """The constructor defaults of a class and its bases; not to be changed."""
    defaults = {}
    for base in reversed(inspect.getmro(kind)):
        parameters = inspect.signature(base.__init__).parameters.values()
        defaults |= {one.name: one.default for one in parameters if one.default is not one.empty}
    return defaults


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
