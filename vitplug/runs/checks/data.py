"""Checks made before anything is built or written; each raises an error that says what to do.

They use files and settings only, so that a wrong path costs a second and leaves no trace.
"""

import difflib
import importlib
import inspect
import json
import os
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from mmengine.device import get_device
from mmengine.registry import DATASETS, OPTIMIZERS
from mmengine.utils import get_object_from_string

from vitplug.doctor import build_ops, install_packages

from .class_counts import class_complaints
from .classes import Classes, check_categories, class_folders, counts_categories, match_folders, named_classes
from .config_parts import as_list, defaults_of, loader_leaves, registered, strings_in
from .folders import files_below
from .limits import MAX_PIXELS, check_regular, coco_complaints
from .safe_files import UNSAFE

TASK_SCOPES = {'mmpretrain': 'classification', 'mmseg': 'segmentation', 'mmdet': 'detection'}
NEEDS_OPS = ('mmseg', 'mmdet')
SHOWN_EXAMPLES = 3
INFINITE = int(1e9)  # what mmengine's schedules have for no end

# The variables through which each launcher tells a process its rank, the world size and its local rank.
LAUNCHER_VARIABLES = {
    'pytorch': ('RANK', 'WORLD_SIZE', 'LOCAL_RANK'),
    'slurm': ('SLURM_PROCID', 'SLURM_NTASKS', 'SLURM_LOCALID'),
    'mpi': ('OMPI_COMM_WORLD_RANK', 'OMPI_COMM_WORLD_SIZE', 'OMPI_COMM_WORLD_LOCAL_RANK'),
}


def check_training(cfg) -> list[str]:
    """Checks a merged config before a training.

    Returns:
        Remarks for the log.

    Raises:
        ValueError, OSError or ImportError: as the single checks below say.
    """
    check_scope(cfg)
    check_optimizer(cfg)
    check_amp(cfg)
    check_launcher(cfg.launcher)
    check_weights(cfg.get('load_from'), option='--resume' if cfg.get('resume') else 'load_from')
    check_writable(cfg.work_dir)
    check_no_special_files(cfg.get('model'), 'model')
    return [*check_data(cfg, splits=('train', 'val')), *long_schedules(cfg)]


def check_testing(cfg) -> list[str]:
    """Checks a merged config before a test.

    Returns:
        Remarks for the log.

    Raises:
        ValueError, OSError or ImportError: as the single checks below say.
    """
    check_scope(cfg)
    check_launcher(cfg.launcher)
    check_weights(cfg.load_from, option='CHECKPOINT')
    check_no_special_files(cfg.get('model'), 'model')
    return check_data(cfg, splits=('test',))


# --- files named on the command line ---


def check_config_file(path: str) -> None:
    """Checks that a config file exists.

    Raises:
        FileNotFoundError: names the path and close matches in its folder.
    """
    if not Path(path).is_file():
        raise FileNotFoundError(f'no such config: {path}{_close_matches(Path(path), "*.py")}')


def check_weights(path: str | None, option: str) -> None:
    """Checks that a checkpoint exists; an address (`https://...`) is left to mmengine.

    Raises:
        FileNotFoundError: names the option, the path and close matches in its folder.
        ValueError: if it is no regular file but, say, a folder or a pipe.
    """
    if path is None or _is_remote(path) or Path(path).is_file():
        return
    if Path(path).is_dir():
        raise ValueError(f'{option}: {path} is a folder: name a checkpoint{_newest_in(Path(path))}')
    if Path(path).exists():
        raise ValueError(f'{option}: {path} is a pipe or a device: expected a regular file')
    raise FileNotFoundError(f'{option}: no such checkpoint: {path}{_close_matches(Path(path), "*.pth")}')


def _newest_in(folder: Path) -> str:
    """The newest checkpoint of a folder, for a message."""
    files = sorted(folder.glob('*.pth'), key=lambda file: file.stat().st_mtime)
    return f', such as {files[-1]}' if files else '; there is none in this folder'


def check_results_file(path: str | None) -> None:
    """Checks the file that predictions go to.

    Raises:
        ValueError: if the name does not end in .pkl or .pickle.
        FileExistsError: if there is a file, or a link, of this name.
    """
    if path is not None:
        check_new_file(path, '--out', ('.pkl', '.pickle'))


