"""Configs that come with a package, by names such as `mmdet::swin/mask-rcnn_swin-t-p4-w7_fpn_1x_coco.py`."""

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


def find_by_name(config: type) -> None:
    """Lets mmengine's ``Config.fromfile`` find bases `library::path` where the packages are imported from.

    mmengine itself looks for a package beside its metadata, where an editable install is not, and needs files that a
    checkout lacks. It also marks the parts of a base with the scope of its package; the parts of a task are not
    registered in vitplug's. ``config`` is mmengine's class: the set-up and the doctor run where it is not installed.
    """
    found_by_mmengine = config._get_cfg_path

    def found(path: str, filename: str) -> tuple[str, str | None]:
        library = path.partition('::')[0]
        if '::' not in path or library not in LIBRARIES:
            return found_by_mmengine(path, filename)
        return config_file(path), None if library == 'vitplug' else library

    config._get_cfg_path = staticmethod(found)
