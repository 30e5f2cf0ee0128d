"""Plugs on the libraries' own backbones: vitplug's host of the same name takes the place of one."""

from collections.abc import Mapping

from mmengine.config import Config

from vitplug.registry import MODELS

from .keys import arguments_of, settings_of_class
from .parts import registered
from .paths import LIBRARIES


def host_of(kind: str) -> str | None:
    """The type of the host for a backbone of a library; None if there is none.

    Args:
        kind: The type, such as ``'SwinTransformer'`` or ``'mmseg.VisionTransformer'``.
    """
    scope, _, name = kind.rpartition('.')
    host = registered(MODELS, f'vitplug.{name}', MODELS.scope) if scope in ('', *LIBRARIES) else None
    return f'vitplug.{name}' if 'plugs' in arguments_of(host) else None


def host_type(cfg: Config) -> str:
    """The type with which the backbone of a config takes plugs: its own, or that of the host with the same arguments.

    Raises:
        ValueError: if it has no backbone, or one without a host; names it and what to do.
    """
    backbone = _backbone(cfg)
    if backbone is None:
        raise ValueError(f'{cfg.filename}: its model has no backbone that could take plugs')
    kind = backbone['type']
    host = host_of(kind) if _lacks_plugs(backbone, cfg) else kind
    if host is None:
        hosts = sorted(name for name in MODELS.module_dict if host_of(name))
        raise ValueError(
            f'{cfg.filename}: its backbone {kind!r} takes no plugs, and vitplug has no host for it: name a '
            f'config whose backbone is one of {", ".join(hosts)}, or write your own (docs/your_host.md)'
        )
    return host


def take_plugs(cfg: Config) -> None:
    """Lets the backbone of a config take plugs: a library's own becomes vitplug's host, see :func:`host_type`."""
    cfg.model.backbone['type'] = host_type(cfg)


def check_takes_plugs(cfg: Config) -> None:
    """Checks that a backbone with plugs takes them; a class that is not found has its own error when it is built.

    Raises:
        ValueError: names the config, the backbone and what to write.
    """
    backbone = _backbone(cfg)
    if backbone is not None and backbone.get('plugs') and _lacks_plugs(backbone, cfg):
        raise ValueError(
            f'{cfg.filename}: its backbone {backbone["type"]!r} takes no plugs: write '
            f'model = dict(backbone=dict(type={host_type(cfg)!r}, plugs=...)), which takes the same arguments'
        )


def _backbone(cfg: Config) -> Mapping | None:
    backbone = (cfg.get('model') or {}).get('backbone')
    return backbone if isinstance(backbone, Mapping) and isinstance(backbone.get('type'), str) else None


def _lacks_plugs(backbone: Mapping, cfg: Config) -> bool:
    settings = settings_of_class(backbone, backbone.get('_scope_') or cfg.get('default_scope'))
    return bool(settings) and 'plugs' not in settings