def check_new_file(path: str | Path, option: str, suffixes: tuple[str, ...]) -> None:
    """Checks the name of a file that is to be written.

    Raises:
        ValueError: if it has another suffix than these.
        FileExistsError: if there is a file, or a link, of this name.
    """
    if not str(path).endswith(suffixes):
        raise ValueError(f'{option}: {path} must end in {" or ".join(suffixes)}')
    if os.path.lexists(path):
        raise FileExistsError(f'{option}: {path} exists and is not overwritten: choose another name')


def check_pictures_folder(path: str | None, option: str = '--show-dir') -> None:
    """Checks the folder that pictures of predictions go to.

    Raises:
        FileExistsError: if it holds files, which pictures could overwrite.
    """
    if path is not None and os.path.lexists(path) and not (os.path.isdir(path) and not os.listdir(path)):
        raise FileExistsError(f'{option}: {path} must be a new or an empty folder: choose another one')


def check_temporary_folder() -> None:
    """Checks that there is a folder for temporary files, into which mmengine copies configs.

    Raises:
        FileNotFoundError: if none can be written into.
    """
    try:
        tempfile.gettempdir()
    except FileNotFoundError as error:
        raise FileNotFoundError(
            f'{error.strerror}: make room or make one writable, or set TMPDIR to a folder that is'
        ) from error


def check_writable(work_dir: str) -> None:
    """Checks that a training can write into its folder, or make it.

    Raises:
        PermissionError or NotADirectoryError: names the folder or file that is in the way.
    """
    folder = Path(work_dir).absolute()
    existing = next(path for path in (folder, *folder.parents) if path.exists())
    if not existing.is_dir():
        raise NotADirectoryError(f'--work-dir: {existing} is a file, not a folder: choose another --work-dir')
    if not os.access(existing, os.W_OK | os.X_OK):
        raise PermissionError(f'--work-dir: cannot write into {existing}: choose another --work-dir')


# --- the config as a whole ---

# What mmengine takes as a dict, or as None where it is not used.
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


def check_option_names(cfg, options: dict) -> None:
    """Checks that no setting of the command line only nearly has the name of a part, which would have no effect.

    Raises:
        ValueError: names the setting and the part.
    """
    for option in options:
        name = option.partition('.')[0]
        close = difflib.get_close_matches(name, cfg.keys(), n=1, cutoff=0.8)
        if name not in cfg and name not in PARTS and close:
            raise ValueError(f'--cfg-options {option}: the config has no {name!r}; did you mean {close[0]!r}?')


def check_types(node, path: str = '', imports: tuple[str, ...] | None = None) -> None:
    """Checks that no part of a config names code outside of the packages a training is made of.

    mmengine takes ``type='os.system'`` as a part to be built, and calls it. Packages of one's own are named in
    ``custom_imports``.

    Raises:
        ValueError: names the setting, the module and what to do.
    """
    if imports is None:
        named = as_list((node.get('custom_imports') or {}).get('imports'))
        imports = tuple(str(module).partition('.')[0] for module in named)
    for key, child in node.items() if isinstance(node, dict) else enumerate(node):
        here = f'{path}.{key}' if path else str(key)
        if key == 'type' and isinstance(child, str) and not _is_part(child, (*PACKAGES, *imports)):
            raise ValueError(
                f'{here} = {child!r}: no class of {", ".join(PACKAGES)}; if you mean and trust it, name its module in '
                'custom_imports = dict(imports=[...])'
            )
        if isinstance(child, dict | list | tuple):
            check_types(child, here, imports)


def check_depth(node, most: int = MOST_LEVELS) -> None:
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
        if depth > most:
            name = '.'.join(map(str, level[0][0][:4]))
            raise ValueError(f'{name}: settings are nested more than {most} levels deep here; name fewer levels')


