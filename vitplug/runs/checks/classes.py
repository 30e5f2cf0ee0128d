"""The classes of a config: of its data, its files, its model and its metrics, compared with each other.

`metainfo.classes` of a config or the data set's own `METAINFO` name them. Labels are counted by the files::

    COCO file         mmdet counts the categories that are classes, in the order of the file
    folders           mmpretrain counts the folders of images, in alphabetical order

so names that the files lack, or have in another order, would silently train with wrong labels. mmengine compares no
setting with them: with a number of classes that is left over from other data, training ends in an IndexError, in the
middle of a validation, or with a model that is wrong.
"""

import difflib
import inspect
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, pairwise
from pathlib import Path

from mmengine.registry import METRICS, MODELS

from vitplug.config.parts import Part, as_list, find_parts
from vitplug.errors import CheckpointNotRead

SHOWN_NAMES = 12
# By library: parts, by their names or classes, that count something else than the classes of the data.
APART = {
    # Each task of several has its own classes, and necks count the entries of a code book or of an embedding.
    'mmpretrain': ('task_heads', 'neck', 'text_neck', 'vision_neck'),
    # STDC's second head finds borders. SAN classifies by words: it is compared with nothing.
    'mmseg': ('STDCHead', 'MultimodalEncoderDecoder'),
    # Proposals have no class, and HTC's semantic head learns the classes of COCO-stuff. Trackers tell persons apart,
    # and GLIP and Grounding DINO count words: they are compared with nothing.
    'mmdet': ('rpn_head', 'semantic_head', 'BaseMOTModel', 'GLIP', 'GroundingDINO'),
}


@dataclass(frozen=True)
class Classes:
    """The classes of a data set.

    Attributes:
        names: Their names, in the order of their labels.
        source: The setting, class or folder that names them, for messages.
        labels: Their names in the files, in the same order; empty if unknown.
    """

    names: tuple[str, ...]
    source: str
    labels: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.names)

    def __str__(self) -> str:
        return f'{self.source}: {listed(self.names)}'


def listed(names: Iterable, count: int = SHOWN_NAMES) -> str:
    """The first names, as Python has them, so that they can be copied into a config."""
    names = list(names)
    more = f', ... ({len(names)} in all)' if len(names) > count else ''
    return ', '.join(repr(name) for name in names[:count]) + more


def _line_of(names: Sequence) -> str:
    """The line of a config that names classes."""
    comma = ',' if len(names) == 1 else ''
    return f'metainfo = dict(classes=({listed(names)}{comma}))'


# --- names: of a config, a COCO file, folders ---


def named_classes(settings: Mapping, kind: type | None, path: str) -> Classes | None:
    """The classes that the settings of a data set, or its class, name; None if neither does, and for panoptic data.

    Raises:
        ValueError: If they are no list of names, or one occurs more than once.
    """
    # Some parts of a panoptic model count things, some all classes: they are compared with nothing.
    if _is_panoptic(kind):
        return None
    # mmpretrain takes them beside metainfo as well.
    for setting, holder in {f'{path}.metainfo.classes': settings.get('metainfo'), f'{path}.classes': settings}.items():
        if holder and holder.get('classes') is not None:
            return Classes(_read_names(holder['classes'], setting), setting)
    names = _metainfo(kind).get('classes')
    source = f'{path}.metainfo.classes is not set, and {getattr(kind, "__name__", "")} has its own'
    return Classes(tuple(names), source) if names else None


def _metainfo(kind: type | None) -> Mapping:
    return getattr(kind, 'METAINFO', None) or {}


def _is_panoptic(kind: type | None) -> bool:
    return bool(_metainfo(kind).get('stuff_classes'))


def _read_names(value, setting: str) -> tuple[str, ...]:
    if isinstance(value, str) and Path(value).is_file():  # with a name in each line
        value = Path(value).read_text(encoding='utf-8').splitlines()
    if not isinstance(value, list | tuple) or not value:
        single = f'; for a single class, a comma makes it a list: ({value!r},)' if isinstance(value, str) else ''
        raise ValueError(f'{setting} = {value!r}: expected a list of names, or a file of them{single}')
    names = tuple(map(str, value))
    if repeated := [name for name, times in Counter(names).items() if times > 1]:
        raise ValueError(f'{setting}: {listed(repeated)} occur more than once: expected different names')
    return names


def counts_categories(kind: type | None) -> bool:
    """Whether a data set finds its labels by the names of a COCO file's categories."""
    load = getattr(kind, 'load_data_list', None)
    return getattr(load, '__qualname__', '') == 'CocoDataset.load_data_list' and not _is_panoptic(kind)


def check_categories(classes: Classes, categories: Sequence[str], file: str, path: str) -> str:
    """Checks that the categories of a COCO file have the classes, in the same order; says which are left out.

    Raises:
        ValueError: Names the classes that the file lacks, close categories, and the line to write.
    """
    missing = [name for name in classes.names if name not in categories]
    if missing:
        close = {name: difflib.get_close_matches(name, categories, n=1) for name in missing}
        said = f'set {path}.{_line_of(categories)}, or those of them that are to be learnt'
        if all(close.values()):
            said = ' and '.join(f'did you mean {found[0]!r} in place of {name!r}?' for name, found in close.items())
        raise ValueError(f'{classes.source}: {listed(missing)} not among the categories of {file}: {said}')
    used = [name for name in categories if name in classes.names]
    if used != list(classes.names):
        raise ValueError(
            f'{classes.source}: the categories of {file} have another order, and labels are counted by it: '
            f'set {path}.{_line_of(used)}'
        )
    unused = [name for name in categories if name not in classes.names]
    return f'{file}: categories {listed(unused)} are no classes of the data set and are left out' if unused else ''


