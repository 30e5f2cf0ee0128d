"""Settings that count classes, compared with the classes of the data.

mmengine compares none of them: with a count that is left over from another data set, training ends in an IndexError,
in the middle of a validation, or with a model that is wrong.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

from mmengine.registry import DATASETS, METRICS, MODELS, Registry

from vitplug.config.parts import Part, find_parts, loader_leaves, registered
from vitplug.tasks import TASKS
from vitplug.tasks.class_counts import NUMBER, UP_TO, ClassCounts, Place
from vitplug.tasks.classes import Classes, other_classes


@dataclass(frozen=True)
class Complaint:
    """A setting that does not fit the classes of the data.

    Attributes:
        setting: Its place, as `--cfg-options` has it.
        reason: Its value and the remedy.
    """

    setting: str
    reason: str

    def __str__(self) -> str:
        return f'{self.setting} {self.reason}'


def class_complaints(cfg, classes_by_path: Mapping[str, Classes]) -> Iterator[Complaint]:
    """Compares the classes of a config's data sets with each other and with every setting that counts them.

    Args:
        cfg: The config.
        classes_by_path: Classes by the place of their data set, such as ``'train_dataloader.dataset'``, the training
            first; data sets with unknown classes are left out.
    """
    task = TASKS.get(cfg.default_scope)
    if task is None or not classes_by_path:
        return
    counts = task.class_counts
    model = list(_model_parts(cfg, counts))
    if cfg.get('model') and not model:
        return  # a model for something else than the classes of its data
    others = [
        Complaint(path, f'has other classes: {difference}') for path, difference in other_classes(classes_by_path)
    ]
    if others:
        yield from others
        return
    classes = next(iter(classes_by_path.values()))
    splits = dict.fromkeys(path.partition('_dataloader')[0] for path in classes_by_path)
    metrics = (part for split in splits for part in _parts(cfg, f'{split}_evaluator', METRICS))
    yield from _compare(counts.model, model, classes)
    yield from _compare(counts.metrics, metrics, classes)
    yield from _compare(counts.dataset, (_metainfo(cfg, path) for path in classes_by_path), classes)


def count_of_model(cfg) -> int | None:
    """The number of classes of the model; None where its settings give no number or several."""
    task = TASKS.get(cfg.default_scope)
    parts = _model_parts(cfg, task.class_counts) if task else ()
    counts = {NUMBER.count(part.get('num_classes')) for part in parts} - {None}
    return counts.pop() if len(counts) == 1 else None


def _parts(
    cfg, name: str, registry: Registry, leave_out: Callable[[Part], bool] = lambda part: False
) -> Iterator[Part]:
    return find_parts(cfg.get(name) or {}, name, registry, cfg.default_scope, leave_out)


def _model_parts(cfg, counts: ClassCounts) -> Iterator[Part]:
    def is_apart(part: Part) -> bool:
        return part.name in counts.apart or part.is_a(*counts.apart)

    yield from _parts(cfg, 'model', MODELS, leave_out=is_apart)
    # The one of the whole config is used where the model has none.
    if 'data_preprocessor' not in (cfg.get('model') or {}):
        yield from _parts(cfg, 'data_preprocessor', MODELS)


def _metainfo(cfg, path: str) -> Part:
    """The `metainfo` of a data set in the config, with the class of the data set."""
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
    """The reason why a setting of a part does not fit; None if it fits or is not set."""
    value = part.get(place.key) if place.applies(part) else None
    count = None if value is None else place.measure.count(value)
    expected = place.expected(part, classes)
    if count is None or expected is None or place.measure.fits(count, expected):
        return None
    is_number = not isinstance(value, list | tuple) or place.measure is UP_TO
    stated = f'= {value!r}' if is_number else f'has {count} entries'
    if place.key not in part.settings:
        stated = f'is not set, and the default of {part.kind.__name__} is {value!r}'
    return f'{stated}: {place.measure.advice.format(expected)}'
