"""From the ``plugs`` argument of a backbone to plugs, with those of mmengine's registry."""

from collections.abc import Sequence

from vitplug import hosting
from vitplug.plugs import Plug
from vitplug.registry import PLUGS


def build_plugs(plugs: str | Sequence) -> list[Plug]:
    """Builds plugs as :func:`vitplug.hosting.build_plugs` does; a ``type`` may be any that is registered."""
    return hosting.build_plugs(plugs, _registered, lambda: PLUGS.module_dict)


def _registered(name: str) -> type | None:
    try:
        # mmengine resolves dotted paths such as 'os.system' as well; only subclasses of Plug are taken.
        return PLUGS.get(name)
    except RuntimeError:  # its error for some unknown names
        return None
