"""The classes of a data set: their names, and checks that its files have them.

`metainfo.classes` of a config or the data set's own `METAINFO` give the names. Labels are counted by the files::

    COCO file         mmdet counts the categories that are classes, in the order of the file
    folders           mmpretrain counts the folders of images, in alphabetical order

so names that the files lack, or have in another order, would silently train with wrong labels.
"""

import difflib
import inspect
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path

SHOWN_NAMES = 12


@dataclass(frozen=True)
class Classes:
    """The classes of a data set.

    Attributes:
        names: Their names, in the order of their labels.
        source: The setting, class or folder that names them, for messages.
        given: True if the config names them.
        labels: Their names in the files, in the same order; empty if unknown.
        things: How many of them can be counted; in a panoptic data set the others cannot.
    """

    names: tuple[str, ...]
    source: str
    given: bool = True
    labels: tuple[str, ...] = ()
    things: int = 0

    def __len__(self) -> int:
        return len(self.names)

    def __str__(self) -> str:
        return f'{self.source}: {listed(self.names)}'


def listed(names: Iterable, count: int = SHOWN_NAMES) -> str:
    """The first names, as Python has them, so that they can be copied into a config."""
    names = list(names)
    more = f', ... ({len(names)} in all)' if len(names) > count else ''
    return ', '.join(repr(name) for name in names[:count]) + more


def line_of(names: Sequence) -> str:
    """The line of a config that names classes."""
    comma = ',' if len(names) == 1 else ''
    return f'metainfo = dict(classes=({listed(names)}{comma}))'


# --- classes in a config ---


def named_classes(settings: Mapping, kind: type | None, path: str) -> Classes | None:
    """The classes that the settings of a data set, or its class, name; None if neither does.

    Args:
        settings: Settings of the data set.
        kind: The data set's class.
        path: Its place in the config.

    Raises:
        ValueError: If they are no list of names, or one occurs more than once.
    """
    metainfo = settings.get('metainfo')
    of_class = getattr(kind, 'METAINFO', None) or {}
    given = {f'{path}.metainfo.classes': metainfo} if isinstance(metainfo, Mapping) else {}
    # mmpretrain takes them beside metainfo as well.
    for setting, holder in {**given, f'{path}.classes': settings}.items():
        if holder.get('classes') is not None:
            names = _read_names(holder['classes'], setting)
            return Classes(names, setting, things=_count_things(names, {**of_class, **holder}))
    if not of_class.get('classes'):
        return None
    names = tuple(of_class['classes'])
    source = f'{kind.__name__} has its own, and {path}.metainfo.classes is not set'
    return Classes(names, source, given=False, things=_count_things(names, of_class))


def _read_names(value, setting: str) -> tuple[str, ...]:
    if isinstance(value, str):
        if not Path(value).is_file():
            raise ValueError(
                f'{setting} = {value!r}: expected a list of names, or a file with one in each line; '
                f'for a single class, a comma makes it a list: ({value!r},)'
            )
        try:
            value = Path(value).read_text(encoding='utf-8').splitlines()
        except UnicodeDecodeError as error:
            raise ValueError(
                f'{setting} = {value!r}: the file is no text in UTF-8, expected a name in each line'
            ) from error
    if not isinstance(value, list | tuple) or not value:
        raise ValueError(f'{setting} = {value!r}: expected a list of names')
    repeated = [name for name, times in Counter(map(str, value)).items() if times > 1]
    if repeated:
        raise ValueError(f'{setting}: {listed(repeated)} occur more than once: expected different names')
    return tuple(map(str, value))


def _count_things(names: Sequence[str], metainfo: Mapping) -> int:
    """How many of the classes are things; all of them where things and stuff are not told apart."""
    things = set(metainfo.get('thing_classes') or ())
    return sum(name in things for name in names) or len(names)


# --- classes in files ---


def counts_categories(kind: type | None) -> bool:
    """Whether a data set finds its labels by the names of a COCO file's categories."""
    load = getattr(kind, 'load_data_list', None)
    return getattr(load, '__qualname__', '') == 'CocoDataset.load_data_list'


