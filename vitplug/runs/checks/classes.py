"""The classes of a config: of its data, its files, its model and its metrics, compared with each other.

The files count labels: mmdet the categories that are classes, in the order of a COCO file, and mmpretrain the folders
of images, in alphabetical order. mmengine compares no setting with them: labels would be wrong without a word, or a
training end in an IndexError.
"""

from collections.abc import Mapping, Sequence
from itertools import pairwise, zip_longest

from mmengine.registry import METRICS, MODELS

from vitplug.config.parts import Part, parts_in

# By library: parts, by their keys or classes, that count something else than the classes of the data.
APART = {
    # Each task of several has its own classes, and necks count the entries of a code book or of an embedding.
    'mmpretrain': ('task_heads', 'neck', 'text_neck', 'vision_neck'),
    # STDC's second head finds borders. SAN classifies by words: it is compared with nothing.
    'mmseg': ('STDCHead', 'MultimodalEncoderDecoder'),
    # Proposals have no class, and HTC's semantic head learns the classes of COCO-stuff. Trackers tell persons apart,
    # and GLIP and Grounding DINO count words: they are compared with nothing.
    'mmdet': ('rpn_head', 'semantic_head', 'BaseMOTModel', 'GLIP', 'GroundingDINO'),
}


def model_parts(cfg) -> list[Part]:
    """The parts of a model, and of its preprocessor, that may count the classes of the data."""
    scope = cfg.default_scope
    parts = [*parts_in(cfg.get('model'), 'model', MODELS, scope, APART.get(scope, ()))]
    # A preprocessor of the whole config is one of the model.
    outer = parts_in(cfg.get('data_preprocessor'), 'data_preprocessor', MODELS, scope)
    return [*parts, *outer] if parts else []


def differing(ours: Sequence[str], theirs: Sequence[str], other: str) -> str:
    """The first label with two names, in words, where ``other`` is the place of the second list; '' if all agree."""
    for label, names in enumerate(zip_longest(ours, theirs)):
        if len({*names}) > 1:
            here, there = ('no class' if name is None else repr(name) for name in names)
            return f'label {label} is {here} here and {there} in {other}'
    return ''


def check_categories(path: str, classes: Sequence[str], content: Mapping, file: str) -> None:
    """Compares the classes of a data set, by its place in the config, with a COCO file; ValueError if they differ."""
    categories = [str(category['name']) for category in content['categories']]
    if said := differing(classes, [name for name in categories if name in classes], file):
        raise ValueError(
            f'{path}.metainfo.classes: {said}: set it to {categories}, or to those of them that are to be learnt, in '
            'this order'
        )


def check_folders(path: str, classes: Sequence[str], folders: Sequence[str]) -> None:
    """Compares the classes of a data set, which may have other names, with the folders of mmpretrain; ValueError."""
    setting, said = f'{path}.metainfo.classes', differing(classes, folders, 'the folders, which are sorted as texts')
    if hidden := [name for name in folders if name.startswith('.')]:
        raise ValueError(f'{setting}: mmpretrain takes the hidden folder {hidden[0]} for a class: remove it')
    if said and {*folders} == {*classes}:
        raise ValueError(f'{setting}: {said}: set it to {folders}')
    by_number = sorted(folders, key=int) if all(name.isdecimal() for name in folders) else folders
    moved = [label for label, name in enumerate(by_number) if name != folders[label]]
    if said and moved:
        label = moved[0]
        raise ValueError(
            f'{setting}: mmpretrain sorts the class folders as texts, so that label {label} is {folders[label]!r} and '
            f'named {classes[label]!r}: rename the folders to numbers of one length (00, 01, 02 ...)'
        )


def check_trained(path: str, trained: Sequence[str], classes: Sequence[str]) -> str:
    """Says if the classes of a data set have other names than in training; ValueError if they have another order."""
    names = [*map(str, trained)]
    said = differing([*map(str, classes)], names, f'the training of {path}')
    if said and {*names} == {*map(str, classes)}:
        raise ValueError(f'{said}: the same classes in another order; set metainfo.classes to {names}')
    return said


def class_complaints(cfg, sources: Sequence) -> list[str]:
    """Compares the classes of a config's data sets (:class:`.Source`) with each other and with the settings that count.

    Returns:
        Settings, as `--cfg-options` has them, each with its value and the remedy.
    """
    sources, parts = [source for source in sources if source.classes], model_parts(cfg)
    if not sources or (cfg.get('model') and not parts) or cfg.default_scope not in APART:
        return []  # a model for something else than the classes of its data
    for one, other in pairwise(sources):
        # The folders of files count, whatever names they are given.
        kind = 'folders' if one.folders and other.folders else 'classes'
        if said := differing(getattr(other, kind), getattr(one, kind), one.path):
            return [f'{other.path} has other classes: {said}']  # which number is right is not known
    for name in dict.fromkeys(f'{source.path.partition("_dataloader")[0]}_evaluator' for source in sources):
        parts += parts_in(cfg.get(name), name, METRICS, cfg.default_scope)
    number, found = len(sources[0].classes), []
    ignored = {getattr(source.dataset, 'ignore_index', None) for source in sources} - {None}
    for part in parts:
        count, ignore = part.get('num_classes'), part.get('ignore_index')
        # Backbones have num_classes=-1 for no classifier.
        if isinstance(count, int) and count > 0 and count != number:
            found.append(f'{part.path}.num_classes = {count}: set it to {number}')
        if part.goes_by('BaseDecodeHead', 'IoUMetric') and ignore is not None and ignored - {ignore}:
            theirs = min(ignored - {ignore})
            found.append(
                f'{part.path}.ignore_index = {ignore}, and the data ignores {theirs}: set both to that of the maps'
            )
    return found
