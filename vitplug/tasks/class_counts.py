"""Settings that count classes, compared with the classes of the data.

mmengine compares none of them: with a count that is left over from another data set, training ends in an IndexError,
in the middle of a validation, or with a model that is wrong.
"""

import operator
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from numbers import Real

from mmengine.registry import DATASETS, METRICS, MODELS, Registry

from .classes import Classes, other_classes
from .config_parts import Part, as_list, find_parts, loader_leaves, registered

# --- how a setting counts ---


@dataclass(frozen=True)
class Measure:
    """How a setting counts classes.

    Attributes:
        count: The count in a value; None where the value is of another kind and counts nothing.
        fits: Compares it with the one that is expected.
        advice: What to do, with the expected count for `{}`.
    """

    count: Callable[[object], int | None]
    fits: Callable[[int, int], bool]
    advice: str


def _number(value) -> int | None:
    # Backbones have num_classes=-1 for no classifier.
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else None


def _length(value) -> int | None:
    return len(value) if isinstance(value, list | tuple) else None


def _colours(value) -> int | None:
    """A palette of no colours is drawn at random, and a tuple of numbers is the one colour of all classes."""
    return len(value) if isinstance(value, list | tuple) and value and not isinstance(value[0], Real) else None


def _largest(value) -> int | None:
    return max(as_list(value), default=None)


NUMBER = Measure(_number, operator.eq, 'set it to {}')
ENTRIES = Measure(_length, operator.eq, 'give it {}')
UP_TO = Measure(_largest, operator.le, 'set it to at most {}')
COLOURS = Measure(_colours, operator.eq, 'give it {}')
ENOUGH_COLOURS = Measure(_colours, operator.ge, 'give it at least {}')

# --- what differs between the three libraries ---

Expected = Callable[[Part, Classes], int | None]


def every_class(part: Part, classes: Classes) -> int:
    return len(classes)


def things(part: Part, classes: Classes) -> int:
    return classes.things


def stuff(part: Part, classes: Classes) -> int:
    return len(classes) - classes.things


@dataclass(frozen=True)
class Place:
    """A setting that counts classes.

    Attributes:
        key: Its name.
        measure: How it counts.
        expected: The count that it must have; None where that is not known.
        applies: Whether a part of a config has this setting and uses it.
    """

    key: str
    measure: Measure = NUMBER
    expected: Expected = every_class
    applies: Callable[[Part], bool] = lambda part: True


@dataclass(frozen=True)
class Library:
    """The settings of a library that count classes.

    Attributes:
        model: Those in the model and its data preprocessor.
        metrics: Those of metrics.
        dataset: Those of data sets.
        apart: Names of settings and of classes in which other things are counted than the classes of the data set.
    """

    model: tuple[Place, ...]
    metrics: tuple[Place, ...]
    dataset: tuple[Place, ...]
    apart: frozenset[str] = frozenset()


def _of(*names: str) -> Callable[[Part], bool]:
    return lambda part: part.is_a(*names)


def _foreground_and_background(part: Part, classes: Classes) -> int | None:
    """Class weights of a detector: its last class is the background, unless each class has a sigmoid of its own."""
    if classes.things < len(classes):
        return None  # a panoptic detector has heads for all classes and heads for things
    return len(classes) + (not part.get('use_sigmoid'))


def _with_no_object(part: Part, classes: Classes) -> int:
    """Class weights of mmseg: a head that classifies masks has one more, for masks of nothing."""
    return len(classes) + (part.name == 'loss_cls')


def _reports_accuracy(part: Part) -> bool:
    return part.is_a('ClsHead') and bool(part.get('cal_acc'))


def _has_own_classes(part: Part) -> bool:
    return bool((getattr(part.kind, 'METAINFO', None) or {}).get('classes'))


# Metrics of mmpretrain, which the other libraries use as well.
METRICS_OF_IMAGES = (
    Place('topk', UP_TO, applies=_of('Accuracy')),
    Place('num_classes', applies=_of('SingleLabelMetric', 'ConfusionMatrix')),
)
LIBRARIES = {
    'mmpretrain': Library(
        model=(
            Place('num_classes'),
            Place('class_weight', ENTRIES),
            Place('topk', UP_TO, applies=_reports_accuracy),
        ),
        metrics=METRICS_OF_IMAGES,
        dataset=(),
        # Each task of several has its own classes, and necks count the entries of a code book or of an embedding.
        apart=frozenset(('task_heads', 'neck', 'text_neck', 'vision_neck')),
    ),
    'mmseg': Library(
        model=(Place('num_classes'), Place('class_weight', ENTRIES, _with_no_object)),
        metrics=METRICS_OF_IMAGES,
        dataset=(
            Place('palette', COLOURS, applies=lambda part: not _has_own_classes(part)),
            # The palette of all of them, of which it takes those of the classes that are used.
            Place('palette', ENOUGH_COLOURS, applies=_has_own_classes),
        ),
        # STDC's second head finds borders. SAN classifies by words: it is compared with nothing.
        apart=frozenset(('STDCHead', 'MultimodalEncoderDecoder')),
    ),
    'mmdet': Library(
        model=(
            Place('num_classes', expected=things),
            Place('num_things_classes', expected=things),
            Place('num_stuff_classes', expected=stuff),
            Place('class_weight', ENTRIES, _foreground_and_background),
        ),
        metrics=METRICS_OF_IMAGES,
        dataset=(Place('palette', ENOUGH_COLOURS),),
        # Proposals have no class, and HTC's semantic head learns the classes of COCO-stuff. Trackers tell persons
        # apart, and GLIP and Grounding DINO count words: they are compared with nothing.
        apart=frozenset(('rpn_head', 'semantic_head', 'BaseMOTModel', 'GLIP', 'GroundingDINO')),
    ),
}