def check_categories(classes: Classes, content, file: str, path: str) -> str:
    """Checks that a COCO file has the classes, in the same order.

    Args:
        classes: Classes of the data set.
        content: The file's.
        file: Its path, for messages.
        path: Place of the data set in the config.

    Returns:
        Which categories are left out, '' where none are.

    Raises:
        ValueError: Names the classes that the file lacks, close categories, and the line to write.
    """
    if not isinstance(content, Mapping):
        raise ValueError(f'{file} holds a {type(content).__name__}: expected a dict of images, annotations, categories')
    entries = content.get('categories', [])
    if not isinstance(entries, list):
        raise ValueError(f'{file}: categories = {entries!r:.100}: expected a list of dicts with id and name')
    categories = [str(entry.get('name')) for entry in entries if isinstance(entry, Mapping)]
    missing = [name for name in classes.names if name not in set(categories)]
    advice = f'set {path}.{line_of(categories)}, or those of them that are to be learnt'
    if len(missing) == len(classes) or (missing and not classes.given):
        raise ValueError(
            f'{file} has the categories {listed(categories)}, and {len(missing)} of the {len(classes)} classes of the '
            f'data set are none of them ({classes}): {advice}'
        )
    if missing:
        close = ' and '.join(_suggestions(missing, categories)) or advice
        raise ValueError(f'{classes.source}: {listed(missing)} not among the categories of {file}: {close}')
    used = [name for name in categories if name in set(classes.names)]
    if used != list(classes.names):
        raise ValueError(
            f'{classes.source}: the categories of {file} have another order, and labels are counted by it: '
            f'set {path}.{line_of(used)}'
        )
    unused = [name for name in categories if name not in set(classes.names)]
    return f'{file}: categories {listed(unused)} are no classes of the data set and are left out' if unused else ''


def _suggestions(missing: Iterable[str], known: Sequence[str]) -> Iterator[str]:
    for name in missing:
        for close in difflib.get_close_matches(name, known, n=1):
            yield f'did you mean {close!r} in place of {name!r}?'


def class_folders(settings: Mapping, kind: type | None, folder: Path | None) -> tuple[str, ...]:
    """The folders that mmpretrain counts as classes, in the order of their labels; none where it reads a list.

    Args:
        settings: Settings of the data set.
        kind: The data set's class.
        folder: Where its images are.
    """
    bases = {base.__name__ for base in inspect.getmro(kind)} if kind else set()
    # `split` lets ImageNet choose the folder by itself.
    lists = settings.get('ann_file') or settings.get('split') or not settings.get('with_label', True)
    if 'CustomDataset' not in bases or lists or folder is None or not folder.is_dir():
        return ()
    return tuple(sorted(entry.name for entry in os.scandir(folder) if entry.is_dir()))


def match_folders(classes: Classes | None, folders: tuple[str, ...], folder: Path, path: str) -> Classes:
    """The classes of a data set whose images lie in a folder for each of them.

    Raises:
        ValueError: If there are more or fewer folders than classes, or the names are those of the folders in another
            order; names those that are on one side only, and the line to write.
    """
    if classes is None:
        return Classes(folders, f'the folders of {folder}', labels=folders, things=len(folders))
    advice = f'set {path}.{line_of(folders)}'
    if len(folders) != len(classes):
        sides = {'no folder for': set(classes.names) - set(folders), 'no class for': set(folders) - set(classes.names)}
        lonely = '; '.join(f'{what} {listed(sorted(names))}' for what, names in sides.items() if names)
        raise ValueError(
            f'{folder} has {len(folders)} folders for {len(classes)} classes ({classes.source}): {lonely}: {advice}, '
            'or remove folders that are none of a class'
        )
    if set(folders) == set(classes.names) and folders != classes.names:
        raise ValueError(
            f'{classes.source}: labels are counted by the folders of {folder} in alphabetical order: {advice}'
        )
    numbers = [int(name) for name in folders if name.isdecimal()]
    if len(numbers) == len(folders) and numbers != sorted(numbers) and folders != classes.names:
        raise ValueError(
            f'{folder}: mmpretrain sorts the class folders as texts ({listed(folders, 4)}), so that label 2 is '
            f'{folders[2]!r} and named {classes.names[2]!r} by {classes.source}: rename the folders to numbers of one '
            'length (00, 01, 02 ...)'
        )
    return replace(classes, labels=folders)


def other_classes(classes_by_path: Mapping[str, Classes]) -> Iterator[tuple[str, str]]:
    """The data sets whose labels mean other classes than the labels of the first one.

    Args:
        classes_by_path: Classes of data sets by their places.

    Yields:
        Place of a data set, and what differs.
    """
    for (first, one), (path, other) in pairwise(classes_by_path.items()):
        # Where the files have no names of their own, the config's count.
        pair = (one.labels, other.labels) if one.labels and other.labels else (one.names, other.names)
        if pair[0] == pair[1]:
            continue
        if len(pair[0]) != len(pair[1]):
            yield path, f'{len(pair[1])} classes ({other}), and {first} has {len(pair[0])} ({one})'
            continue
        label, names = next((label, names) for label, names in enumerate(zip(*pair, strict=True)) if len({*names}) > 1)
        yield path, f'label {label} is {names[1]!r} here and {names[0]!r} in {first}'
