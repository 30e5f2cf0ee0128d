"""The plugs, a file or a folder per paper (torch only).

A plug in this folder is found by itself: its class has a ``name``, and configs may name it.
"""

from importlib import import_module
from pkgutil import iter_modules

from .plug import INTERMEDIATES, BlockShape, LayerPlan, Plug
from .plug_set import Bindable, LayerPlugs, NetworkPlugs, PlugModules, PlugSet
from .sockets import BLOCK_SOCKETS, NETWORK_SOCKETS, Sockets


def _found() -> tuple[type[Plug], ...]:
    # Texts of plugs need the plugs.
    modules = [import_module(f'{__name__}.{info.name}') for info in iter_modules(__path__) if info.name != 'text']
    values = {value for module in modules for value in vars(module).values() if isinstance(value, type)}
    named = (value for value in values if issubclass(value, Plug) and 'name' in vars(value))
    return tuple(sorted(named, key=lambda plug: plug.__name__))


#: The types a config may name.
PLUG_TYPES = _found()
globals().update({plug.__name__: plug for plug in PLUG_TYPES})

__all__ = [
    'BLOCK_SOCKETS',
    'INTERMEDIATES',
    'NETWORK_SOCKETS',
    'PLUG_TYPES',
    'Bindable',
    'BlockShape',
    'LayerPlan',
    'LayerPlugs',
    'NetworkPlugs',
    'Plug',
    'PlugModules',
    'PlugSet',
    'Sockets',
    *(plug.__name__ for plug in PLUG_TYPES),
]
