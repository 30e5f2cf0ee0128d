"""The data of a run: files are there and have the classes of the config, something is left to learn, metrics fit."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

from mmengine.registry import DATASETS, METRICS, MODELS

from vitplug.commands import located
from vitplug.config.data_files import completed, folders_of, is_local
from vitplug.config.parts import as_list, find_parts, loader_leaves, registered, strings_in
from vitplug.files.annotations import check_annotation_file
from vitplug.files.folders import check_folder, names_in
from vitplug.files.limits import MAX_PIXELS
from vitplug.files.named import is_remote
from vitplug.files.orientation import turned_formats
from vitplug.tasks.classes import (
    Classes,
    check_categories,
    class_folders,
    counts_categories,
    match_folders,
    named_classes,
)

from .accounts import (
    Account,
    account_classes,
    account_coco,
    account_maps,
    check_coco,
    check_images,
    check_label_list,
    loaded_size,
)
from .classes import class_complaints


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
    complaints = list(class_complaints(cfg, classes_by_path))
    if complaints:
        first = next(iter(classes_by_path.values()))
        raise ValueError(f'the data has {len(first)} classes ({first}): {"; ".join(map(str, complaints))}')
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
    classes_by_path, remarks, contents = {}, [], []
    for path, dataset in loader_leaves(cfg, split):
        with _help_for_missing(cfg, dataset):
            data = DataFiles(dataset, cfg.default_scope, path)
            classes, said = data.check()
        classes_by_path |= {path: classes} if classes else {}
        remarks += said
        contents.append(data.content)
    for metric in as_list(cfg.get(f'{split}_evaluator')):
        with _help_for_missing(cfg, metric):
            content = _check_metric(metric, f'{split}_evaluator', contents)
        for path, dataset in loader_leaves(cfg, split):
            if content and path in classes_by_path and counts_categories(dataset_class(dataset, cfg.default_scope)):
                check_categories(classes_by_path[path], content, metric['ann_file'], path)
    _check_ignored(cfg, split)
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


class DataFiles:
    """The files of one data set.

    Args:
        dataset: Its settings.
        scope: The task's library.
        path: Its place in the config.

    Attributes:
        content: That of its annotation file, where it is JSON on this machine.

    Raises:
        FileNotFoundError, ValueError: As `check_data` says.
    """

    def __init__(self, dataset: Mapping, scope: str, path: str):
        self.path = path
        self.kind = dataset_class(dataset, scope)
        self.settings = completed(dataset, scope)
        root = self.settings.get('data_root') or ''
        if not isinstance(root, str | Path):
            raise ValueError(f'{path}.data_root = {root!r}: expected a folder')
        self.is_local = is_local(self.settings)
        self.folders = folders_of(self.settings) if self.is_local else {}
        self.content = _annotations_of(self.settings, root) if self.is_local else None

    def check(self) -> tuple[Classes | None, list[str]]:
        """Checks folders, classes and what is kept; gives the classes, None where they are not known, and remarks."""
        for folder in self.folders.values():
            check_folder(folder)
        classes, remarks = named_classes(self.settings, self.kind, self.path), []
        if counts_categories(self.kind) and self.content is not None:
            file = str(Path(self.settings.get('data_root') or '', self.settings['ann_file']))
            check_coco(self.content, file)
            if classes:
                remarks.append(check_categories(classes, self.content, file, self.path))
        if labels := self._label_list():
            check_label_list(labels, len(classes) if classes else None)
        found = class_folders(self.settings, self.kind, self.folders.get('img_path'))
        if found:
            classes = match_folders(classes, found, self.folders['img_path'], self.path)
        account = self.account(classes)
        if account is not None:
            account.check(self.path)
            remarks += [f'{self.path}: {account}'] if account.lost else []
        return classes, list(filter(None, remarks))

    def account(self, classes: Classes | None) -> Account | None:
        """What is kept of the files; None for kinds of data sets that are not known."""
        if counts_categories(self.kind) and isinstance(self.content, Mapping):
            filters, tested = self.settings.get('filter_cfg') or {}, bool(self.settings.get('test_mode'))
            check_images(list(self._named_images()), self.turned)
            return account_coco(self.content, classes and classes.names, filters, tested)
        if {'img_path', 'seg_map_path'} <= self.folders.keys() and not self.settings.get('ann_file'):
            images = self.folders['img_path'], self.settings.get('img_suffix', '')
            maps = self.folders['seg_map_path'], self.settings.get('seg_map_suffix', '')
            if images == maps:
                return None
            account = account_maps(images, maps)
            check_images(list(_with_maps(images, maps)), self.turned)
            return account
        if class_folders(self.settings, self.kind, self.folders.get('img_path')):
            return account_classes(self.folders['img_path'], as_list(self.settings.get('extensions')))
        return None

    def _label_list(self) -> Path | None:
        """The text file of images and labels of mmpretrain's data sets, if there is one."""
        file = self.settings.get('ann_file')
        is_list = any(base.__name__ == 'CustomDataset' for base in self.kind.__mro__) and isinstance(file, str) and file
        if not is_list or is_remote(file) or not self.is_local or not self.settings.get('with_label', True):
            return None
        return Path(self.settings.get('data_root') or '', file)

    @property
    def turned(self) -> tuple[str, ...]:
        """Formats that its pipeline turns by EXIF as it loads them."""
        steps = [step for step in self.settings.get('pipeline') or () if isinstance(step, Mapping)]
        load = next((step for step in steps if str(step.get('type')).endswith('LoadImageFromFile')), {})
        given = dict(color_type=load.get('color_type', 'color'), imdecode_backend=load.get('imdecode_backend', 'cv2'))
        return turned_formats([SimpleNamespace(**given)])

    def _named_images(self) -> Iterator[tuple[Path, tuple[int, int]]]:
        folder = self.folders.get('img') or self.folders.get('img_path') or Path(self.settings.get('data_root') or '')
        for image in self.content['images']:
            yield folder / image['file_name'], (image['width'], image['height'])


