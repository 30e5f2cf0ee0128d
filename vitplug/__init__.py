"""vitplug: five papers' attention changes as plugs for OpenMMLab backbones.

- ``vitplug.plugs``      a file or a folder per paper (torch only)
- ``vitplug.attention``  the one place that computes attention (torch only)
- ``vitplug.hosting``    plugs on any model of torch: the loop over blocks, branches, maps (torch only)
- ``vitplug.adapters``   plugs in models of timm, of Hugging Face, of your own (torch only)
- ``vitplug.backbones``  the registered hosts, built by configs as ``type='vitplug.<Name>'``

The names in ``__all__`` are imported when they are first used: ``import vitplug`` alone imports the standard library
only. With ``vitplug.registry``, mmengine's ``Config.fromfile`` reads configs whose base is ``vitplug::...``.
"""

import sys
from importlib import import_module
from importlib.machinery import ModuleSpec
from importlib.util import spec_from_file_location
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .adapters import *  # noqa: F403
    from .attention import *  # noqa: F403
    from .backbones import *  # noqa: F403
    from .checkpoints import *  # noqa: F403
    from .lab.microscope.adapted import microscope  # noqa: F401
    from .plugs import *  # noqa: F403

__version__ = '0.1.0'

# Public names, by the part of the package that has them.
_NAMES = {
    'adapters': ('host_of', 'intermediates', 'load_plugs', 'plug_in', 'unplug'),
    'attention': ('attend', 'fused_attention'),
    'backbones': (
        *('VisionTransformer', 'DistilledVisionTransformer', 'FoundationTransformer', 'SwinTransformer'),
        *('SwinTransformerV2', 'MViT', 'T2T_ViT', 'PoolingVisionTransformer', 'MlpMixer', 'LVT'),
    ),
    'checkpoints': ('load_pretrained',),
    'lab.microscope.adapted': ('microscope',),
    'plugs': (
        *('ContextBroadcast', 'SqueezeExcite', 'UniformHead', 'RelPosBias', 'RelPosMlp'),
        *('GaussianAttentionBias', 'ResidualAttention', 'BroadAttention', 'Refiner'),
    ),
}
_PACKAGES = {name: package for package, names in _NAMES.items() for name in names}
__all__ = [*_PACKAGES]


def __getattr__(name: str) -> Any:
    if name not in _PACKAGES:
        raise AttributeError(f'module {__name__!r} has no attribute {name!r}')
    value = globals()[name] = getattr(import_module(f'vitplug.{_PACKAGES[name]}'), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


class OpsFinder:
    """Finds `mmcv._ext` in :mod:`vitplug.ops`. The last of Python's finders: it is asked where mmcv came without ops.

    An installed vitplug has a `.pth` file (`setup.py`), by which Python imports this package where `mmcv._ext` is not
    found, so that it also helps programs which import mmdet first.
    """

    @staticmethod
    def find_spec(name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        """As Python calls it for each module that no other finder has found."""
        return spec_from_file_location(name, Path(__file__).with_name('ops.py')) if name == 'mmcv._ext' else None


sys.meta_path.append(OpsFinder)
