"""The registries of scope ``vitplug``.

This module imports only mmengine. mmengine imports it when a config names ``vitplug.X``, and hides
any ImportError: a missing package would be reported as "X is not in the registry".
"""

from mmengine.config.utils import MODULE2PACKAGE
from mmengine.registry import HOOKS as MMENGINE_HOOKS
from mmengine.registry import MODELS as MMENGINE_MODELS
from mmengine.registry import OPTIM_WRAPPER_CONSTRUCTORS as MMENGINE_OPTIM_WRAPPER_CONSTRUCTORS
from mmengine.registry import STRATEGIES as MMENGINE_STRATEGIES
from mmengine.registry import TRANSFORMS as MMENGINE_TRANSFORMS
from mmengine.registry import WEIGHT_INITIALIZERS as MMENGINE_WEIGHT_INITIALIZERS
from mmengine.registry import Registry

MODELS = Registry(
    'model',
    parent=MMENGINE_MODELS,
    scope='vitplug',
    locations=['vitplug.backbones', 'vitplug.models'],
)
PLUGS = Registry('plug', scope='vitplug', locations=['vitplug.plugs.register'])
OPTIM_WRAPPER_CONSTRUCTORS = Registry(
    'optimizer wrapper constructor',
    parent=MMENGINE_OPTIM_WRAPPER_CONSTRUCTORS,
    scope='vitplug',
    locations=['vitplug.runs.layer_decay'],
)
WEIGHT_INITIALIZERS = Registry(
    'weight initializer',
    parent=MMENGINE_WEIGHT_INITIALIZERS,
    scope='vitplug',
    locations=['vitplug.checkpoints'],
)
TRANSFORMS = Registry(
    'transform',
    parent=MMENGINE_TRANSFORMS,
    scope='vitplug',
    locations=['vitplug.datasets.token_labels'],
)
STRATEGIES = Registry('strategy', parent=MMENGINE_STRATEGIES, scope='vitplug', locations=['vitplug.runs.sharding'])
HOOKS = Registry('hook', parent=MMENGINE_HOOKS, scope='vitplug', locations=['vitplug.runs.hooks'])

# mmengine's table of packages by config prefix. `vitplug::...` names vitplug's configs. `mmseg::...` is found by its
# module name, because its distribution has several names (mmsegmentation, onedl-mmsegmentation).
MODULE2PACKAGE.update(vitplug='vitplug', mmseg='mmseg')