def _with_maps(images: tuple[Path, str], maps: tuple[Path, str]) -> Iterator[tuple[Path, tuple[int, int] | None]]:
    """Images with the sizes of their label maps, of at most as many as a training looks at."""
    names = [name for name in names_in(images[0]) if name.endswith(images[1])]
    for name in names[:: max(1, len(names) // 100)]:
        yield images[0] / name, loaded_size(maps[0] / (name[: len(name) - len(images[1])] + maps[1]), ())


# --- metrics ---


def _check_metric(metric: dict, path: str, contents: Sequence) -> Mapping | None:
    """Checks that a metric counts with the data of its loader, and gives its COCO file's content, if it has one.

    Raises:
        FileNotFoundError: If its annotation file is missing.
        ValueError: If pycocotools cannot count with it, or it has other images than the loader.
    """
    if not isinstance(metric, dict):
        raise ValueError(f'{path} = {metric!r}: expected a dict with the type of a metric')
    content = _annotations_of(metric)
    if not isinstance(content, Mapping) or not {'images', 'categories'} <= content.keys():
        return None
    file = metric['ann_file']
    check_coco(content, file, scored='Coco' in str(metric.get('type')))
    loaded = [one for one in contents if isinstance(one, Mapping) and 'images' in one]
    if not loaded or len(loaded) < len(contents):
        return content
    ours = {image['id']: image['file_name'] for one in loaded for image in one['images']}
    theirs = {image['id']: image['file_name'] for image in content['images']}
    differing = [number for number, name in ours.items() if theirs.get(number) != name]
    if differing:
        number = differing[0]
        raise ValueError(
            f'{path}.ann_file = {file!r}: image {number} is {theirs.get(number, "missing")} there and {ours[number]} '
            f'in the data of the loader ({len(differing)} of {len(ours)} differ): name the file of the loader'
        )
    return content


def _check_ignored(cfg, split: str) -> None:
    """Checks that heads, metrics and data of mmseg ignore the same label.

    Raises:
        ValueError: Names the settings.
    """
    scope = cfg.default_scope
    places = [
        *find_parts(cfg.get('model') or {}, 'model', MODELS, scope),
        *find_parts(as_list(cfg.get(f'{split}_evaluator')), f'{split}_evaluator', METRICS, scope),
        *(
            part
            for path, dataset in loader_leaves(cfg, split)
            for part in find_parts({k: v for k, v in dataset.items() if k != 'pipeline'}, path, DATASETS, scope)
        ),
    ]
    kinds = ('BaseDecodeHead', 'IoUMetric', 'BaseSegDataset')
    values = {f'{part.path}.ignore_index': part.get('ignore_index') for part in places if part.is_a(*kinds)}
    known = {place: value for place, value in values.items() if value is not None}
    if len({*known.values()}) > 1:
        said = ', '.join(f'{place} = {value}' for place, value in known.items())
        raise ValueError(f'{said}: head, metric and data ignore different labels: set all to that of the label maps')


def max_pixels(cfg) -> int:
    """Largest image, in pixels."""
    return MAX_PIXELS


def _annotations_of(settings: Mapping, root: str | Path = ''):
    """The checked content of the JSON file under `ann_file`; None without such a file."""
    path = settings.get('ann_file')
    if isinstance(path, str) and path and not is_remote(path):
        return check_annotation_file(Path(root, path))
    return None


def dataset_class(dataset: Mapping, scope: str) -> type:
    """The class of a data set.

    Raises:
        ValueError: If there is none.
    """
    kind = registered(DATASETS, dataset.get('type'), scope)
    if kind is None:
        raise ValueError(
            f'dataset.type = {dataset.get("type")!r}: {scope} has no such data set; its settings are {dataset}'
        )
    return kind
