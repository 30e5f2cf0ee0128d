"""The classes of a config: of its data, its files, its model and its metrics, compared with each other.

`metainfo.classes` of a config or the data set's own `METAINFO` name them. Labels are counted by the files::

    COCO file         mmdet counts the categories that are classes, in the order of the file
    folders           mmpretrain counts the folders of images, in alphabetical order

so names that the files lack, or have in another order, would silently train with wrong labels. mmengine compares no
setting with them: with a number of classes that is left over from other data, training ends in an IndexError, in the
middle of a validation, or with a model that is wrong.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path

from mmengine.registry import METRICS, MODELS

from vitplug.config.parts import Part, as_list, find_parts
from vitplug.spelling import hint

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


def listed(names: Iterable) -> str:
    """The first names, as Python has them, so that they can be copied into a config."""
    names = list(names)
    more = f', ... ({len(names)} in all)' if len(names) > SHOWN_NAMES else ''
    return ', '.join(repr(name) for name in names[:SHOWN_NAMES]) + more


def _line_of(names: Sequence) -> str:
    """The line of a config that names classes."""
    comma = ',' if len(names) == 1 else ''
    return f'metainfo = dict(classes=({listed(names)}{comma}))'


# --- names in files ---


def match_categories(classes: Sequence[str], content: Mapping, file: str, path: str) -> tuple[str, ...]:
    """The categories of a COCO file that are classes, by label.

    Args:
        classes: Names of the classes.
        content: Of the file.
        file: The file, and
        path: the place of the data set in the config, for messages.

    Raises:
        ValueError: If categories lack a class, or have another order; names the line to write.
    """
    categories = [str(category['name']) for category in content['categories']]
    if missing := [name for name in classes if name not in categories]:
        advice = f': set {path}.{_line_of(categories)}, or those of them that are to be learnt'
        raise ValueError(
            f'{path}.metainfo.classes: {listed(missing)} not among the categories of {file}'
            f'{hint(missing[0], categories) or advice}'
        )
    used = [name for name in categories if name in classes]
    if used != list(classes):
        raise ValueError(
            f'{path}.metainfo.classes: the categories of {file} have another order, and labels are counted by it: set '
            f'{path}.{_line_of(used)}'
        )
    return tuple(used)


def match_folders(classes: Sequence[str], folders: Sequence[str], folder: Path, path: str) -> tuple[str, ...]:
    """Names of the classes whose images lie in a folder for each; those of the folders if there are none.

    Raises:
        ValueError: If a folder is hidden, there are more or fewer folders than classes, or they have another order.
    """
    setting, advice = f'{path}.metainfo.classes', f'set {path}.{_line_of(folders)}'
    if hidden := [name for name in folders if name.startswith('.')]:
        raise ValueError(f'{folder} has the hidden folder {hidden[0]}, which mmpretrain takes for a class: remove it')
    if classes and len(folders) != len(classes):
        lonely = sorted({*folders} ^ {*classes})
        raise ValueError(
            f'{folder} has {len(folders)} folders for {len(classes)} classes ({setting}), with {listed(lonely)} on one '
            f'side only: {advice}, or remove folders that are none of a class'
        )
    if {*folders} == {*classes} and folders != classes:
        raise ValueError(f'{setting}: labels are counted by the folders of {folder} in alphabetical order: {advice}')
    numbers = [int(name) for name in folders if name.isdecimal()]
    if classes and len(numbers) == len(folders) and numbers != sorted(numbers) and folders != classes:
        raise ValueError(
            f'{folder}: mmpretrain sorts the class folders as texts ({listed(folders[:4])}), so that label 2 is '
            f'{folders[2]!r} and named {classes[2]!r} by {setting}: rename the folders to numbers of one length (00, '
            '01, 02 ...)'
        )
    return tuple(classes or folders)


# --- numbers: of the data sets, the model, the metrics ---


def class_complaints(cfg, sources: Sequence) -> Iterator[tuple[str, str]]:
    """Compares the classes of a config's data sets with each other and with every setting that counts them.

    Args:
        cfg: The config.
        sources: Its data sets (:class:`.sources.Source`), the training first.

    Yields:
        A setting, as `--cfg-options` has it; its value and the remedy.
    """
    sources, parts = [source for source in sources if source.classes], list(model_parts(cfg))
    if not sources or (cfg.get('model') and not parts) or cfg.default_scope not in APART:
        return  # a model for something else than the classes of its data
    others = list(_other_classes(sources))
    if others:  # which number is right is not known
        yield from others
        return
    for name in dict.fromkeys(f'{source.path.partition("_dataloader")[0]}_evaluator' for source in sources):
        parts += find_parts(cfg.get(name) or {}, name, METRICS, cfg.default_scope)
    for part in parts:
        for key, reason in _misfits(part, len(sources[0].classes)):
            yield f'{part.path}.{key}', reason


def model_parts(cfg) -> Iterator[Part]:
    """The parts of a model, and of its preprocessor, that may count the classes of the data."""
    apart, scope = APART.get(cfg.default_scope, ()), cfg.default_scope
    yield from find_parts(
        cfg.get('model') or {}, 'model', MODELS, scope, lambda part: part.name in apart or part.is_a(*apart)
    )
    # The one of the whole config is used where the model has none.
    if 'data_preprocessor' not in (cfg.get('model') or {}):
        yield from find_parts(cfg.get('data_preprocessor') or {}, 'data_preprocessor', MODELS, scope)


def _misfits(part: Part, number: int) -> Iterator[tuple[str, str]]:
    """The settings of a part that count other classes: their keys, and what they are and have to be."""
    count, topk = part.get('num_classes'), part.get('topk')
    # Backbones have num_classes=-1 for no classifier.
    if isinstance(count, int) and count > 0 and count != number:
        default = f'is not set, and the default of {getattr(part.kind, "__name__", "")} is {count}'
        yield 'num_classes', f'{f"= {count}" if "num_classes" in part.settings else default}: set it to {number}'
    counts = part.is_a('Accuracy') or (part.is_a('ClsHead') and part.get('cal_acc'))
    if counts and max(as_list(topk), default=0) > number:
        yield 'topk', f'= {topk!r}: set it to at most {number}'


def _other_classes(sources: Sequence) -> Iterator[tuple[str, str]]:
    """The data sets whose labels mean other classes than the labels of the one before, and what differs."""
    for one, other in pairwise(sources):
        # Where the files have no names of their own, the config's count.
        first, second = (one.labels, other.labels) if one.labels and other.labels else (one.classes, other.classes)
        if len(first) != len(second):
            yield other.path, f'has {len(second)} classes ({listed(second)}), and {one.path} {len(first)}'
        elif first != second:
            label = next(label for label, names in enumerate(zip(first, second, strict=True)) if len({*names}) > 1)
            yield (
                other.path,
                f'has other classes: label {label} is {second[label]!r} here and {first[label]!r} in {one.path}',
            )


def check_trained(path: str, trained: Sequence[str], classes: Sequence[str]) -> str:
    """Compares the classes of a data set with those that a checkpoint was trained on; says if they have other names.

    Raises:
        ValueError: If they are the same in another order.
    """
    pairs = enumerate(zip(map(str, trained), map(str, classes), strict=False))
    differing = [(label, pair) for label, pair in pairs if pair[0] != pair[1]]
    if not differing:
        return ''
    label, (before, now) = differing[0]
    said = f'{path}: label {label} is {before!r} in training and {now!r} in the data'
    if {*map(str, trained)} == {*map(str, classes)}:
        raise ValueError(f'{said}: the same classes in another order; set {_line_of(trained)}')
    return f'{said} ({len(differing)} of {len(classes)} differ)'
