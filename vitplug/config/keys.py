"""Slips in the names of settings, which mmengine would overlook: a default would stay in force without a word."""

import inspect
import re
from collections.abc import Collection, Mapping
from contextlib import suppress
from importlib import import_module

from mmengine import registry
from mmengine.config import Config
from mmengine.registry import Registry, init_default_scope
from mmengine.runner import Runner
from mmengine.runner.utils import set_random_seed

from vitplug.registry import PLUGS
from vitplug.spelling import hint

from .parts import defaults_of, registered

# The registries in which the class of a part of a config can be.
REGISTRIES = [value for value in vars(registry).values() if isinstance(value, Registry)]
# The names that mmengine or vitplug reads: on a config's outermost level, and in dicts of which no class is built.
READ = frozenset(inspect.signature(Runner.__init__).parameters) - {'self', 'cfg'} | {
    *('compile', 'custom_imports', 'find_unused_parameters', 'model_wrapper_cfg', 'runner_type', 'strategy', 'sync_bn'),
    *('tta_model', 'tta_pipeline', 'data_help', '_base_', 'env_cfg', 'detect_anomalous_params', 'fp16', 'models'),
}
SCHEMAS = {
    'auto_scale_lr': {'enable', 'base_batch_size'},
    'env_cfg': {'cudnn_benchmark', 'mp_cfg', 'dist_cfg', 'resource_limit'},
    'optim_wrapper.paramwise_cfg': {
        *('custom_keys', 'bias_lr_mult', 'bias_decay_mult', 'norm_decay_mult', 'flat_decay_mult', 'dwconv_decay_mult'),
        *('dcn_offset_lr_mult', 'bypass_duplicate', 'layer_decay_rate', 'num_layers', 'decay_rate', 'decay_type'),
        'force_default_settings',
    },
    'randomness': set(inspect.signature(set_random_seed).parameters),
    'train_cfg': {'type', 'by_epoch', 'max_epochs', 'max_iters', 'val_begin', 'val_interval', 'dynamic_intervals'},
}
# Arguments that no config gives.
_GIVEN_BY_MMENGINE = ('self', 'args', 'kwargs', 'params')
# The place of a plug.
PLUG = re.compile(r'\.plugs\.\d+$')
# A name so close to another one is a slip of it.
CLOSE = 0.85


def check_key(cfg: Config, key: str, source: str) -> None:
    """Checks the dotted name of a setting: the config must have it, or the class of the part take it.

    Args:
        cfg: The config.
        key: The name; indices stand for entries of lists, as in ``param_scheduler.1.end``.
        source: Where it was given, for the error.

    Raises:
        ValueError: If nothing reads the setting; names close ones.
    """
    node, path = cfg._cfg_dict, ''
    for part in key.split('.'):
        known, accepted = _children(node), _accepted(node, cfg, path)
        if part not in known:
            takes_it = not hint(part, known, CLOSE) if accepted is None else part in accepted
            if takes_it:
                return
            names = sorted({*known, *(accepted or ())})
            advice = hint(part, names) or f'; there are {", ".join(names[:20]) or "none"}'
            raise ValueError(f'{source}{key}: {cfg.filename} has no {part!r} in {path or "it"}{advice}')
        if not path and part not in READ:
            raise ValueError(
                f'{source}{key}: {part} is a helper of {cfg.filename}, which has been read with its value; '
                'name the settings that it gave'
            )
        node, path = known[part], f'{path}.{part}' if path else part


def _children(node) -> Mapping[str, object]:
    if isinstance(node, Mapping):
        return dict(node)
    return {str(index): child for index, child in enumerate(node)} if isinstance(node, list | tuple) else {}


def _accepted(node, cfg: Config, place: str) -> Collection[str] | None:
    """Names that a part takes beside those it has; None where that is not known."""
    if not isinstance(node, Mapping):
        return ()
    if not place:
        return READ
    if 'type' not in node:
        return SCHEMAS.get(place)
    if PLUG.search(place):
        return arguments_of(registered(PLUGS, node['type'], PLUGS.scope))
    return settings_of_class(node, cfg.get('default_scope'))


def settings_of_class(part: Mapping, scope: str | None) -> list[str]:
    """The arguments of the class that a part of a config names; none where there is no such class."""
    if 'type' not in part:
        return []
    if scope:
        init_default_scope(scope)
        with suppress(ImportError):  # a scope's registries are there once its library is imported
            import_module(f'{scope}.registry')
    classes = (registered(one, part['type'], scope) for one in REGISTRIES if scope in one.children)
    return arguments_of(next((one for one in classes if one is not None), None))


def arguments_of(kind) -> list[str]:
    """The arguments that a class takes from a config; none where it is no class."""
    names = [*inspect.signature(kind.__init__).parameters, *defaults_of(kind)] if inspect.isclass(kind) else []
    names += getattr(kind.__init__, 'arguments_of_others', ())
    return [name for name in names if name not in _GIVEN_BY_MMENGINE]


def check_slips(cfg: Config) -> None:
    """Checks the names of a config's outermost level, and in dicts whose entries mmengine takes one by one.

    Raises:
        ValueError: Names the setting that nothing reads, and the one that it nearly is.
    """
    for path, known in {'': READ, **SCHEMAS}.items():
        node = cfg._cfg_dict
        for part in filter(None, path.split('.')):
            node = node.get(part) if isinstance(node, Mapping) else None
        for name in node if isinstance(node, Mapping) and 'type' not in node else ():
            is_variant = any(name.startswith((f'{one}_', '_')) for one in known)
            near = '' if name in known or is_variant else hint(name, known - {'tta_pipeline'}, CLOSE)
            if near:
                raise ValueError(f'{cfg.filename}: {path}{"." if path else ""}{name}: nothing reads it{near}')
