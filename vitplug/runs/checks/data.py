"""The data of a run: files are there and have the classes of the config, something is left to learn, metrics fit."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

from mmengine.registry import DATASETS, METRICS, MODELS

from vitplug.config.data_files import completed, folders_of, is_local
from vitplug.config.parts import as_list, find_parts, loader_leaves, registered, strings_in
from vitplug.files.annotations import check_annotation_file
from vitplug.files.folders import check_folder
from vitplug.files.named import is_remote
from vitplug.files.orientation import turned_formats

from .accounts import (
    Account,
    account_classes,
    account_coco,
    account_maps,
    check_coco,
    check_image,
    check_label_list,
    sampled,
)
from .classes import (
    Classes,
    check_categories,
    class_complaints,
    class_folders,
    counts_categories,
    match_folders,
    named_classes,
)


def check_data(cfg, splits: tuple[str, ...]) -> list[str]:
    """Checks the files behind the loaders and evaluators of some splits, and the settings that count their classes.

    Returns:
        Remarks: what of the files is left out, and why.

    Raises:
        FileNotFoundError: If a folder or file is missing or empty.
        ValueError: If annotations are broken, do not match the images or leave nothing to learn, if a metric cannot
            count with them, or if a setting counts other classes; names every such setting and what to set it to.
    """
    classes_by_path, remarks = {}, []
    for split in splits:
        classes, said = check_split(cfg, split)
        classes_by_path |= classes
        remarks += said
    complaints = [f'{setting} {reason}' for setting, reason in class_complaints(cfg, classes_by_path)]
    if complaints:
        first = next(iter(classes_by_path.values()))
        raise ValueError(f'the data has {len(first)} classes ({first}): {"; ".join(complaints)}')
    return remarks


def check_split(cfg, split: str) -> tuple[dict[str, Classes], list[str]]:
    """Checks the files behind the loader and the evaluators of a split.

    The config's `data_help` has the `root` of the data it is about, and the `command` that makes them. It ends messages
    about files below the root, so that a config that inherits it for data of its own is not told to make others.

    Returns:
        Classes of its data sets by their places, as far as they are known; and remarks.

    Raises:
        FileNotFoundError, ValueError: As `check_data` says.
    """
    found = {}
    for path, dataset in loader_leaves(cfg, split):
        with _help_for_missing(cfg, dataset):
            found[path] = check_files(dataset, cfg.default_scope, path)
    for metric in as_list(cfg.get(f'{split}_evaluator')):
        with _help_for_missing(cfg, metric):
            _check_metric(metric, f'{split}_evaluator', found)
    _check_ignored(cfg, split)
    classes = {path: files.classes for path, files in found.items() if files.classes}
    return classes, [remark for files in found.values() for remark in files.remarks]


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


class Files(NamedTuple):
    """What the files of a data set hold.

    Attributes:
        classes: Its classes; None where they are not known.
        remarks: What is left out.
        coco: The content of its COCO file; None for other data.
    """

    classes: Classes | None
    remarks: list[str]
    coco: Mapping | None


def check_files(dataset: Mapping, scope: str, path: str) -> Files:
    """Checks the folders, annotations and classes of one data set, and what is kept of them.

    Args:
        dataset: Its settings.
        scope: The task's library.
        path: Its place in the config.

    Raises:
        FileNotFoundError, ValueError: As `check_data` says.
    """
    kind = registered(DATASETS, dataset.get('type'), scope)
    if kind is None:
        raise ValueError(
            f'dataset.type = {dataset.get("type")!r}: {scope} has no such data set; its settings are {dataset}'
        )
    settings = completed(dataset, scope)
    root = settings.get('data_root') or ''
    classes = named_classes(settings, kind, path)
    if not is_local(settings):
        return Files(classes, [], None)
    folders, content, remarks = folders_of(settings), _annotations_of(settings, root), []
    for folder in folders.values():
        check_folder(folder)
    coco = content if counts_categories(kind) else None
    if coco is not None:
        file = str(Path(root, settings['ann_file']))
        check_coco(coco, file)
        if classes and (left_out := check_categories(classes, _names_of(coco), file, path)):
            remarks.append(left_out)
    reads_lists = any(base.__name__ == 'CustomDataset' for base in kind.__mro__)
    if reads_lists and settings.get('ann_file') and settings.get('with_label', True):
        check_label_list(Path(root, settings['ann_file']), len(classes) if classes else None)
    found = class_folders(settings, kind, folders.get('img_path'))
    if found:
        classes = match_folders(classes, found, folders['img_path'], path)
    account = _account(settings, coco, found, folders, classes)
    if account is not None:
        account.check(path)
        remarks += [f'{path}: {account}'] if account.lost else []
    return Files(classes, remarks, coco)


def _names_of(coco: Mapping) -> list[str]:
    return [str(category['name']) for category in coco['categories']]


def _account(
    settings: Mapping, coco: Mapping | None, class_names: Sequence, folders: Mapping, classes: Classes | None
) -> Account | None:
    """What is kept of the files of a data set; None for kinds that are not known.

    Raises:
        FileNotFoundError, ValueError: If an image is missing or has another size than annotated, or files do not match.
    """
    if coco is not None:
        folder = folders.get('img') or folders.get('img_path') or Path(settings.get('data_root') or '')
        for image in sampled(coco['images']):
            check_image(folder / image['file_name'], (image['width'], image['height']), _turned(settings))
        tested = bool(settings.get('test_mode'))
        return account_coco(coco, classes and classes.names, settings.get('filter_cfg') or {}, tested)
    if class_names:
        return account_classes(folders['img_path'], as_list(settings.get('extensions')))
    if settings.get('ann_file') or not {'img_path', 'seg_map_path'} <= folders.keys():
        return None
    images = folders['img_path'], settings.get('img_suffix', '')
    maps = folders['seg_map_path'], settings.get('seg_map_suffix', '')
    return None if images == maps else account_maps(images, maps, _turned(settings))


def _turned(settings: Mapping) -> tuple[str, ...]:
    """Formats that the pipeline of a data set turns by EXIF as it loads them."""
    steps = [step for step in settings.get('pipeline') or () if isinstance(step, Mapping)]
    load = next((step for step in steps if str(step.get('type')).endswith('LoadImageFromFile')), {})
    given = dict(color_type=load.get('color_type', 'color'), imdecode_backend=load.get('imdecode_backend', 'cv2'))
    return turned_formats([SimpleNamespace(**given)])


def _annotations_of(settings: Mapping, root: str | Path = '') -> Any:
    """The checked content of the JSON file under `ann_file`; None without such a file."""
    path = settings.get('ann_file')
    if isinstance(path, str) and path and not is_remote(path):
        return check_annotation_file(Path(root, path))
    return None


# --- metrics ---


def _check_metric(metric: dict, path: str, found: Mapping[str, Files]) -> None:
    """Checks that a metric counts with the data of its loader.

    Raises:
        FileNotFoundError: If its annotation file is missing.
        ValueError: If pycocotools cannot count with it, or it has other images or classes than the loader.
    """
    if not isinstance(metric, dict):
        raise ValueError(f'{path} = {metric!r}: expected a dict with the type of a metric')
    content = _annotations_of(metric)
    # Files of LVIS and of panoptic data have other entries.
    if content is None or not str(metric.get('type')).endswith('CocoMetric'):
        return
    file = metric['ann_file']
    check_coco(content, file, scored=True)
    if not all(files.coco for files in found.values()):
        return
    ours = {image['id']: image['file_name'] for files in found.values() for image in files.coco['images']}
    theirs = {image['id']: image['file_name'] for image in content['images']}
    differing = [number for number, name in ours.items() if theirs.get(number) != name]
    if differing:
        number = differing[0]
        raise ValueError(
            f'{path}.ann_file = {file!r}: image {number} is {theirs.get(number, "missing")} there and {ours[number]} '
            f'in the data of the loader ({len(differing)} of {len(ours)} differ): name the file of the loader'
        )
    for place, files in found.items():
        if files.classes:
            check_categories(files.classes, _names_of(content), file, place)


def _check_ignored(cfg, split: str) -> None:
    """Checks that heads, metrics and data of mmseg ignore the same label.

    Raises:
        ValueError: Names the settings.
    """
    scope = cfg.default_scope
    leaves = [
        (path, {key: value for key, value in dataset.items() if key != 'pipeline'})
        for path, dataset in loader_leaves(cfg, split)
    ]
    parts = [
        *find_parts(cfg.get('model') or {}, 'model', MODELS, scope),
        *find_parts(as_list(cfg.get(f'{split}_evaluator')), f'{split}_evaluator', METRICS, scope),
        *(part for path, dataset in leaves for part in find_parts(dataset, path, DATASETS, scope)),
    ]
    kinds = ('BaseDecodeHead', 'IoUMetric', 'BaseSegDataset')
    values = {f'{part.path}.ignore_index': part.get('ignore_index') for part in parts if part.is_a(*kinds)}
    known = {place: value for place, value in values.items() if value is not None}
    if len({*known.values()}) > 1:
        said = ', '.join(f'{place} = {value}' for place, value in known.items())
        raise ValueError(f'{said}: head, metric and data ignore different labels: set all to that of the label maps')
