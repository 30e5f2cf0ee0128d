"""From a path and the settings of a command line to a complete mmengine config."""

from collections.abc import Mapping

from mmengine.config import Config

from vitplug.files.named import check_config_file
from vitplug.plugs.text import listed_plugs
from vitplug.registry import MODELS

from .parts import defaults_of, registered
from .paths import LIBRARIES, config_file, find_by_name
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
    check_config_file(path)
    find_by_name()
    try:
        cfg = Config.fromfile(path)
    except (Exception, SystemExit) as error:  # a config is a program, and can fail with any
        raise ValueError(f'{path} is no config ({type(error).__name__}): {error}') from error
    _drop_scope(cfg._cfg_dict)
    _list_plugs(cfg._cfg_dict.get('model'), 'model')
    _merge_options(cfg, options or {})
    _check_takes_plugs(cfg)
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


def _drop_scope(node, in_hooks: bool = False) -> None:
    """Lets a config's parts be found in the default scope again, all the way down.

    mmengine marks the parts of a base with the scope of its package. A task's parts are not registered in vitplug's,
    and vitplug's hooks over those of another library keep that one's mark.
    """
    if isinstance(node, dict):
        if node.get('_scope_') == 'vitplug' or (in_hooks and str(node.get('type')).startswith('vitplug.')):
            node.pop('_scope_', None)
        for key, child in node.items():
            _drop_scope(child, in_hooks or key == 'default_hooks')
    elif isinstance(node, list | tuple):
        for child in node:
            _drop_scope(child, in_hooks)


def _check_takes_plugs(cfg: Config) -> None:
    backbone = (cfg.get('model') or {}).get('backbone')
    if not isinstance(backbone, Mapping) or not backbone.get('plugs'):
        return
    kind = registered(MODELS, backbone.get('type'), backbone.get('_scope_') or cfg.get('default_scope'))
    if kind is not None and kind.__module__.partition('.')[0] in LIBRARIES and 'plugs' not in defaults_of(kind):
        name = str(backbone['type']).rpartition('.')[2]
        raise ValueError(
            f'{cfg.filename}: its backbone {backbone["type"]!r} takes no plugs: write '
            f"model = dict(backbone=dict(type='vitplug.{name}', plugs=...)), if docs/hosts.md has that host"
        )


def take_plugs(cfg: Config) -> None:
    """Lets the backbone of a config take plugs: vitplug's host of the same name takes the place of a library's own.

    Raises:
        ValueError: if it has no backbone, or one without a host.
    """
    backbone, scope = (cfg.get('model') or {}).get('backbone') or {}, cfg.get('default_scope')
    kind = str(backbone.get('type', ''))
    library, _, name = kind.rpartition('.')
    hosts = [kind, *([f'vitplug.{name}'] if library in ('', *LIBRARIES) else [])]
    host = next((one for one in hosts if 'plugs' in defaults_of(registered(MODELS, one, scope))), None)
    if host is None:
        raise ValueError(
            f'{cfg.filename}: its backbone {kind!r} takes no plugs, and vitplug has no host for it: name a config with '
            'one of the hosts of docs/hosts.md, or write your own (docs/your_host.md)'
        )
    backbone['type'] = host