def check_no_pickles(cfg) -> None:
    """Checks that model, data and metrics read no file that can hold code.

    Their readers refuse one as well (`vitplug.engine.safe_files`), but know neither its name nor the setting.

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
    found = get_object_from_string(name)
    # What a module of theirs has imported from elsewhere can be named through it.
    home = getattr(found, '__module__', None) or ''
    is_class = inspect.isclass(found) and home.partition('.')[0] in packages
    return found is None or is_class or home.startswith('torch.distributed.fsdp.')


# --- what is installed ---


def check_scope(cfg) -> None:
    """Checks that `default_scope` names an installed package, with compiled ops where its models need them.

    Raises:
        ValueError: if `default_scope` is missing or unknown.
        ImportError: if the package, or mmcv's ops, cannot be imported.
    """
    scope = cfg.get('default_scope')
    allowed = ', '.join(f'{name} ({task})' for name, task in TASK_SCOPES.items())
    if scope is None:
        raise ValueError(f'the config sets no default_scope: set it to one of {allowed}')
    if not isinstance(scope, str):
        raise ValueError(f'default_scope = {scope!r} is no name of a package: set it to one of {allowed}')
    try:
        importlib.import_module(scope)
    except ImportError as error:
        if scope not in TASK_SCOPES:
            raise ValueError(f'default_scope = {scope!r} is unknown: set it to one of {allowed}') from error
        raise ImportError(
            f'default_scope = {scope!r} cannot be imported ({error}): run make setup, or {install_packages()}'
        ) from error
    if scope in NEEDS_OPS:
        check_ops()


def check_ops() -> None:
    """Checks that mmcv came with its compiled ops, which it leaves out silently when it is built without torch.

    Raises:
        ImportError: says how to build them.
    """
    try:
        importlib.import_module('mmcv.ops')
    except ImportError as error:
        raise ImportError(f"mmcv's compiled ops do not load ({error}): run make setup, or {build_ops()}") from error


# Larger rates leave the range of float32 in an optimizer's step, which torch says without a name.
HIGHEST_RATE = 1e30


def check_optimizer(cfg) -> None:
    """Checks the type and the learning rate of the optimizer, which mmengine and torch name in no error.

    Raises:
        ValueError: if there is none of this name, or the rate is no number, negative or too large.
    """
    optimizer = (cfg.get('optim_wrapper') or {}).get('optimizer')
    if optimizer is None:
        return
    if not isinstance(optimizer, dict) or registered(OPTIMIZERS, optimizer.get('type'), cfg.default_scope) is None:
        raise ValueError(
            f'optim_wrapper.optimizer = {optimizer!r}: expected a dict with the type of an optimizer, such as AdamW'
        )
    rate = optimizer.get('lr', 0.0)
    if isinstance(rate, bool) or not isinstance(rate, int | float) or not 0 <= rate <= HIGHEST_RATE:
        raise ValueError(f'optim_wrapper.optimizer.lr = {rate!r}: expected a number from 0 to {HIGHEST_RATE:g}')


def long_schedules(cfg) -> list[str]:
    """Says which schedules go on after the end of the training, and so do not come to theirs."""
    loop = cfg.get('train_cfg') or {}
    lengths = {True: ('epochs', loop.get('max_epochs')), False: ('iterations', loop.get('max_iters'))}
    remarks = []
    for number, schedule in enumerate(as_list(cfg.get('param_scheduler'))):
        unit, length = lengths[bool(schedule.get('by_epoch', True))]
        end = schedule.get('end')
        if isinstance(end, int) and isinstance(length, int) and length < end < INFINITE:
            remarks.append(
                f'param_scheduler.{number} ({schedule.get("type")}) ends after {end} {unit}, the training after '
                f'{length}: set param_scheduler to schedules of this length, or train longer'
            )
    return remarks


# --- the machine ---


def check_amp(cfg) -> None:
    """Checks that automatic mixed precision has an accelerator to run on.

    Raises:
        ValueError: if it has none.
    """
    if cfg.get('optim_wrapper', {}).get('type') == 'AmpOptimWrapper' and get_device() in ('cpu', 'mps'):
        raise ValueError(
            f'mixed precision (--amp, AmpOptimWrapper) needs an accelerator, but the device here is {get_device()}: '
            'leave --amp out'
        )


def check_launcher(launcher: str) -> None:
    """Checks that the launcher that was asked for has started this process.

    Raises:
        ValueError: names the variables it should have set.
    """
    missing = [name for name in LAUNCHER_VARIABLES.get(launcher, ()) if name not in os.environ]
    if missing:
        raise ValueError(
            f'--launcher {launcher} needs the environment variables {", ".join(missing)}: '
            'start through tools/dist_train.sh, tools/dist_test.sh or tools/slurm_train.sh'
        )


# --- data ---


def check_data(cfg, splits: tuple[str, ...]) -> list[str]:
    """Checks the folders and annotation files behind the dataloaders and evaluators of some splits, and their classes.

    Returns:
        Remarks, such as which categories of a COCO file are left out.

    Raises:
        FileNotFoundError: if a folder or file is missing or empty.
        ValueError: if annotations are broken or do not match the images, if files lack classes, or if a setting counts
            other classes than the data has; names every such setting and what to set it to.
    """
    found, remarks = {}, []
    for split in splits:
        classes, said = check_split(cfg, split)
        found |= classes
        remarks += said
    complaints = list(class_complaints(cfg, found))
    if complaints:
        first = next(iter(found.values()))
        raise ValueError(f'the data has {len(first)} classes ({first}): {"; ".join(map(str, complaints))}')
    return remarks


def check_split(cfg, split: str) -> tuple[dict[str, Classes], list[str]]:
    """Checks the folders and annotation files behind the dataloader and the evaluators of a split.

    The config's `data_help` has the `root` of the data it is about, and the `command` that makes them. It ends messages
    about files of data sets and metrics below the root, so that a config that inherits it for data of its own is not
    told to make others.

    Returns:
        Classes of its data sets by their places, as far as they are known; and remarks.

    Raises:
        FileNotFoundError, ValueError: as `check_data` says.
    """
    found, remarks = {}, []
    for path, dataset in loader_leaves(cfg, split):
        with _help_for_missing(cfg, dataset):
            content = check_dataset(dataset, cfg.default_scope)
        classes, remark = check_classes(dataset, cfg.default_scope, path, content)
        found |= {path: classes} if classes else {}
        remarks += [remark] if remark else []
    for metric in as_list(cfg.get(f'{split}_evaluator')):
        with _help_for_missing(cfg, metric):
            content = check_evaluated(metric, max_pixels(cfg))
        for path, dataset in loader_leaves(cfg, split):
            counts = counts_categories(_dataset_class(dataset, cfg.default_scope))
            if counts and path in found and isinstance(content, Mapping) and 'categories' in content:
                check_categories(found[path], content, metric['ann_file'], path)
    return found, remarks


@contextmanager
def _help_for_missing(cfg, settings) -> Iterator[None]:
    """Ends a message about files with the command that makes them, if these are the data that it makes."""
    try:
        yield
    except (FileNotFoundError, ValueError) as error:
        made = cfg.get('data_help')
        if made is None or not any(
            Path(value).is_relative_to(made.get('root', '')) for _, value in strings_in(settings, '')
        ):
            raise
        raise type(error)(f'{error}; make the data with: {made["command"]}') from error


def check_dataset(dataset: Mapping, scope: str):
    """Checks the files of one dataset config, completed with the defaults of its class.

    Returns:
        The content of its annotation file, where that is JSON.

    Raises:
        FileNotFoundError: if a folder or file is missing or empty.
        ValueError: if annotations are broken or do not match the images, or reading them has no end.
    """
    check_end(dataset, scope)
    settings = _completed(dataset, scope)
    if not _is_local(settings):
        return None
    content = _annotations_of(settings, settings.get('data_root') or '')
    folders = _folders(settings)
    for folder in folders.values():
        check_folder(folder)
    if {'img_path', 'seg_map_path'} <= folders.keys() and not settings.get('ann_file'):
        check_pairs(
            (folders['img_path'], settings.get('img_suffix', '')),
            (folders['seg_map_path'], settings.get('seg_map_suffix', '')),
        )
    return content


def check_classes(dataset: Mapping, scope: str, path: str, content) -> tuple[Classes | None, str]:
    """Checks that the files of a data set have the classes that the config names.

    Args:
        dataset: Its settings.
        scope: The task's library.
        path: Its place in the config.
        content: That of its annotation file, as `check_dataset` returns it.

    Returns:
        Its classes, None where they are not known; and which categories are left out, if any.

    Raises:
        ValueError: as `vitplug.engine.classes` says.
    """
    kind, settings = _dataset_class(dataset, scope), _completed(dataset, scope)
    classes, remark = named_classes(settings, kind, path), ''
    if not _is_local(settings):
        return classes, remark
    if classes and content is not None and counts_categories(kind):
        remark = check_categories(
            classes, content, str(Path(settings.get('data_root') or '', settings['ann_file'])), path
        )
    folder = _folders(settings).get('img_path')
    folders = class_folders(settings, kind, folder)
    if folders:
        classes = match_folders(classes, folders, folder, path)
    return classes, remark


def _completed(dataset: Mapping, scope: str) -> dict:
    """Settings of a data set, with the defaults of its class, such as the file name endings of Cityscapes."""
    return {**defaults_of(_dataset_class(dataset, scope)), **dataset}


def check_end(dataset: dict, scope: str) -> None:
    """Checks that reading the files and listing the folders of one dataset config comes to an end.

    Raises:
        ValueError: if a file is a pipe, a socket or a device, or links in a folder lead in a circle.
    """
    settings = _completed(dataset, scope)
    for root in ('', settings.get('data_root') or ''):
        check_no_special_files(dataset, 'dataset', root)
    if _is_local(settings) and not settings.get('ann_file'):
        for folder in filter(Path.is_dir, _folders(settings).values()):
            for _ in files_below(folder):
                pass


def _is_local(settings: dict) -> bool:
    """False for classes that fetch their own files, and for file backends that know no local paths."""
    return not (settings.get('download') or settings.get('backend_args') or _is_remote(settings.get('data_root') or ''))


def _folders(settings: dict) -> dict[str, Path]:
    prefixes = settings.get('data_prefix') or ''
    prefixes = prefixes if isinstance(prefixes, dict) else {'img_path': prefixes}
    root = settings.get('data_root') or ''
    return {key: Path(root, prefix) for key, prefix in prefixes.items() if prefix is not None}


def check_evaluated(metric: dict, max_pixels: int):
    """Checks the annotation file of a metric, of which nothing can be left out.

    Returns:
        Its content, where it is JSON.

    Raises:
        FileNotFoundError: if it is missing.
        ValueError: if it is broken, or a box, polygon or RLE in it is outside of the limits; names the annotation.
    """
    if not isinstance(metric, dict):
        raise ValueError(f'evaluator {metric!r}: expected a dict with the type of a metric')
    check_no_special_files(metric, 'evaluator')
    content = _annotations_of(metric)
    if isinstance(content, dict):
        for what, reason in coco_complaints(content, max_pixels):
            raise ValueError(f'{metric["ann_file"]}, {what}: {reason}')
    return content


def max_pixels(cfg) -> int:
    """Largest image, as the config's hook for bad samples has it.

    Raises:
        ValueError: if it is no number of pixels.
    """
    pixels = ((cfg.get('default_hooks') or {}).get('bad_samples') or {}).get('max_pixels', MAX_PIXELS)
    if not isinstance(pixels, int) or pixels < 1:
        raise ValueError(f'default_hooks.bad_samples.max_pixels = {pixels!r}: expected a number of pixels')
    return pixels


def check_folder(folder: Path) -> None:
    """Checks that a data folder exists and holds at least one file, at any depth.

    Raises:
        FileNotFoundError: if it does not.
        ValueError: if links in it lead in a circle.
    """
    if not folder.is_dir():
        raise FileNotFoundError(f'no such data folder: {folder.absolute()}')
    if not any(names for _, names in files_below(folder)):
        raise FileNotFoundError(f'the data folder is empty: {folder.absolute()}')


def check_annotation_file(path: Path):
    """Checks that an annotation file exists and is not empty, and that JSON can be read and has images in it.

    Returns:
        The content of a JSON file, None for others.

    Raises:
        FileNotFoundError: if it is missing.
        ValueError: if it is empty or broken, or no regular file.
    """
    check_regular(path)
    if not path.is_file():
        raise FileNotFoundError(f'no such annotation file: {path.absolute()}')
    if path.stat().st_size == 0:
        raise ValueError(f'the annotation file is empty: {path.absolute()}')
    return _checked_json(path) if path.suffix == '.json' else None


def read_json(path: Path):
    """The content of a JSON file, in UTF-8 as the libraries' readers ask for it.

    Raises:
        PermissionError: if it may not be read.
        ValueError: names the file, if it is no JSON or lists in lists have no end.
    """
    try:
        text = path.read_bytes().decode()
        if text.startswith('\ufeff'):
            raise ValueError('it begins with a byte order mark: save it as UTF-8 without one')
        return json.loads(text)
    except UnicodeDecodeError as error:
        raise ValueError(
            f'the annotation file is not valid JSON: {path.absolute()} (it is not in UTF-8, byte {error.start}: save '
            'it as UTF-8 without a byte order mark)'
        ) from error
    except ValueError as error:
        raise ValueError(f'the annotation file is not valid JSON: {path.absolute()} ({error})') from error
    except RecursionError as error:
        raise ValueError(f'the annotation file is nested too deeply: {path.absolute()}') from error


def _checked_json(path: Path):
    content = read_json(path)
    if not isinstance(content, dict | list):
        raise ValueError(
            f'the annotation file holds a {type(content).__name__}, expected a dict or a list: {path.absolute()}'
        )
    if not content:
        raise ValueError(f'the annotation file is empty: {path.absolute()}')
    if isinstance(content, dict):
        empty = [key for key in ('images', 'annotations', 'categories') if key in content and not content[key]]
        if empty:
            raise ValueError(f'the annotation file has no {" and no ".join(empty)}: {path.absolute()}')
    return content


def check_pairs(images: tuple[Path, str], maps: tuple[Path, str]) -> None:
    """Checks that each image has a label map of the same name and each label map an image.

    Args:
        images: Folder and file name ending of the images.
        maps: The same of the label maps.

    Raises:
        ValueError: names both folders, the counts and a few examples.
    """
    if images == maps:
        return
    image_names, map_names = _names(*images), _names(*maps)
    lonely_images, lonely_maps = sorted(image_names - map_names), sorted(map_names - image_names)
    complaints = [
        f'{len(lonely)} without a partner, e.g. {", ".join(lonely[:SHOWN_EXAMPLES])}'
        if lonely
        else 'all have a partner'
        for lonely in (lonely_images, lonely_maps)
    ]
    if lonely_images or lonely_maps or not image_names:
        raise ValueError(
            f'images and annotations do not match: {len(image_names)} images *{images[1]} in {images[0].absolute()} '
            f'({complaints[0]}), {len(map_names)} annotations *{maps[1]} in {maps[0].absolute()} ({complaints[1]})'
        )


def _names(folder: Path, suffix: str) -> set[str]:
    """Relative paths, less the suffix, of the files in a folder that end in it."""
    return {
        os.path.relpath(os.path.join(parent, name), folder).removesuffix(suffix)
        for parent, names in files_below(folder)
        for name in names
        if name.endswith(suffix)
    }


def _annotations_of(settings: dict, root: str = ''):
    """The content of the JSON file that settings name as `ann_file`, checked; None where there is none."""
    path = settings.get('ann_file')
    if isinstance(path, str) and path and not _is_remote(path):
        return check_annotation_file(Path(root, path))
    return None


def _dataset_class(dataset: Mapping, scope: str) -> type:
    kind = registered(DATASETS, dataset.get('type'), scope)
    if kind is None:
        raise ValueError(
            f'dataset.type = {dataset.get("type")!r}: {scope} has no such data set; its settings are {dataset}'
        )
    return kind


def _is_remote(path: str) -> bool:
    return '://' in path


def _close_matches(path: Path, pattern: str) -> str:
    if not path.parent.is_dir():
        return f' (there is no folder {path.parent})'
    names = [file.name for file in sorted(path.parent.glob(pattern))]
    close = difflib.get_close_matches(path.name, names, n=SHOWN_EXAMPLES, cutoff=0.75)
    return f' (did you mean {" or ".join(close)}?)' if close else ''
