"""From a path and the settings of a command line to a complete mmengine config."""

from collections.abc import Mapping
from pathlib import Path

from mmengine.config import Config

from vitplug.files.config_paths import LIBRARIES, config_file
from vitplug.files.named import near_file
from vitplug.plugs.text import listed_plugs
from vitplug.registry import MODELS

from .parts import defaults_of, registered
from .slips import check_key, check_slips

CONFIG_HELP = 'config file, or the name of one in an installed package: mmpretrain::..., mmdet::..., mmseg::...'
PLUGS_KEY = 'model.backbone.plugs'
# The hooks that every runner of mmengine has, and leaves out where they are None.
MMENGINE_HOOKS = ('runtime_info', 'timer', 'sampler_seed', 'logger', 'param_scheduler', 'checkpoint')


def read_config(path: str, options: Mapping | None = None) -> Config:
    """The config of a file with everything it inherits, and the settings that win over it.

    Args:
        path: The file, or its name in an installed package, such as `mmseg::vit/vit_deit-s16_...py`.
        options: Settings by their dotted names.

    Raises:
        FileNotFoundError: if the file does not exist.
        ValueError: if it is no config, or a setting does not fit it.
    """
    path = config_file(path)
    if not Path(path).is_file():
        raise FileNotFoundError(f'no such config: {path}{near_file(path, "*.py")}')
    try:
        cfg = Config.fromfile(path)
    except (Exception, SystemExit) as error:  # a config is a program, and can fail with any
        raise ValueError(f'{path} is no config ({type(error).__name__}): {error}') from error
    _list_plugs(cfg._cfg_dict.get('model'), 'model')
    _merge_options(cfg, options or {})
    backbone = _backbone_of(cfg)
    if backbone.get('plugs') and (host := _host_of(cfg)) not in (None, backbone['type']):
        raise ValueError(
            f'{cfg.filename}: its backbone {backbone["type"]!r} takes no plugs: write '
            f'model = dict(backbone=dict(type={host!r}, plugs=...))'
        )
    check_slips(cfg)
    hooks = cfg.get('default_hooks') or {}
    for name in [name for name, hook in hooks.items() if hook is None and name not in MMENGINE_HOOKS]:
        del hooks[name]  # mmengine takes only its own six out
    return cfg


def _merge_options(cfg: Config, options: Mapping) -> None:
    """Merges settings of the command line: plugs, which a stock backbone then takes, before arguments of plugs.

    Raises:
        ValueError: if a setting does not fit the config.
    """
    plugs = {
        key: listed_plugs([] if value in ('[]', '()') else value, key)
        for key, value in options.items()
        if names_plugs(key)
    }
    if PLUGS_KEY in plugs:
        take_plugs(cfg)
    for settings in (plugs, {key: value for key, value in options.items() if key not in plugs}):
        for key in settings:
            check_key(cfg, key, '--cfg-options ')
        try:
            cfg.merge_from_dict(settings)
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            raise ValueError(f'--cfg-options does not fit {cfg.filename}: {error}') from error


def names_plugs(key: str) -> bool:
    return key.rpartition('.')[2] == 'plugs'


def _list_plugs(node, path: str) -> None:
    """Lets all plugs in a model be lists of dicts, as the rest of vitplug reads them."""
    for key, child in node.items() if isinstance(node, dict) else enumerate(node if isinstance(node, list) else ()):
        setting = f'{path}.{key}'
        if key == 'plugs' and child is not None:
            node[key] = listed_plugs(child, setting)
        else:
            _list_plugs(child, setting)


def take_plugs(cfg: Config) -> None:
    """Lets the backbone of a config take plugs: vitplug's host of the same name takes the place of a library's own.

    Raises:
        ValueError: if it has no backbone, or one without a host.
    """
    host = _host_of(cfg)
    if host is None:
        raise ValueError(
            f'{cfg.filename}: its backbone {_backbone_of(cfg).get("type")!r} takes no plugs, and vitplug has no host '
            'for it: name a config with one of the hosts of docs/hosts.md, or write your own (docs/your_host.md)'
        )
    cfg.model.backbone['type'] = host


def _backbone_of(cfg: Config) -> Mapping:
    return (cfg.get('model') or {}).get('backbone') or {}


def _host_of(cfg: Config) -> str | None:
    """The type of a config's backbone if it takes plugs, or else that of vitplug's host of the same name."""
    backbone = _backbone_of(cfg)
    kind, scope = str(backbone.get('type', '')), backbone.get('_scope_') or cfg.get('default_scope')
    library, _, name = kind.rpartition('.')
    hosts = [kind, *([f'vitplug.{name}'] if library in ('', *LIBRARIES) else [])]
    return next((one for one in hosts if 'plugs' in defaults_of(registered(MODELS, one, scope))), None)
