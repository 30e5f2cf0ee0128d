"""Types that no registry has: their settings in the config, and similar names."""

import difflib
import re
from collections.abc import Iterator
from contextlib import contextmanager

from mmengine.registry import Registry, root

from vitplug.config.parts import strings_in

NOT_REGISTERED = re.compile(r'(?P<type>\S+) is not in the (?:(?P<scope>\w+)::)?(?P<kind>[\w ]+) registry')
SUGGESTED = 3


@contextmanager
def explained_types(cfg) -> Iterator[None]:
    """Turns mmengine's error for a type that is not registered into one with the setting and names that are alike.

    Raises:
        ValueError: names the setting, the type and what it may be meant to be.
    """
    try:
        yield
    except KeyError as error:
        match = NOT_REGISTERED.search(str(error.args[0])) if error.args else None
        if match is None:
            raise
        raise ValueError(explain(cfg, match['type'], match['scope'], match['kind'])) from error


def explain(cfg, name: str, scope: str | None, kind: str) -> str:
    """The message for a type that is not registered.

    Args:
        cfg: The config.
        name: The type.
        scope: The library in which it was looked for, None for mmengine alone.
        kind: The kind of part that it should be, such as ``'model'``.
    """
    settings = [place for place, value in strings_in(dict(cfg.items())) if value == name and place.endswith('type')]
    close = difflib.get_close_matches(name, _names(kind, scope), n=SUGGESTED, cutoff=0.75)
    advice = (
        f'did you mean {" or ".join(map(repr, close))}?'
        if close
        else ('for a class of your own, name its module in custom_imports = dict(imports=[...])')
    )
    place = f'{", ".join(settings)} = ' if settings else ''
    return f'{place}{name!r} is not in the {f"{scope}::" if scope else ""}{kind} registry: {advice}'


def _names(kind: str, scope: str | None) -> list[str]:
    """The types of a kind, as a config of a scope names them."""
    names = []
    for registry in vars(root).values():
        if isinstance(registry, Registry) and registry.name.replace('_', ' ') == kind.replace('_', ' '):
            for name, scoped in {'': registry, **registry.children}.items():
                scoped.import_from_location()
                prefix = '' if name in ('', scope) else f'{name}.'
                names += [f'{prefix}{module}' for module in scoped.module_dict]
    return names
