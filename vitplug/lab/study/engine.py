"""One loop over models, conditions and images; what is stored is not computed again."""

import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tqdm import tqdm

from vitplug.compat import replace
from vitplug.config.text import printable
from vitplug.stacks import installed
from vitplug.statistics.images import Arrays, evenly_spaced

from .conditions import Condition
from .measure import Measure, Seen
from .runs import Run, source_of
from .store import INTERVAL, Store, digest

# Training images that a bank of features is made of.
BANK = 1000
# In place of a measure: all of them.
EVERY = 'all measures'


class Study:
    """Measures of models under conditions.

    Args:
        store: Where the arrays of images are.
        bank: Training images of measures that search in them.

    Attributes:
        skipped: Images that could not be read, by number, with the reason: they are left out for all models.
        left_out: Why measures do not apply, by run, condition and measure.
    """

    def __init__(self, store: Store, bank: int = BANK):
        self.store, self.bank = store, bank
        self.skipped: dict[str, str] = {}
        self.left_out: dict[tuple[str, str, str], str] = {}
        self._changed: dict[tuple[Run, Condition], Run] = {}

    def evaluate(self, runs: Sequence[Run], conditions: Sequence[Condition], measures: Sequence[Measure]) -> None:
        """Does what is left to do; what is done is kept on an interruption."""
        steps = [(condition, run) for condition in conditions for run in runs]
        try:
            for condition, run in tqdm(steps, desc='study', unit='run', mininterval=1.0, disable=None):
                try:
                    changed = condition.change(run)
                except ValueError as error:  # a model without what the condition changes
                    self.left_out[run.label, condition.name, EVERY] = str(error)
                    continue
                self._one(changed, condition, measures)
                changed.cache.pop('backbone', None)  # a copy of the model may be large
                self._changed[run, condition] = replace(changed, model=run.model)
        finally:
            self.store.save()

    def changed(self, run: Run, condition: Condition) -> Run | None:
        """A run as a condition has changed it, without a copy of its model; None where it does not apply."""
        return self._changed.get((run, condition))

    def _one(self, run: Run, condition: Condition, measures: Sequence[Measure]) -> None:
        applying = []
        for measure in measures:
            reason = self._why_not(run, measure)
            if reason:
                self.left_out[run.label, condition.name, measure.name] = reason
            else:
                applying.append(measure)
        for measure in applying:
            if measure.bank:
                run.cache['bank', measure.name] = self._bank(run, measure)
        todo = {measure.name: self._todo(run, condition, measure) for measure in applying}
        self._watch(run, condition, [m for m in applying if not m.predicts], todo)
        self._predict(run, condition, [m for m in applying if m.predicts], todo)

    @staticmethod
    def _why_not(run: Run, measure: Measure) -> str:
        try:
            if (
                (measure.wants or measure.axes[:1] == ('layer',))
                and not run.is_plugged
                and set(measure.wants) - {'block'}
            ):
                return (
                    f'{type(run.backbone.network).__name__} has no sockets, which tell of more than outputs of blocks'
                )
            return measure.why_not(run)
        except ValueError as error:
            return str(error)

    # --- names ---

    def series(self, run: Run, condition: Condition, measure: Measure) -> str:
        """The name of a series: the hash of weights, settings, condition, definitions and bank."""
        base = run.base or run
        bank = run.cache.get(('bank', measure.name))
        return Store.series(
            (run.label, condition.name, measure.name),
            base.content,
            condition.key,
            repr(run.source),
            measure.code or CODE,
            digest(*bank) if bank else '',
            digest(*map(run.image_key, run.images)) if run.edits else '',  # means over other images
        )

    def units(self, run: Run, condition: Condition, measure: Measure) -> dict[tuple[int, ...], Arrays]:
        """What is there, by the numbers of the images of each unit."""
        kept = self.store.units(self.series(run, condition, measure))
        groups = {group: self._key(run, group) for group in self._groups(run, condition, measure)}
        return {group: kept[key] for group, key in groups.items() if key in kept}

    @staticmethod
    def _key(run: Run, group: Sequence[int]) -> str:
        keys = [run.image_key(index) for index in group]
        return keys[0] if len(keys) == 1 else digest(*keys)

    def _groups(self, run: Run, condition: Condition, measure: Measure) -> list[tuple[int, ...]]:
        """The images of each unit of a measure."""
        images = [index for index in run.images if run.image_key(index) not in self.skipped]
        if measure.one_size:
            images = self._of_one_size(run, condition, images)
        if measure.most:
            images = [images[at] for at in evenly_spaced(len(images), measure.most)]
        if measure.groups:
            return [tuple(images[at] for at in group) for group in measure.groups(len(images))]
        return [(index,) for index in images]

    def _of_one_size(self, run: Run, condition: Condition, images: Sequence[int]) -> list[int]:
        sizes = {index: self._size(run, condition, index) for index in images}
        sizes = {index: size for index, size in sizes.items() if size}
        if not sizes:
            return []
        [(most, _)] = Counter(sizes.values()).most_common(1)
        return [index for index, size in sizes.items() if size == most]

    def _size(self, run: Run, condition: Condition, index: int) -> tuple[int, int] | None:
        series = Store.series((run.label, condition.name, 'sizes'), run.content, condition.key, repr(run.source), CODE)
        key = run.image_key(index)
        if key not in self.store.units(series):
            seen = self._seen(run, index)
            if seen is None:
                return None
            self.store.add(series, key, dict(size=np.array(seen.size)))
        return tuple(self.store.units(series)[key]['size'].tolist())

    def _todo(self, run: Run, condition: Condition, measure: Measure) -> list[tuple[int, ...]]:
        there = self.units(run, condition, measure)
        return [group for group in self._groups(run, condition, measure) if group not in there]

    # --- images ---

    def _seen(self, run: Run, index: int) -> Seen | None:
        """One image; None if it cannot be read, which is said and counted."""
        try:
            return Seen(run, index, run.batch([index]))
        except Exception as error:  # transforms and decoders of any kind
            info = run.dataset.get_data_info(index)
            name = str(info.get('img_path') or f'image {index}')
            self.skipped[run.image_key(index)] = f'{name}: {type(error).__name__}: {" ".join(str(error).split())}'
            tqdm.write(printable(f'cannot use {self.skipped[run.image_key(index)]}'), file=sys.stderr)
            if len(self.skipped) == len(run.images):
                raise ValueError(f'none of {len(run.images)} images can be used: {name}: {error}') from error
            return None

    def _watch(self, run: Run, condition: Condition, measures: Sequence[Measure], todo: Mapping) -> None:
        """One image at a time through the backbone; intermediates are reduced while they exist."""
        waiting: dict[str, dict[tuple[int, ...], list[Any]]] = {measure.name: {} for measure in measures}
        group_of = {m.name: {index: group for group in todo[m.name] for index in group} for m in measures}
        wanted = sorted({index for m in measures for index in group_of[m.name]})
        for index in tqdm(wanted, desc=f'{run.label}, {condition.name}', unit='image', leave=False, disable=None):
            seen = self._seen(run, index)
            if seen is None:
                continue
            now = [m for m in measures if index in group_of[m.name]]
            found = record(seen, now)
            for measure in now:
                group = group_of[measure.name][index]
                one = Seen(run, index, seen.batch, found=found[measure.name])
                one.__dict__['inputs'] = seen.inputs
                observed = waiting[measure.name].setdefault(group, [])
                observed.append(measure.observe(one))
                if len(observed) == len(group):
                    arrays = measure.join(waiting[measure.name].pop(group)) if measure.join else observed[0]
                    self.store.add(self.series(run, condition, measure), self._key(run, group), arrays)
            self.store.save(at_least=INTERVAL)

    def _predict(self, run: Run, condition: Condition, measures: Sequence[Measure], todo: Mapping) -> None:
        """Images through the whole model, in the batches of a test: whole ones, so that a second call is equal."""
        for some in ([m for m in measures if not m.alone], [m for m in measures if m.alone]):
            open_images = {index for measure in some for group in todo[measure.name] for index in group}
            size = 1 if run.edits or any(measure.alone for measure in some) else run.batch_size
            batches = [part for part in _batches(run.images, size) if open_images & set(part)]
            for part in tqdm(batches, desc=f'{run.label}, {condition.name}', unit='batch', leave=False, disable=None):
                seens = [seen for index in part if (seen := self._seen(run, index)) is not None]
                if not seens:
                    continue
                batch = _joined([seen.batch for seen in seens])
                samples = run.predict(batch, [seen.index for seen in seens])
                for seen, sample in zip(seens, samples, strict=True):
                    seen.sample = sample
                    for measure in some:
                        if (seen.index,) in todo[measure.name]:
                            series = self.series(run, condition, measure)
                            self.store.add(series, self._key(run, (seen.index,)), measure.observe(seen))
                self.store.save(at_least=INTERVAL)

    def _bank(self, run: Run, measure: Measure) -> list[str]:
        """Observes training images for a measure; keeps their units in the run, and gives their names."""
        train = replace(run, source=source_of(run.cfg, 'train'), num=self.bank, cache={}, attack=None, edits=None)
        clean = Condition('training images')
        _check_apart(train, run)
        self._watch(train, clean, [measure.bank], {measure.bank.name: self._todo(train, clean, measure.bank)})
        units = self.units(train, clean, measure.bank)
        run.cache['bank'] = list(units.values())
        return [self.series(train, clean, measure.bank), *(self._key(train, group) for group in units)]


