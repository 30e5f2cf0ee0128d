"""Checks that a dotted name is a setting of a config: one that it has, or one that the class of the part takes."""

import difflib
import inspect
from collections.abc import Mapping

from mmengine import registry
from mmengine.config import Config
from mmengine.registry import Registry, init_default_scope

from vitplug.config.parts import defaults_of, registered

# The registries in which the class of a part of a config can be.
REGISTRIES = [value for value in vars(registry).values() if isinstance(value, Registry)]
# What the loops of mmengine take, beside `by_epoch`, where `train_cfg` names no class.
LOOP_SETTINGS = ('by_epoch', 'max_epochs', 'max_iters', 'val_begin', 'val_interval', 'dynamic_intervals')


def check_key(cfg: Config, key: str) -> None:
    """Checks the name of a setting.

    Args:
        cfg: The config.
        key: Its dotted name; indices stand for entries of lists, as in ``param_scheduler.1.end``.

    Raises:
        ValueError: If neither the config has it nor the class that the part names takes it; names close ones.
    """
    node, place = cfg._cfg_dict, ''
    for part in key.split('.'):
        known = _children(node)
        if part not in known:
            if part in _accepted(node, cfg, place):
                return
            names = [*known, *_accepted(node, cfg, place)]
            close = difflib.get_close_matches(part, names, n=1)
            hint = f'; did you mean {close[0]!r}?' if close else f'; there are {", ".join(sorted(names)[:20])}'
            raise ValueError(f'axes: {key}: {cfg.filename} has no {part!r} in {place or "it"}{hint}')
        node, place = known[part], f'{place}.{part}' if place else part


def _children(node) -> Mapping[str, object]:
    if isinstance(node, Mapping):
        return dict(node)
    return {str(index): child for index, child in enumerate(node)} if isinstance(node, list | tuple) else {}


def _accepted(node, cfg: Config, place: str) -> list[str]:
    if place == 'train_cfg':
        return list(LOOP_SETTINGS)
    return settings_of_class(node, cfg.default_scope) if isinstance(node, Mapping) else []


def settings_of_class(part: Mapping, scope: str) -> list[str]:
    """The arguments of the class that a part of a config names; none where there is no such class."""
    if 'type' not in part:
        return []
    init_default_scope(scope)
    found = (registered(one, part['type'], scope) for one in REGISTRIES)
    kind = next((one for one in found if one is not None), None)
    return [*inspect.signature(kind.__init__).parameters, *defaults_of(kind)] if inspect.isclass(kind) else []