def class_folders(settings: Mapping, kind: type | None, folder: Path | None) -> tuple[str, ...]:
    """The folders that mmpretrain counts as classes, in the order of their labels; none where it reads a list."""
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
        return Classes(folders, f'the folders of {folder}', labels=folders)
    advice = f'set {path}.{_line_of(folders)}'
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


# --- numbers: of the data sets, the model, the metrics ---


def class_complaints(cfg, classes_by_path: Mapping[str, Classes]) -> Iterator[tuple[str, str]]:
    """Compares the classes of a config's data sets with each other and with every setting that counts them.

    Args:
        cfg: The config.
        classes_by_path: Classes by the place of their data set, such as ``'train_dataloader.dataset'``, the training
            first; data sets with unknown classes are left out.

    Yields:
        A setting, as `--cfg-options` has it; its value and the remedy.
    """
    model = list(model_parts(cfg))
    if not classes_by_path or (cfg.get('model') and not model) or cfg.default_scope not in APART:
        return  # a model for something else than the classes of its data
    others = list(_other_classes(classes_by_path))
    if others:  # which number is right is not known
        yield from others
        return
    splits = dict.fromkeys(path.partition('_dataloader')[0] for path in classes_by_path)
    evaluators = [f'{split}_evaluator' for split in splits]
    metrics = (find_parts(cfg.get(name) or {}, name, METRICS, cfg.default_scope) for name in evaluators)
    for part in chain(model, *metrics):
        for key, reason in _misfits(part, next(iter(classes_by_path.values())), cfg.default_scope):
            yield f'{part.path}.{key}', reason


def count_of_model(cfg) -> int | None:
    """The number of classes of the model; None where its settings give no number or several."""
    counts = {part.get('num_classes') for part in model_parts(cfg)}
    counts = {count for count in counts if _is_count(count)}
    return counts.pop() if len(counts) == 1 else None


def model_parts(cfg) -> Iterator[Part]:
    """The parts of a model, and of its preprocessor, that may count the classes of the data."""
    apart, scope = APART.get(cfg.default_scope, ()), cfg.default_scope
    yield from find_parts(
        cfg.get('model') or {}, 'model', MODELS, scope, lambda part: part.name in apart or part.is_a(*apart)
    )
    # The one of the whole config is used where the model has none.
    if 'data_preprocessor' not in (cfg.get('model') or {}):
        yield from find_parts(cfg.get('data_preprocessor') or {}, 'data_preprocessor', MODELS, scope)


def _is_count(value) -> bool:
    # Backbones have num_classes=-1 for no classifier.
    return isinstance(value, int) and not isinstance(value, bool) and value > 0


def _misfits(part: Part, classes: Classes, scope: str) -> Iterator[tuple[str, str]]:
    """The settings of a part that count other classes: their keys, and what they are and have to be."""
    count = part.get('num_classes')
    if _is_count(count) and count != len(classes):
        default = f'is not set, and the default of {getattr(part.kind, "__name__", "")} is {count}'
        yield 'num_classes', f'{f"= {count}" if "num_classes" in part.settings else default}: set it to {len(classes)}'
    weights, number = part.get('class_weight'), len(classes) + _has_weight_of_nothing(part, scope)
    if isinstance(weights, list | tuple) and len(weights) != number:
        yield 'class_weight', f'has {len(weights)} entries: give it {number}'
    if part.is_a('Accuracy') or (part.is_a('ClsHead') and part.get('cal_acc')):
        topk = part.get('topk')
        if max(as_list(topk), default=0) > len(classes):
            yield 'topk', f'= {topk!r}: set it to at most {len(classes)}'


def _has_weight_of_nothing(part: Part, scope: str) -> bool:
    """Whether the last of a loss's class weights is that of background, or of masks of nothing."""
    if scope == 'mmdet':  # unless each class has a sigmoid of its own
        return not part.get('use_sigmoid')
    return scope == 'mmseg' and part.name == 'loss_cls'


def _other_classes(classes_by_path: Mapping[str, Classes]) -> Iterator[tuple[str, str]]:
    """The data sets whose labels mean other classes than the labels of the one before, and what differs."""
    for (first, one), (path, other) in pairwise(classes_by_path.items()):
        # Where the files have no names of their own, the config's count.
        pair = (one.labels, other.labels) if one.labels and other.labels else (one.names, other.names)
        if len(pair[0]) != len(pair[1]):
            counts = f'{len(pair[1])} classes ({other}), and {first} has {len(pair[0])} ({one})'
            yield path, f'has other classes: {counts}'
        elif pair[0] != pair[1]:
            label = next(label for label, names in enumerate(zip(*pair, strict=True)) if len({*names}) > 1)
            yield path, f'has other classes: label {label} is {pair[1][label]!r} here and {pair[0][label]!r} in {first}'


def check_trained(path: str, trained: Sequence[str], classes: Sequence[str]) -> str:
    """Compares the classes of a data set with those that a checkpoint was trained on; says if they have other names.

    Raises:
        CheckpointNotRead: If they are the same in another order.
    """
    pairs = enumerate(zip(map(str, trained), map(str, classes), strict=False))
    differing = [(label, pair) for label, pair in pairs if pair[0] != pair[1]]
    if not differing:
        return ''
    label, (before, now) = differing[0]
    said = f'{path}: label {label} is {before!r} in training and {now!r} in the data'
    if {*map(str, trained)} == {*map(str, classes)}:
        raise CheckpointNotRead(f'{said}: the same classes in another order; set {_line_of(trained)}')
    return f'{said} ({len(differing)} of {len(classes)} differ)'
