"""Configs that come with a package, by names such as `mmdet::swin/mask-rcnn_swin-t-p4-w7_fpn_1x_coco.py`."""

from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

LIBRARIES = ('mmpretrain', 'mmdet', 'mmseg', 'vitplug')


def configs_folder(library: str) -> Path:
    """The folder with the configs of an installed package.

    Raises:
        FileNotFoundError: If the package is not installed, or came without its configs.
    """
    spec = find_spec(library)
    if spec is None:
        raise FileNotFoundError(f'{library} is not installed, so there are no configs {library}::...')
    package = Path(spec.origin).parent
    # In an installed package, then in a clone.
    for folder in (package / '.mim' / 'configs', package.parent / 'configs'):
        if folder.is_dir():
            return folder
    raise FileNotFoundError(f'{library} came without configs: there are none in {package} or beside it; name a path')


def config_file(name: str) -> str:
    """The path of a config: itself, or that of `library::path`.

    Raises:
        ValueError: If the library is unknown.
        FileNotFoundError: As :func:`configs_folder`.
    """
    library, separator, path = name.partition('::')
    if not separator:
        return name
    if library not in LIBRARIES:
        raise ValueError(f'{name}: configs of {library!r} are not known by name; known are {", ".join(LIBRARIES)}')
    return str(configs_folder(library) / path)


@contextmanager
def packages_where_imported() -> Iterator[None]:
    """Lets mmengine read `library::path` of an editable install, in `_base_` as well.

    Upstream's mmengine looks for the package beside its metadata in site-packages, where such an install is not.
    """
    # Not above: the set-up and the doctor look for configs where mmengine is not installed.
    module = import_module('mmengine.config.config')
    installed_path = module.get_installed_path

    def imported_path(package: str) -> str:
        path = Path(installed_path(package))
        spec = None if path.is_dir() else find_spec(path.name)
        return str(Path(spec.origin).parent if spec else path)

    module.get_installed_path = imported_path
    try:
        yield
    finally:
        module.get_installed_path = installed_path
