"""From the ``plugs`` argument of a config to plugs."""

import inspect
from collections.abc import Mapping, Sequence

from vitplug.plugs import Plug
from vitplug.registry import PLUGS


def build_plugs(plugs: Sequence[Mapping]) -> list[Plug]:
    """Builds plugs from their configs.

    Raises:
        ValueError: If this is no list of dicts with a registered ``type``, or an argument is refused.
    """
    if isinstance(plugs, Mapping | str) or not isinstance(plugs, Sequence):
        raise ValueError(
            f"plugs={plugs!r}: expected a list of dicts, such as plugs=[dict(type='ContextBroadcast')]; "
            'an empty list is the plain backbone'
        )
    return [_build_plug(cfg) for cfg in plugs]


def _build_plug(cfg: Mapping) -> Plug:
    if not isinstance(cfg, Mapping) or 'type' not in cfg:
        raise ValueError(f"plugs: {cfg!r} is no plug; expected a dict such as dict(type='ContextBroadcast')")
    settings = {key: value for key, value in cfg.items() if key not in ('type', '_scope_')}
    name = cfg['type']
    try:
        plug_class = name if isinstance(name, type) else PLUGS.get(str(name))
    except RuntimeError:  # mmengine's error for some unknown names
        plug_class = None
    # mmengine resolves dotted paths such as 'os.system': accept subclasses of Plug only.
    if not inspect.isclass(plug_class) or not issubclass(plug_class, Plug):
        raise ValueError(f'plugs: type={name!r} is no plug; choose from {sorted(PLUGS.module_dict)}')
    allowed = list(inspect.signature(plug_class).parameters)
    unknown = sorted(set(settings) - set(allowed))
    if unknown:
        raise ValueError(f'plugs: {plug_class.__name__} has no argument {unknown}; it takes {allowed}')
    try:
        return plug_class(**settings)
    except ValueError as error:
        raise ValueError(f'plugs: {plug_class.__name__}: {error}') from error