# --- the comparison ---


@dataclass(frozen=True)
class Complaint:
    """A setting that does not fit the classes of the data.

    Attributes:
        setting: Its place, as `--cfg-options` has it.
        reason: What it is and what to do.
    """

    setting: str
    reason: str

    def __str__(self) -> str:
        return f'{self.setting} {self.reason}'


def class_complaints(cfg, found: Mapping[str, Classes]) -> Iterator[Complaint]:
    """Compares the classes of a config's data sets with each other and with every setting that counts them.

    Args:
        cfg: The config.
        found: Classes by the place of their data set, such as ``'train_dataloader.dataset'``, those of the training
            first; without data sets that do not tell theirs.
    """
    library = LIBRARIES.get(cfg.default_scope)
    if library is None or not found:
        return
    model = list(_model_parts(cfg, library))
    if cfg.get('model') and not model:
        return  # a model for something else than the classes of its data
    others = [Complaint(path, f'has other classes: {difference}') for path, difference in other_classes(found)]
    if others:
        yield from others
        return
    classes = next(iter(found.values()))
    splits = dict.fromkeys(path.partition('_dataloader')[0] for path in found)
    metrics = (part for split in splits for part in _parts(cfg, f'{split}_evaluator', METRICS))
    yield from _compare(library.model, model, classes)
    yield from _compare(library.metrics, metrics, classes)
    yield from _compare(library.dataset, (_metainfo(cfg, path) for path in found), classes)


def count_of_model(cfg) -> int | None:
    """The number of classes that the model is for, None where its settings give none or several."""
    library = LIBRARIES.get(cfg.default_scope)
    parts = _model_parts(cfg, library) if library else ()
    counts = {_number(part.get('num_classes')) for part in parts} - {None}
    return counts.pop() if len(counts) == 1 else None


def _parts(
    cfg, name: str, registry: Registry, leave_out: Callable[[Part], bool] = lambda part: False
) -> Iterator[Part]:
    return find_parts(cfg.get(name) or {}, name, registry, cfg.default_scope, leave_out)


def _model_parts(cfg, library: Library) -> Iterator[Part]:
    def is_apart(part: Part) -> bool:
        return part.name in library.apart or part.is_a(*library.apart)

    yield from _parts(cfg, 'model', MODELS, leave_out=is_apart)
    # The one of the whole config is used where the model has none.
    if 'data_preprocessor' not in (cfg.get('model') or {}):
        yield from _parts(cfg, 'data_preprocessor', MODELS)


def _metainfo(cfg, path: str) -> Part:
    """What the config says of a data set, with the class of the data set."""
    split = path.partition('_dataloader')[0]
    settings = dict(loader_leaves(cfg, split))[path]
    kind = registered(DATASETS, settings.get('type'), cfg.default_scope)
    return Part(f'{path}.metainfo', settings.get('metainfo') or {}, kind)


def _compare(places: Iterable[Place], parts: Iterable[Part], classes: Classes) -> Iterator[Complaint]:
    for part in parts:
        for place in places:
            reason = _misfit(place, part, classes)
            if reason:
                yield Complaint(f'{part.path}.{place.key}', reason)


def _misfit(place: Place, part: Part, classes: Classes) -> str | None:
    """What is wrong with a setting of a part, None if nothing is or it is not set."""
    value = part.get(place.key) if place.applies(part) else None
    count = None if value is None else place.measure.count(value)
    expected = place.expected(part, classes)
    if count is None or expected is None or place.measure.fits(count, expected):
        return None
    is_number = not isinstance(value, list | tuple) or place.measure is UP_TO
    told = f'= {value!r}' if is_number else f'has {count} entries'
    if place.key not in part.settings:
        told = f'is not set, and the default of {part.kind.__name__} is {value!r}'
    return f'{told}: {place.measure.advice.format(expected)}'
