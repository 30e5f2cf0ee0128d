"""The classes of a config: of its data, its files, its model and its metrics, compared with each other.

`metainfo.classes` of a config or the data set's own `METAINFO` name them. Labels are counted by the files::

    COCO file         mmdet counts the categories that are classes, in the order of the file
    folders           mmpretrain counts the folders of images, in alphabetical order

so names that the files lack, or have in another order, would silently train with wrong labels. mmengine compares no
setting with them: with a number of classes that is left over from other data, training ends in an IndexError, in the
middle of a validation, or with a model that is wrong.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise

from mmengine.registry import METRICS, MODELS

from vitplug.config.parts import Part, find_parts
from vitplug.spelling import hint

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


def match_categories(classes: Sequence[str], content: Mapping, file: str, path: str) -> None:
    """Compares the classes of a data set, by its place in the config, with a COCO file; ValueError if they differ."""
    categories = [str(category['name']) for category in content['categories']]
    used = [name for name in categories if name in classes]
    if missing := [name for name in classes if name not in categories]:
        advice = f': set it to {categories}, or those of them that are to be learnt'
        raise ValueError(
            f'{path}.metainfo.classes: {missing[0]!r} is not among the categories of {file}'
            f'{hint(missing[0], categories) or advice}'
        )
    if used != list(classes):
        raise ValueError(
            f'{path}.metainfo.classes: the categories of {file} have another order, and labels are counted by it: set '
            f'it to {used}'
        )


def check_folders(source) -> None:
    """Compares the classes of a data set (:class:`.Source`) with the folders that mmpretrain counts; ValueError."""
    classes, folders, setting = source.classes, source.folders, f'{source.path}.metainfo.classes'
    if hidden := [name for name in folders if name.startswith('.')]:
        raise ValueError(f'{setting}: mmpretrain takes the hidden folder {hidden[0]} for a class: remove it')
    if folders == classes:
        return
    if {*folders} == {*classes}:
        raise ValueError(f'{setting}: labels are counted by the folders in alphabetical order: set it to {folders}')
    if all(name.isdecimal() for name in folders) and sorted(folders, key=int) != [*folders]:
        raise ValueError(
            f'{setting}: mmpretrain sorts the class folders as texts, so that label 2 is {folders[2]!r} and named '
            f'{classes[2]!r}: rename the folders to numbers of one length (00, 01, 02 ...)'
        )


def class_complaints(cfg, sources: Sequence) -> Iterator[tuple[str, str]]:
    """Compares the classes of a config's data sets with each other and with every setting that counts them.

    Yields settings, as `--cfg-options` has them, each with its value and the remedy.
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
    number = len(sources[0].classes)
    ignored = {getattr(source.dataset, 'ignore_index', None) for source in sources}
    for part in parts:
        count, ignore = part.get('num_classes'), part.get('ignore_index')
        # Backbones have num_classes=-1 for no classifier.
        if isinstance(count, int) and count > 0 and count != number:
            yield f'{part.path}.num_classes', f'= {count}: set it to {number}'
        theirs = min(ignored - {None, ignore}, default=None)
        if part.is_a('BaseDecodeHead', 'IoUMetric') and ignore is not None and theirs is not None:
            yield (
                f'{part.path}.ignore_index',
                f'= {ignore}, and the data ignores {theirs}: set both to that of the label maps',
            )


def model_parts(cfg) -> Iterator[Part]:
    """The parts of a model, and of its preprocessor, that may count the classes of the data."""
    apart, scope = APART.get(cfg.default_scope, ()), cfg.default_scope
    yield from find_parts(
        cfg.get('model') or {}, 'model', MODELS, scope, lambda part: part.name in apart or part.is_a(*apart)
    )
    # The one of the whole config is used where the model has none.
    if 'data_preprocessor' not in (cfg.get('model') or {}):
        yield from find_parts(cfg.get('data_preprocessor') or {}, 'data_preprocessor', MODELS, scope)


def _other_classes(sources: Sequence) -> Iterator[tuple[str, str]]:
    """The data sets whose labels mean other classes than the labels of the one before, and what differs."""
    for one, other in pairwise(sources):
        # The folders of files count, whatever names they are given.
        first, second = (one.folders, other.folders) if one.folders and other.folders else (one.classes, other.classes)
        if len(first) != len(second):
            yield other.path, f'has {len(second)} classes, and {one.path} {len(first)}'
        elif first != second:
            label = next(label for label, names in enumerate(zip(first, second, strict=True)) if len({*names}) > 1)
            said = f'label {label} is {second[label]!r} here and {first[label]!r} in {one.path}'
            yield other.path, f'has other classes: {said}'


def check_trained(path: str, trained: Sequence[str], classes: Sequence[str]) -> str:
    """Says if the classes of a data set have other names than in training; ValueError if they have another order."""
    for label, (before, now) in enumerate(zip(trained, classes, strict=False)):
        if str(before) != str(now):
            said = f'{path}: label {label} is {before!r} in training and {now!r} in the data'
            if {*map(str, trained)} == {*map(str, classes)}:
                raise ValueError(f'{said}: the same classes in another order; set metainfo.classes to {trained}')
            return said
    return ''
