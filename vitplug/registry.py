"""The registries of scope ``vitplug``, and mmengine's configs, which find their bases by name from here on.

This module imports only mmengine. mmengine imports it when a config names ``vitplug.X``, and hides
any ImportError: a missing package would be reported as "X is not in the registry".
"""

from mmengine import registry
from mmengine.config import Config
from mmengine.config.utils import MODULE2PACKAGE
from mmengine.registry import Registry

from .files.config_paths import find_by_name


def _child(parent: Registry, *locations: str) -> Registry:
    """A registry below one of mmengine's, filled by the modules of its locations."""
    return Registry(parent.name, parent=parent, scope='vitplug', locations=list(locations))


MODELS = _child(registry.MODELS, 'vitplug.backbones', 'vitplug.models')
PLUGS = Registry('plug', scope='vitplug', locations=['vitplug.registered'])
OPTIM_WRAPPER_CONSTRUCTORS = _child(registry.OPTIM_WRAPPER_CONSTRUCTORS, 'vitplug.runs.layer_decay')
WEIGHT_INITIALIZERS = _child(registry.WEIGHT_INITIALIZERS, 'vitplug.checkpoints')
TRANSFORMS = _child(registry.TRANSFORMS, 'vitplug.datasets.token_labels')
STRATEGIES = _child(registry.STRATEGIES, 'vitplug.runs.sharding')
HOOKS = _child(registry.HOOKS, 'vitplug.runs.hooks')

# mmengine's table of packages by config prefix. `vitplug::...` names vitplug's configs. `mmseg::...` is found by its
# module name, because its distribution has several names (mmsegmentation, onedl-mmsegmentation).
MODULE2PACKAGE.update(vitplug='vitplug', mmseg='mmseg')
find_by_name(Config)
