"""From the ``plugs`` argument of a backbone to plugs."""

import difflib
import inspect
from collections.abc import Mapping, Sequence

from vitplug.config.plug_text import label_of, listed_plugs, text_of
from vitplug.plugs import Plug
from vitplug.registry import PLUGS


def build_plugs(plugs: str | Sequence) -> list[Plug]:
    """Builds plugs from their configs.

    Args:
        plugs: A text such as ``'gab+residual(alpha=0.25)'``, or a list of texts, dicts with a ``type``, and plugs.

    Raises:
        ValueError: If this is something else, a type is no registered plug, or an argument is refused.
    """
    return [plug if isinstance(plug, Plug) else _build_plug(plug) for plug in listed_plugs(plugs)]


def plugs_text(plugs: str | Sequence) -> str:
    """The text of plugs in any form that :func:`build_plugs` takes.

    Raises:
        ValueError: If this is something else, or the text would not give the same plugs, as with a type or a value
            that has no name.
    """
    if isinstance(plugs, str):
        return label_of(plugs)
    entries = [_as_dict(plug) if isinstance(plug, Plug) else plug for plug in listed_plugs(plugs)]
    build_plugs(entries)
    text = '+'.join(map(text_of, entries)) or 'none'
    try:
        same = listed_plugs(text) == [{**entry, 'type': entry['type'].removeprefix('vitplug.')} for entry in entries]
    except (ValueError, AttributeError):
        same = False
    if not same:
        raise ValueError(f'plugs={plugs!r}: cannot be written as text: name registered types and plain values')
    return text


def _as_dict(plug: Plug) -> dict:
    return dict(type=type(plug).__name__, **plug.settings())


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
        close = difflib.get_close_matches(str(name), PLUGS.module_dict, n=1)
        hint = f'; did you mean {close[0]}?' if close else ''
        raise ValueError(f'plugs: type={name!r} is no plug; choose from {sorted(PLUGS.module_dict)}{hint}')
    allowed = list(inspect.signature(plug_class).parameters)
    unknown = sorted(set(settings) - set(allowed))
    if unknown:
        raise ValueError(f'plugs: {plug_class.__name__} has no argument {unknown}; it takes {allowed}')
    try:
        return plug_class(**settings)
    except ValueError as error:
        raise ValueError(f'plugs: {plug_class.__name__}: {error}') from error
