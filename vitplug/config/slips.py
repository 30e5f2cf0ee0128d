"""Slips in the names of settings, which mmengine would overlook: a default would stay in force without a word.

An argument that a class or a function does not take is Python's own error when it is called.
"""

import inspect
from collections.abc import Mapping

from mmengine.config import Config
from mmengine.runner import Runner

from vitplug.spelling import hint

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
}
# A name so close to another one is a slip of it.
CLOSE = 0.85


def check_key(cfg: Config, key: str, source: str) -> None:
    """Checks the dotted name of a setting, such as ``'param_scheduler.1.end'``, which was given in ``source``.

    Raises:
        ValueError: If nothing reads its first part, such as a helper, which the config has used already; or if a part
            is not in the config and nearly one that is.
    """
    first, *parts = key.split('.')
    if first not in READ:
        raise ValueError(f'{source}{key}: nothing reads {first!r} after {cfg.filename}{hint(first, READ)}')
    node, place = cfg._cfg_dict.get(first), first
    for part in parts:
        node = node if isinstance(node, Mapping) else {str(i): child for i, child in enumerate(node or ())}
        if part not in node:
            if near := hint(part, node, CLOSE):
                raise ValueError(f'{source}{key}: {cfg.filename} has no {part!r} in {place}{near}')
            return
        node, place = node[part], f'{place}.{part}'


def check_slips(cfg: Config) -> None:
    """Checks the names of a config's outermost level, and in dicts whose entries mmengine takes one by one.

    Raises:
        ValueError: Names the setting that nothing reads, and the one that it nearly is.
    """
    for path, known in {'': READ, **SCHEMAS}.items():
        node = cfg._cfg_dict
        for part in filter(None, path.split('.')):
            node = node.get(part) if isinstance(node, Mapping) else None
        for name in node if isinstance(node, Mapping) else ():
            is_variant = any(name.startswith((f'{one}_', '_')) for one in known)
            near = '' if name in known or is_variant else hint(name, known - {'tta_pipeline'}, CLOSE)
            if near:
                raise ValueError(f'{cfg.filename}: {path}{"." if path else ""}{name}: nothing reads it{near}')
