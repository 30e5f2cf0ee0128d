"""From the ``plugs`` argument of a model to plugs."""

import importlib.util
import inspect
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress

from vitplug.plugs import PLUG_TYPES, Plug
from vitplug.plugs.text import NONE, label_of, listed_plugs, text_of
from vitplug.spelling import hint

#: The plugs of vitplug, by the names of their classes.
TYPES = {plug.__name__: plug for plug in PLUG_TYPES}


def find_plug(name: str) -> type | None:
    """The class with a name, which may begin with ``vitplug.``: of vitplug, or one that mmengine finds; else None.

    A path such as ``'os.system'`` is resolved as well: whether it is a plug is another question. What its module raises
    when it is imported is raised.
    """
    registry = sys.modules.get('vitplug.registry')
    with suppress(RuntimeError):  # mmengine's error for some unknown names
        if registry and (found := registry.PLUGS.get(name)):
            return found
    module, _, path = name.rpartition('.')
    if module in ('', 'vitplug'):
        return TYPES.get(path)
    try:
        return getattr(importlib.import_module(module), path, None)
    except ModuleNotFoundError as error:
        if not f'{module}.'.startswith(f'{error.name}.'):
            raise
        return None


def build_plugs(plugs: str | Sequence) -> list[Plug]:
    """Builds plugs from their configs.

    Args:
        plugs: A text such as ``'gab+residual(alpha=0.25)'``, or a list of texts, dicts with a ``type``, and plugs.

    Raises:
        ValueError: If this is something else, a type is no plug, or an argument is refused.
    """
    return [plug if isinstance(plug, Plug) else _build_plug(plug) for plug in listed_plugs(plugs)]


def plugs_text(plugs: str | Sequence) -> str:
    """The text of plugs in any form that :func:`build_plugs` takes.

    Raises:
        ValueError: If no text gives the same plugs, as with a type or a value that has no name.
    """
    if isinstance(plugs, str):
        return label_of(plugs)
    entries = [
        _entry(plug) if isinstance(plug, Plug) else {key: value for key, value in plug.items() if key != '_scope_'}
        for plug in listed_plugs(plugs)
    ]
    text = '+'.join(map(text_of, entries)) or NONE
    if listed_plugs(text) != [{**entry, 'type': entry['type'].removeprefix('vitplug.')} for entry in entries]:
        raise ValueError(f'plugs={plugs!r}: cannot be written as text: name registered types and plain values')
    return text


def _entry(plug: Plug) -> dict:
    kind = type(plug)
    names = [name for name in (kind.__name__, f'{kind.__module__}.{kind.__qualname__}') if find_plug(name) is kind]
    if not names or not inspect.signature(kind).parameters.keys() <= vars(plug).keys():
        raise ValueError(f'plugs: {kind.__name__} cannot be written as text: give it a path, and keep all arguments')
    return dict(type=names[0], **plug.settings())


def _build_plug(cfg: Mapping) -> Plug:
    if not isinstance(cfg, Mapping) or 'type' not in cfg:
        raise ValueError(f"plugs: {cfg!r} is no plug; expected a dict such as dict(type='ContextBroadcast')")
    settings = {key: value for key, value in cfg.items() if key not in ('type', '_scope_')}
    name = cfg['type']
    plug_class = name if isinstance(name, type) else find_plug(str(name))
    if not inspect.isclass(plug_class) or not issubclass(plug_class, Plug):
        registry = sys.modules.get('vitplug.registry')
        known = registry.PLUGS.module_dict if registry else TYPES
        module, _, path = str(name).partition('.')
        is_missing = path and module not in sys.modules and not importlib.util.find_spec(module)
        missing = f'; Python finds no module {module!r}' if is_missing else ''
        raise ValueError(
            f'plugs: type={name!r} is no plug; choose from {sorted(known)}{hint(str(name), known)}; one of your own is '
            f'found by its path, such as my_plugs.MixedHeads, if its folder is in PYTHONPATH{missing}'
        )
    allowed = list(inspect.signature(plug_class).parameters)
    if unknown := sorted(set(settings) - set(allowed)):
        raise ValueError(f'plugs: {plug_class.__name__} has no argument {unknown}; it takes {allowed}')
    try:
        return plug_class(**settings)
    except ValueError as error:
        raise ValueError(f'plugs: {plug_class.__name__}: {error}') from error
