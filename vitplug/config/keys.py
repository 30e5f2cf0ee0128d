"""Names in a config: those that something reads, and slips, which would leave a default in force without a word."""

import ast
import inspect
import re
from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from importlib import import_module
from pathlib import Path

from mmengine import registry
from mmengine.config import Config
from mmengine.registry import Registry, init_default_scope
from mmengine.runner import Runner
from mmengine.runner.utils import set_random_seed
from mmengine.utils.dl_utils import set_multi_processing

from vitplug.registry import PLUGS
from vitplug.spelling import hint

from .parts import defaults_of, registered

# The registries in which the class of a part of a config can be.
REGISTRIES = [value for value in vars(registry).values() if isinstance(value, Registry)]
# The names of a config's outermost level that mmengine or vitplug reads.
READ = frozenset(inspect.signature(Runner.__init__).parameters) - {'self', 'cfg'} | {
    *('compile', 'custom_imports', 'find_unused_parameters', 'model_wrapper_cfg', 'runner_type', 'strategy', 'sync_bn'),
    *('tta_model', 'tta_pipeline', 'data_help', '_base_', 'env_cfg', 'detect_anomalous_params', 'fp16'),
}
# What mmengine takes out of dicts of which it builds no class, by their places.
_LOOP = {'type', 'by_epoch', 'max_epochs', 'max_iters', 'val_begin', 'val_interval', 'dynamic_intervals'}
_PARAMWISE = {
    *('custom_keys', 'bias_lr_mult', 'bias_decay_mult', 'norm_decay_mult', 'flat_decay_mult', 'dwconv_decay_mult'),
    *('dcn_offset_lr_mult', 'bypass_duplicate', 'layer_decay_rate', 'num_layers', 'decay_rate', 'decay_type'),
    'force_default_settings',
}
SCHEMAS = {
    'auto_scale_lr': {'enable', 'base_batch_size'},
    'env_cfg': {'cudnn_benchmark', 'mp_cfg', 'dist_cfg', 'resource_limit'},
    'env_cfg.mp_cfg': set(inspect.signature(set_multi_processing).parameters),
    'optim_wrapper.paramwise_cfg': _PARAMWISE,
    'randomness': set(inspect.signature(set_random_seed).parameters),
    'train_cfg': _LOOP,
}
# Arguments that no config gives.
_GIVEN_BY_MMENGINE = ('self', 'args', 'kwargs', 'params')
# The place of a plug.
PLUG = re.compile(r'\.plugs\.\d+$')
# A name so close to another one is a slip of it.
CLOSE = 0.8


# --- settings of grids and command lines ---


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
            if not names:
                raise ValueError(f'{source}{key}: {path} = {node!r} has no settings of its own')
            advice = hint(part, names) or f'; there are {", ".join(names[:20])}'
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
    if place in SCHEMAS and 'type' not in node:
        return SCHEMAS[place]
    if 'type' not in node:
        return None
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
    kind = next((one for one in classes if one is not None), None)
    return arguments_of(kind)


def arguments_of(kind) -> list[str]:
    """The arguments that a class takes from a config; none where it is no class."""
    names = [*inspect.signature(kind.__init__).parameters, *defaults_of(kind)] if inspect.isclass(kind) else []
    names += getattr(kind.__init__, 'arguments_of_others', ())
    return [name for name in names if name not in _GIVEN_BY_MMENGINE]


# --- config files ---


def check_schemas(cfg: Config) -> None:
    """Checks the dicts whose entries mmengine takes one by one, so that it would overlook another name.

    Raises:
        ValueError: names the setting, and the nearest name or all.
    """
    for path, known in SCHEMAS.items():
        node = cfg._cfg_dict
        for part in path.split('.'):
            node = node.get(part) if isinstance(node, Mapping) else None
        for name in node if isinstance(node, Mapping) and 'type' not in node else ():
            if name not in known and not name.startswith('_'):  # mmpretrain has a note there
                advice = hint(name, known) or f'; there are {", ".join(sorted(known))}'
                raise ValueError(f'{path}.{name}: nothing reads it{advice}')
    hooks = cfg.get('default_hooks') or {}
    for name, hook in hooks.items():
        if isinstance(hook, Mapping) and 'type' not in hook:
            others = [other for other in hooks if other != name]
            advice = hint(name, others) or f'; there are {", ".join(others)}'
            raise ValueError(f'default_hooks.{name} has no type, and the config inherits no hook of this name{advice}')


def check_names(path: str, is_base: bool = False) -> None:
    """Checks that mmengine, vitplug or the file itself reads every name that a config file assigns.

    Names of a base may be for its children, and those of a file that neither has a base nor uses a name of its own, as
    mmengine writes them, were read before: of these, only what nearly is a missing name of :data:`READ` is refused.
    Names that begin with an underscore are notes.

    Args:
        path: The file; bases that come with a library, and files of other formats than Python, are not checked.
        is_base: Whether others inherit from it.

    Raises:
        ValueError: names the file and the name, and what it may be meant to be.
    """
    tree = _parse(path)
    if tree is None:
        return
    assigned, used = _assigned(tree), _used(tree)
    may_be_read = is_base or ('_base_' not in assigned and not used & assigned)
    for name in sorted(assigned - used - READ):
        near = hint(name, READ - assigned - {'tta_pipeline'}, CLOSE)
        if not name.startswith('_') and (near or not may_be_read):
            raise ValueError(
                f'{path}: {name}: nothing reads it{near}; to keep it as a note, let its name begin with an underscore'
            )
    for base in _bases(tree, path):
        check_names(base, is_base=True)


def _parse(path: str) -> ast.Module | None:
    if not path.endswith('.py'):
        return None
    try:
        return ast.parse(Path(path).read_text(encoding='utf-8'))
    except (OSError, SyntaxError, ValueError):
        return None  # mmengine says what is wrong with it


def _assigned(tree: ast.Module) -> set[str]:
    """The names that a file gives values on its outermost level, less those of modules and functions."""
    nodes = (node for statement in tree.body if isinstance(statement, _ASSIGNMENTS) for node in ast.walk(statement))
    return {node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}


_ASSIGNMENTS = ast.Assign | ast.AnnAssign | ast.AugAssign


def _used(tree: ast.Module) -> set[str]:
    return {node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)}


def _bases(tree: ast.Module, path: str) -> Iterator[str]:
    """The files that a config inherits from, but for those of libraries."""
    for statement in tree.body:
        if isinstance(statement, ast.Assign) and _assigned(ast.Module([statement], [])) == {'_base_'}:
            try:
                bases = ast.literal_eval(statement.value)
            except ValueError:
                return  # an expression, which mmengine refuses
            for base in [bases] if isinstance(bases, str) else bases:
                if '::' not in base:
                    yield str(Path(path).parent / base)
