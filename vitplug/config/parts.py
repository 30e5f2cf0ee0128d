"""Parts of a config, and the classes that they name; builds nothing."""

import copy
import functools
import inspect
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from mmengine.registry import Registry


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
    """All dicts in a part of a config, outer ones first.

    Args:
        node: The part.
        path: Its place.
        registry: Where the types are found.
        scope: The task's library.
        leave_out: Says of a part whether it and all in it are left out.
    """
    if isinstance(node, Mapping):
        kind = registered(registry, node['type'], scope) if 'type' in node else None
        part = Part(path, node, kind if inspect.isclass(kind) else None)
        if leave_out(part):
            return
        yield part
    children = node.items() if isinstance(node, Mapping) else enumerate(node)
    for key, child in children:
        if isinstance(child, Mapping | list | tuple):
            yield from find_parts(child, f'{path}.{key}', registry, scope, leave_out)


def strings_in(node, path: str = '') -> Iterator[tuple[str, str]]:
    """All strings in a part of a config, with the places of their settings."""
    for key, child in node.items() if isinstance(node, Mapping) else enumerate(node or ()):
        setting = f'{path}.{key}' if path else str(key)
        if isinstance(child, str):
            yield setting, child
        elif isinstance(child, Mapping | list | tuple):
            yield from strings_in(child, setting)


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


def dataset_leaves(dataset: Mapping, path: str) -> Iterator[tuple[str, Mapping]]:
    """The data sets inside wrappers such as RepeatDataset (`dataset`) and ConcatDataset (`datasets`).

    Yields:
        Place of a data set, such as ``'train_dataloader.dataset.datasets.0'``, and its settings.
    """
    if not isinstance(dataset, Mapping):
        return  # built already
    inner = [(f'{path}.{key}', dataset[key]) for key in ('datasets', 'dataset') if dataset.get(key) is not None]
    for setting, child in inner:
        children = enumerate(child) if isinstance(child, list | tuple) else ()
        for leaf in [(f'{setting}.{number}', entry) for number, entry in children] or [(setting, child)]:
            yield from dataset_leaves(leaf[1], leaf[0])
    if not inner:
        yield path, dataset


def loader_leaves(cfg, split: str) -> Iterator[tuple[str, Mapping]]:
    """The data sets of a split's loader, as `dataset_leaves`; none where there is no loader."""
    loader = cfg.get(f'{split}_dataloader')
    if loader:
        yield from dataset_leaves(loader['dataset'], f'{split}_dataloader.dataset')


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
