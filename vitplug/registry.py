"""The registries of scope ``vitplug``.

Nothing but mmengine is imported here: mmengine imports this module by itself when a config
names ``vitplug.X`` and hides any ImportError it meets, so a missing package would otherwise
show up as "X is not in the registry".
"""

from mmengine.registry import MODELS as MMENGINE_MODELS
from mmengine.registry import Registry

MODELS = Registry('model', parent=MMENGINE_MODELS, scope='vitplug', locations=['vitplug.backbones'])
PLUGS = Registry('plug', scope='vitplug', locations=['vitplug.plugs.register'])
