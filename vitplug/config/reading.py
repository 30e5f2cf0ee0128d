"""From a path and the settings of a command line to a complete mmengine config."""

import inspect
from collections.abc import Mapping
from pathlib import Path

from mmengine.config import Config
from mmengine.runner import Runner

from vitplug.files.config_paths import LIBRARIES, config_file
from vitplug.files.named import near_file
from vitplug.plugs.text import listed_plugs
from vitplug.registry import MODELS
from vitplug.spelling import hint

from .parts import children, registered
from .text import named

CONFIG_HELP = 'config file, or the name of one in an installed package: mmpretrain::..., mmdet::..., mmseg::...'
PLUGS_KEY = 'model.backbone.plugs'
# The hooks that every runner of mmengine has, and leaves out where they are None.
MMENGINE_HOOKS = ('runtime_info', 'timer', 'sampler_seed', 'logger', 'param_scheduler', 'checkpoint')
# The names that mmengine or vitplug reads on a config's outermost level.
READ = frozenset(inspect.signature(Runner.__init__).parameters) - {'self', 'cfg'} | {
    *('compile', 'custom_imports', 'find_unused_parameters', 'model_wrapper_cfg', 'runner_type', 'strategy', 'sync_bn'),
    *('tta_model', 'tta_pipeline', 'data_help', '_base_', 'env_cfg', 'detect_anomalous_params'),
}
# The names in dicts of which no class is built: mmengine would overlook another one, and a default stay in force.
SCHEMAS = {
    '': READ | {'models'},  # of a stock config of mmseg
    'auto_scale_lr': {'enable', 'base_batch_size'},
    'env_cfg': {'cudnn_benchmark', 'mp_cfg', 'dist_cfg', 'resource_limit'},
    'optim_wrapper.paramwise_cfg': {
        *('custom_keys', 'bias_lr_mult', 'bias_decay_mult', 'norm_decay_mult', 'flat_decay_mult', 'dwconv_decay_mult'),
        *('dcn_offset_lr_mult', 'bypass_duplicate', 'layer_decay_rate', 'num_layers', 'decay_rate', 'decay_type'),
        'force_default_settings',
    },
}
# A name so close to another one is a slip of it.
CLOSE = 0.85


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
    plugs, given = ((cfg.get('model') or {}).get('backbone') or {}).get('plugs'), options or {}
    options = {PLUGS_KEY: plugs} | given if plugs is not None else given
    options = {
        key: listed_plugs([] if value in ('[]', '()') else value, key) if names_plugs(key) else value
        for key, value in options.items()
    }
    for key in sorted(options, key=names_plugs, reverse=True):  # plugs before their arguments
        _check_key(cfg, key)
        if key.startswith(f'{PLUGS_KEY}.') and PLUGS_KEY not in options:
            raise ValueError(f'--cfg-options {key}: {cfg.filename} has no plugs: name them first, {PLUGS_KEY}=NAMES')
        try:
            cfg.merge_from_dict({key: options[key]})
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            raise ValueError(f'--cfg-options {key} does not fit {cfg.filename}: {error}') from error
    if PLUGS_KEY in options:
        _take_plugs(cfg, required=PLUGS_KEY in given)
    _check_slips(cfg)
    hooks = cfg.get('default_hooks') or {}
    for name in [name for name, hook in hooks.items() if hook is None and name not in MMENGINE_HOOKS]:
        del hooks[name]  # mmengine takes only its own six out
    return cfg


def names_plugs(key: str) -> bool:
    return key.rpartition('.')[2] == 'plugs'


def _take_plugs(cfg: Config, required: bool) -> None:
    """Lets the backbone of a config take plugs: vitplug's host of the same name takes the place of a library's own.

    Args:
        cfg: The config.
        required: Whether the plugs are of the command line. A file may name a backbone that hands `**kwargs` on.

    Raises:
        ValueError: if it has no backbone, or one without a host, and plugs are required.
    """
    backbone = (cfg.get('model') or {}).get('backbone') or {}
    kind, scope = str(named(backbone.get('type'))), backbone.get('_scope_') or cfg.get('default_scope')
    library, _, name = kind.rpartition('.')
    for host in (kind, *([f'vitplug.{name}'] if library in ('', *LIBRARIES) else [])):
        found = registered(MODELS, host, scope)
        bases = inspect.getmro(found) if inspect.isclass(found) else ()
        if any('plugs' in inspect.signature(base.__init__).parameters for base in bases):
            backbone['type'] = host
            return
    if required:
        raise ValueError(
            f'{cfg.filename}: its backbone {backbone.get("type")!r} takes no plugs, and vitplug has no host for it: '
            'name a config with one of the hosts of docs/hosts.md, or write your own (docs/your_host.md)'
        )


def _check_key(cfg: Config, key: str) -> None:
    """Checks the dotted name of a setting of the command line, such as ``'param_scheduler.1.end'``.

    Raises:
        ValueError: If nothing reads its first part, such as a helper, which the config has used already; or if a part
            is not in the config and nearly one that is.
    """
    first, *parts = key.split('.')
    if first not in READ:
        raise ValueError(f'--cfg-options {key}: nothing reads {first!r} after {cfg.filename}{hint(first, READ)}')
    node, place = cfg._cfg_dict.get(first), first
    for part in parts:
        entries = dict(children(node, ''))
        if part not in entries:
            if near := hint(part, entries, CLOSE):
                raise ValueError(f'--cfg-options {key}: {cfg.filename} has no {part!r} in {place}{near}')
            return
        node, place = entries[part], f'{place}.{part}'


def _check_slips(cfg: Config) -> None:
    """Checks the names of a config's outermost level, and in dicts whose entries mmengine takes one by one.

    An argument that a class or a function does not take is Python's own error when it is called.

    Raises:
        ValueError: Names the setting that nothing reads, and the one that it nearly is.
    """
    for path, known in SCHEMAS.items():
        node = cfg._cfg_dict
        for part in filter(None, path.split('.')):
            node = node.get(part) if isinstance(node, Mapping) else None
        for place, _ in children(node, path):
            name = place.rpartition('.')[2]
            is_variant = any(name.startswith((f'{one}_', '_')) for one in known)
            near = '' if name in known or is_variant else hint(name, known - {'tta_pipeline'}, CLOSE)
            if near:
                raise ValueError(f'{cfg.filename}: {place}: nothing reads it{near}')
