"""The data of a run: folders and annotation files are there, and have the classes that the config names."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import chain
from os import PathLike
from pathlib import Path

from mmengine.registry import DATASETS

from vitplug.commands import located
from vitplug.config.checks import check_no_special_files
from vitplug.config.data_files import completed, folders_of, is_local
from vitplug.config.parts import as_list, loader_leaves, registered, strings_in
from vitplug.files.annotations import check_annotation_file
from vitplug.files.folders import check_folder, check_pairs, files_below
from vitplug.files.limits import MAX_PIXELS, coco_complaints, without_score
from vitplug.files.named import is_remote
from vitplug.tasks.classes import (
    Classes,
    check_categories,
    class_folders,
    counts_categories,
    match_folders,
    named_classes,
)

from .classes import class_complaints


def check_data(cfg, splits: tuple[str, ...]) -> list[str]:
    """Checks the folders and annotation files behind the dataloaders and evaluators of some splits, and their classes.

    Returns:
        Remarks, such as which categories of a COCO file are left out.

    Raises:
        FileNotFoundError: if a folder or file is missing or empty.
        ValueError: if annotations are broken or do not match the images, if files lack classes, or if a setting counts
            other classes than the data has; names every such setting and what to set it to.
    """
    classes_by_path, remarks = {}, []
    for split in splits:
        classes, said = check_split(cfg, split)
        classes_by_path |= classes
        remarks += said
    complaints = list(class_complaints(cfg, classes_by_path))
    if complaints:
        first = next(iter(classes_by_path.values()))
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
    classes_by_path, remarks = {}, []
    for path, dataset in loader_leaves(cfg, split):
        with _help_for_missing(cfg, dataset):
            content = check_dataset(dataset, cfg.default_scope)
        classes, remark = check_classes(dataset, cfg.default_scope, path, content)
        classes_by_path |= {path: classes} if classes else {}
        remarks += [remark] if remark else []
    for metric in as_list(cfg.get(f'{split}_evaluator')):
        with _help_for_missing(cfg, metric):
            content = check_evaluated(metric, max_pixels(cfg), f'{split}_evaluator')
        for path, dataset in loader_leaves(cfg, split):
            counts = counts_categories(_dataset_class(dataset, cfg.default_scope))
            if counts and path in classes_by_path and isinstance(content, Mapping) and 'categories' in content:
                check_categories(classes_by_path[path], content, metric['ann_file'], path)
    return classes_by_path, remarks


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
        raise type(error)(f'{error}; make the data with: {located(made["command"])}') from error


def check_dataset(dataset: Mapping, scope: str):
    """Checks the files of one dataset config, completed with the defaults of its class.

    Returns:
        The content of its annotation file, where that is JSON.

    Raises:
        FileNotFoundError: if a folder or file is missing or empty.
        ValueError: if annotations are broken or do not match the images, or reading them has no end.
    """
    check_end(dataset, scope)
    settings = completed(dataset, scope)
    if not is_local(settings):
        return None
    content = _annotations_of(settings, settings.get('data_root') or '')
    folders = folders_of(settings)
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
        ValueError: as `vitplug.tasks.classes` says.
    """
    kind, settings = _dataset_class(dataset, scope), completed(dataset, scope)
    classes, remark = named_classes(settings, kind, path), ''
    if not is_local(settings):
        return classes, remark
    if classes and content is not None and counts_categories(kind):
        remark = check_categories(
            classes, content, str(Path(settings.get('data_root') or '', settings['ann_file'])), path
        )
    folder = folders_of(settings).get('img_path')
    folders = class_folders(settings, kind, folder)
    if folders:
        classes = match_folders(classes, folders, folder, path)
    return classes, remark


def check_end(dataset: dict, scope: str) -> None:
    """Checks that reading the files and listing the folders of one dataset config comes to an end.

    Raises:
        ValueError: if there is no such data set, if a file is a pipe, a socket, a device or a link to nothing, or if
            links in a folder lead in a circle.
    """
    _dataset_class(dataset, scope)
    settings = completed(dataset, scope)
    data_root = settings.get('data_root') or ''
    if not isinstance(data_root, str | PathLike):
        raise ValueError(f'dataset.data_root = {data_root!r}: expected a folder')
    for root in ('', data_root):
        check_no_special_files(dataset, 'dataset', root)
    if is_local(settings) and not settings.get('ann_file'):
        for folder in filter(Path.is_dir, folders_of(settings).values()):
            for _ in files_below(folder, complete=True):
                pass


def check_evaluated(metric: dict, max_pixels: int, path: str):
    """Checks the annotation file of a metric, of which nothing can be left out.

    Returns:
        Its content, where it is JSON.

    Raises:
        FileNotFoundError: if it is missing.
        ValueError: if it is broken, a box, polygon or RLE in it is outside of the limits, or an object lacks what its
            score needs; names the annotation.
    """
    if not isinstance(metric, dict):
        raise ValueError(f'{path} = {metric!r}: expected a dict with the type of a metric')
    check_no_special_files(metric, path)
    content = _annotations_of(metric)
    if isinstance(content, dict):
        unscored = without_score(content, 'segm' in as_list(metric.get('metric')))
        for what, reason in chain(coco_complaints(content, max_pixels), unscored):
            raise ValueError(f'{metric["ann_file"]}, {what}: {reason}')
    return content


def max_pixels(cfg) -> int:
    """Largest image, in pixels."""
    return MAX_PIXELS


def _annotations_of(settings: dict, root: str = ''):
    """The checked content of the JSON file under `ann_file`; None without such a file."""
    path = settings.get('ann_file')
    if isinstance(path, str) and path and not is_remote(path):
        return check_annotation_file(Path(root, path))
    return None


def _dataset_class(dataset: Mapping, scope: str) -> type:
    kind = registered(DATASETS, dataset.get('type'), scope)
    if kind is None:
        raise ValueError(
            f'dataset.type = {dataset.get("type")!r}: {scope} has no such data set; its settings are {dataset}'
        )
    return kind