def _batches(images: Sequence[int], size: int) -> Iterator[Sequence[int]]:
    return (images[first : first + size] for first in range(0, len(images), size))


def _joined(batches: Sequence[Mapping]) -> dict:
    return {key: [item for batch in batches for item in batch[key]] for key in batches[0]}


def _check_apart(train: Run, test: Run) -> None:
    """Checks that no test image is a training image.

    Raises:
        ValueError: If one is; names how many.
    """
    keys = [{run.image_key(index).partition('-')[2] for index in run.images} for run in (train, test)]
    if both := keys[0] & keys[1]:
        raise ValueError(
            f'{test.label}: {len(both)} images are in train_dataloader and are tested, too: a bank that has the test '
            'images measures nothing; name other data with --images'
        )


@torch.no_grad()
def record(seen: Seen, measures: Sequence[Measure]) -> dict[str, dict[str, dict[int, Any]]]:
    """One forward of the backbone, whose intermediates go to all measures that want them, block by block."""
    found: dict[str, dict[str, dict[int, Any]]] = {measure.name: {} for measure in measures}
    names = sorted({name for measure in measures for name in measure.wants})
    if not names:
        return found
    run = seen.run

    def reduce(name, tensor, site) -> None:
        place = run.place(site.index, seen.size)
        for measure in measures:
            if name in measure.wants:
                found[measure.name].setdefault(name, {})[site.index] = measure.reduce(run, name, tensor, place)

    with run.editing(seen.index):
        run.backbone.forward_intermediates(seen.inputs, names, reduce=reduce)
    return found


def _code() -> str:
    """Hash of the definitions: the sources of this room, and the version of the package below it."""
    files = sorted(Path(__file__).parent.rglob('*.py'))
    return digest(*(file.read_bytes() for file in files), repr(installed(['vitplug', 'torch'])))


CODE = _code()
