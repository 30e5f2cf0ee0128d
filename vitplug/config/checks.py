"""Checks of a config as a whole: the kinds of its parts, the code and the files that it names."""

import inspect
import os

from mmengine.utils import get_object_from_string

from vitplug.files.limits import check_regular
from vitplug.files.readers import UNSAFE
from vitplug.registry import PLUGS

from .parts import as_list, strings_in

# Parts that mmengine takes as a dict, or as None where they are not used.
PARTS = (
    'model',
    *(f'{split}_{part}' for split in ('train', 'val', 'test') for part in ('cfg', 'dataloader')),
    'optim_wrapper',
    'default_hooks',
    'env_cfg',
    'visualizer',
    'data_help',
)
# Parts that read files which they name.
PARTS_THAT_READ = (
    'model',
    *(f'{split}_{part}' for split in ('train', 'val', 'test') for part in ('dataloader', 'evaluator')),
    'default_hooks',
    'custom_hooks',
)
# Nested deeper than any config of the libraries.
MOST_LEVELS = 32
# Files that mmengine reads with loaders that build any object.
RUN_WHEN_READ = ('.pkl', '.pickle', '.yaml', '.yml')
# Settings with files that are written, or read as checkpoints.
NOT_READ_AS_DATA = ('out_file_path', 'checkpoint', 'pretrained')
# Settings whose files are read with `pickle` whatever their names: of mmseg's transforms and mmpretrain's RAM.
PICKLED_IMAGES = ('decode_backend', 'pickle')
PICKLED_LISTS = ('tag_list', 'tag_list_chinese')
# Packages whose classes a config may name by their path.
PACKAGES = ('vitplug', 'mmengine', 'mmcv', 'mmpretrain', 'mmseg', 'mmdet', 'torch', 'torchvision', 'timm')


def check_parts(cfg) -> None:
    """Checks the kinds of a config's main parts.

    Raises:
        ValueError: names the part, what it is and what is expected.
    """
    for name in PARTS:
        part = cfg.get(name)
        if part is not None and not isinstance(part, dict):
            raise ValueError(f'{name} = {part!r}: expected a dict')
        if name.endswith('_dataloader') and part is not None and not isinstance(part.get('dataset'), dict):
            raise ValueError(f'{name}.dataset = {part.get("dataset")!r}: expected a dict with the type of a data set')


def check_types(node, path: str = '', imports: tuple[str, ...] | None = None) -> None:
    """Checks that every class in a config is of the packages that trainings use.

    mmengine takes ``type='os.system'`` as a part to be built, and calls it. Packages of one's own are named in
    ``custom_imports``.

    Raises:
        ValueError: names the setting, the module and what to do.
    """
    if imports is None:
        named = as_list((node.get('custom_imports') or {}).get('imports'))
        imports = tuple(str(module).partition('.')[0] for module in named)
    for key, child in node.items() if isinstance(node, dict) else enumerate(node):
        where = f'{path}.{key}' if path else str(key)
        if key == 'type' and isinstance(child, str) and not child.strip():
            raise ValueError(f'{where} = {child!r}: expected the name of a class')
        if key == 'type' and isinstance(child, str) and not _is_part(child, (*PACKAGES, *imports)):
            raise ValueError(
                f'{where} = {child!r}: no class of {", ".join(PACKAGES)}; if you mean and trust it, name its module in '
                'custom_imports = dict(imports=[...])'
            )
        if isinstance(child, dict | list | tuple):
            check_types(child, where, imports)


def check_places_of_plugs(node, path: str) -> None:
    """Checks that no plug stands where a model, or a part of one, should.

    mmengine finds what `import vitplug` gives by names such as ``'vitplug.Refiner'``, plugs among them, and builds it.

    Raises:
        ValueError: names the setting, the plug and its place.
    """
    for setting, value in strings_in(node, path):
        scope, _, name = value.rpartition('.')
        *_, parent, key = (part for part in setting.split('.') if not part.isdecimal())
        if key == 'type' and parent != 'plugs' and scope == PLUGS.scope and _is_plug(name):
            raise ValueError(f'{setting} = {value!r}: a plug is no part of a model: name it in plugs of a backbone')


def _is_plug(name: str) -> bool:
    PLUGS.import_from_location()
    return name in PLUGS.module_dict


def check_depth(node) -> None:
    """Checks that settings are not nested deeper than any real ones.

    Writing a config takes mmengine (yapf) a time that grows with the square of its depth: half a minute at 90 levels.

    Raises:
        ValueError: names the outermost settings of the nest, its depth and what is allowed.
    """
    level, depth = [((), node)], 0
    while level := [
        ((*path, key), child)
        for path, parent in level
        for key, child in (parent.items() if isinstance(parent, dict) else enumerate(parent))
        if isinstance(child, dict | list | tuple)
    ]:
        depth += 1
        if depth > MOST_LEVELS:
            name = '.'.join(map(str, level[0][0][:4]))
            raise ValueError(f'{name}: settings are nested more than {MOST_LEVELS} levels deep here; name fewer levels')


def check_no_pickles(cfg) -> None:
    """Checks that model, data and metrics read no file that can hold code.

    Their readers refuse one as well (`vitplug.files.readers`), but know neither its name nor the setting.

    Raises:
        ValueError: names the setting, the file and what to do.
    """
    for part in PARTS_THAT_READ:
        for path, value in strings_in(cfg.get(part), part):
            key = path.rpartition('.')[2]
            if key in PICKLED_LISTS or (key, value) == PICKLED_IMAGES:
                raise ValueError(f'{path} = {value!r}: read as a pickle, which {UNSAFE}')
            if value.endswith(RUN_WHEN_READ) and key not in NOT_READ_AS_DATA:
                raise ValueError(f'{path} = {value!r}: a pickle or YAML file {UNSAFE}')


def check_no_special_files(node, path: str, root: str = '') -> None:
    """Checks that no setting names a pipe, a socket or a device, of which reading never ends.

    Args:
        node: A part of a config.
        path: Name of the part.
        root: Folder that relative paths start from.

    Raises:
        ValueError: names the setting, the file and its kind.
    """
    for setting, value in strings_in(node, path):
        try:
            check_regular(os.path.join(root, value))
        except ValueError as error:
            raise ValueError(f'{setting}: {error}') from error


def _is_part(name: str, packages: tuple[str, ...]) -> bool:
    """Whether a type is the name of a registered class, or the path of a class."""
    if '.' not in name:
        return True
    if name.partition('.')[0] not in packages:
        return False
    target = get_object_from_string(name)
    # A module of theirs also gives access to the modules that it imports.
    home = getattr(target, '__module__', None) or ''
    is_class = inspect.isclass(target) and home.partition('.')[0] in packages
    return target is None or is_class or home.startswith('torch.distributed.fsdp.')
