"""One loop over models, conditions and images; what is stored is not computed again."""

import sys
from collections import Counter, defaultdict
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tqdm import tqdm

from vitplug.errors import printable
from vitplug.stacks import installed
from vitplug.statistics.images import Arrays, evenly_spaced

from .conditions import Condition
from .measure import Measure, Seen
from .runs import Run, source_of
from .store import INTERVAL, Store, digest

# Training images that a bank of features is made of.
BANK = 1000
# A size of images that all models take.
PROBE = 256, 256
# In place of a measure: all of them.
EVERY = 'all measures'
# What tells which images are of the most frequent size.
SIZES = Measure('sizes', 'Height and width of the inputs', 'pixels', '', lambda seen: {'size': np.array(seen.size)})


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
                applying = [measure for measure in measures if self._prepared(changed, condition, measure)]
                for predicts in (False, True):
                    self._go(changed, condition, [m for m in applying if m.predicts == predicts], predicts)
                changed.cache.pop('backbone', None)  # a copy of the model may be large
                self._changed[run, condition] = replace(changed, model=run.model)
        finally:
            self.store.save()

    def changed(self, run: Run, condition: Condition) -> Run | None:
        """A run as a condition has changed it, without a copy of its model; None where it does not apply."""
        return self._changed.get((run, condition))

    def _prepared(self, run: Run, condition: Condition, measure: Measure) -> bool:
        """Whether a measure applies, which is said if not; learns what it needs besides the images."""
        try:
            reason = measure.why_not(run)
            if not reason and not run.is_plugged and set(measure.wants) - {'block'}:
                network = type(run.backbone.network).__name__
                reason = f'{network} has no sockets, which tell of more than outputs of blocks'
            if not reason and measure.one_size:
                self._go(run, condition, [SIZES])
            if not reason and measure.wants and run.is_plugged:
                run.backbone.pixels(PROBE)  # refuses where the place of tokens is not known
            if not reason and measure.bank:
                run.cache['bank', measure.name] = self._learn(run, condition, measure.bank)
            if not reason:
                self._groups(run, condition, measure)  # too few images
        except ValueError as error:
            reason = str(error)
        if reason:
            self.left_out[run.label, condition.name, measure.name] = reason
        return not reason

    def _learn(self, run: Run, condition: Condition, bank: Measure) -> list[str]:
        """Observes training images; keeps their units in the run, and gives their names.

        A condition that changes the model changes it for them, too; what it does to images, it does to tested ones
        alone.
        """
        base, source = run.base or run, source_of(run.cfg, 'train')
        train = replace(run, source=source, pipeline=base.pipeline, num=self.bank, cache={}, attack=None)
        images = [set(map(one.content_of, one.images)) for one in (train, run)]
        if both := images[0] & images[1]:
            raise ValueError(
                f'{run.label}: {len(both)} images are in train_dataloader and are tested, too: a bank that has the '
                'test images measures nothing; name other data with --images'
            )
        of_model = condition.key if run.edits or run.model is not base.model else ''
        trained = Condition('training images', content=of_model)
        self._go(train, trained, [bank])
        units = self.units(train, trained, bank)
        run.cache['bank'] = list(units.values())
        return [self.series(train, trained, bank), *(self._key(train, group) for group in units)]

    # --- names ---

    def series(self, run: Run, condition: Condition, measure: Measure) -> str:
        """The name of a series: the hash of weights, settings, condition, definitions and bank."""
        return Store.series(
            (run.label, condition.name, measure.name),
            (run.base or run).content,
            condition.key,
            repr(run.source),
            CODE,
            measure.code,
            *run.cache.get(('bank', measure.name), ()),
            *(map(run.image_key, run.images) if run.edits else ()),  # means over other images
        )

    def units(self, run: Run, condition: Condition, measure: Measure) -> dict[tuple[int, ...], Arrays]:
        """What is there, by the numbers of the images of each unit."""
        if (run.label, condition.name, measure.name) in self.left_out:
            return {}
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
            sizes = {i: tuple(unit['size'].tolist()) for (i,), unit in self.units(run, condition, SIZES).items()}
            most = Counter(sizes.values()).most_common(1)
            images = [index for index in images if most and sizes.get(index) == most[0][0]]
        if measure.most:
            images = [images[at] for at in evenly_spaced(len(images), measure.most)]
        groups = measure.groups(len(images)) if measure.groups else [[at] for at in range(len(images))]
        return [tuple(images[at] for at in group) for group in groups]

    # --- images ---

    def _go(self, run: Run, condition: Condition, measures: Sequence[Measure], predicts: bool = False) -> None:
        """Observes what is missing: one image at a time, or the whole batches of a test where images are predicted.

        A batch with a missing image is predicted as a whole, so that a second call gives equal numbers.
        """
        todo: dict[str, dict[int, tuple[int, ...]]] = {}
        for measure in measures:
            there = self.units(run, condition, measure)
            missing = [group for group in self._groups(run, condition, measure) if group not in there]
            todo[measure.name] = {index: group for group in missing for index in group}
        wanted, images = {index for groups in todo.values() for index in groups}, run.images
        size = run.batch_size if predicts and not run.edits else 1
        parts = [images[first : first + size] for first in range(0, len(images), size)]
        parts = [part for part in parts if wanted & set(part)]
        observed: dict[tuple[str, tuple[int, ...]], list[Any]] = defaultdict(list)
        for part in tqdm(parts, desc=f'{run.label}, {condition.name}', leave=False, disable=None):
            for seen in self._seen(run, part, predicts):
                now = [measure for measure in measures if seen.index in todo[measure.name]]
                with nullcontext() if predicts else run.editing(seen.index):
                    found = {} if predicts else record(seen, now)
                    for measure in now:
                        seen.found = found.get(measure.name, {})
                        group = todo[measure.name][seen.index]
                        observed[measure.name, group].append(measure.observe(seen))
                for measure in now:
                    group = todo[measure.name][seen.index]
                    if len(observed[measure.name, group]) == len(group):
                        arrays = observed.pop((measure.name, group))
                        joined = measure.join(arrays) if measure.join else arrays[0]
                        self.store.add(self.series(run, condition, measure), self._key(run, group), joined)
            self.store.save(at_least=INTERVAL)

    def _seen(self, run: Run, indices: Sequence[int], predicts: bool) -> list[Seen]:
        """Images that can be read, with predictions if wanted; others are named and counted."""
        seens = []
        for index in indices:
            try:
                seens.append(Seen(run, index, run.batch([index])))
            except Exception as error:  # transforms and decoders of any kind
                self._skip(run, index, error)
        if not seens or not (run.attack or predicts):
            return seens
        batch = {key: [item for seen in seens for item in seen.batch[key]] for key in seens[0].batch}
        if run.attack:
            try:
                batch = run.attacked(batch)
            except ValueError as error:  # of an image without a gradient
                if len(seens) > 1:
                    return [one for seen in seens for one in self._seen(run, [seen.index], predicts)]
                self._skip(run, seens[0].index, error)
                return []
            for seen, pixels in zip(seens, batch['inputs'], strict=True):
                seen.batch = dict(seen.batch, inputs=[pixels])
        if predicts:
            for seen, sample in zip(seens, run.predict(batch, [seen.index for seen in seens]), strict=True):
                seen.sample = sample
        return seens

    def _skip(self, run: Run, index: int, error: Exception) -> None:
        name = str(run.dataset.get_data_info(index).get('img_path') or f'image {index}')
        words = f'{name}: {type(error).__name__}: {" ".join(str(error).split())}'
        if run.image_key(index) not in self.skipped:
            tqdm.write(printable(f'cannot use {words}'), file=sys.stderr)
        self.skipped[run.image_key(index)] = words
        if len(self.skipped) == len(run.images):
            raise ValueError(f'none of {len(run.images)} images can be used: {words}') from error


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

    run.backbone.forward_intermediates(seen.inputs, names, reduce=reduce)
    return found


def _code() -> str:
    """Hash of what computes: the package's sources, plugs among them, and torch's version."""
    sources = sorted(Path(__file__).parents[2].rglob('*.py'))
    return digest(*(source.read_bytes() for source in sources), repr(installed(['vitplug', 'torch'])))


CODE = _code()
