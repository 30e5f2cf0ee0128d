"""One loop over models, conditions and images; what is stored is not computed again."""

import itertools
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tqdm import tqdm

from vitplug.errors import printable
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


@dataclass(eq=False)
class Study:
    """Measures of models under conditions.

    Attributes:
        store: Where the arrays of images are.
        runs: The models; others are compared with the first.
        conditions: The conditions, clean images first.
        measures: The measures.
        bank: Training images of measures that search in them.
        skipped: Images that could not be read, by number, with the reason: they are left out for all models.
        left_out: Why measures do not apply, by run, condition and measure.
        found: What each image gave, by model, condition and measure.
    """

    store: Store
    runs: Sequence[Run]
    conditions: Sequence[Condition]
    measures: Sequence[Measure]
    bank: int = BANK
    skipped: dict[str, str] = field(default_factory=dict)
    left_out: dict[tuple[str, str, str], str] = field(default_factory=dict)
    found: list[tuple[Run, Condition, dict[Measure, list[Arrays]]]] = field(default_factory=list)

    def evaluate(self) -> None:
        """Does what is left to do; what is done is kept on an interruption.

        An image that is left out late, as one that an attack cannot change, leaves the groups of images that ran before
        without it: they are made again.
        """
        self.conditions = [self._settled(one) for one in self.conditions]
        known = None
        try:
            while known != len(self.skipped):
                known = len(self.skipped)
                self.found, self.left_out = [], {}
                self._evaluate_once()
        finally:
            self.store.save()

    def _settled(self, condition: Condition) -> Condition:
        """A condition as the first model makes it; one that applies to no model, if it cannot."""
        if condition.of_first is None:
            return condition
        try:
            return condition.of_first(self.runs[0])
        except ValueError as error:
            return replace(condition, of_first=None, change=partial(_refuse, str(error)))

    def _evaluate_once(self) -> None:
        for run, condition in itertools.product(self.runs, self.conditions):
            try:
                changed = condition.change(run)
            except ValueError as error:  # a model without what the condition changes
                self.left_out[run.label, condition.name, EVERY] = str(error)
                continue
            applying = [measure for measure in self.measures if self._prepared(changed, condition, measure)]
            self._go(changed, condition, applying)
            units = {measure: list(self._units(changed, condition, measure).values()) for measure in applying}
            self.found.append((run, condition, units))

    def units(self, measure: Measure) -> Iterator[tuple[Run, Condition, list[Arrays]]]:
        """What each image gave for a measure, by run and condition."""
        for run, condition, found in self.found:
            if found.get(measure):
                yield run, condition, found[measure]

    def _prepared(self, run: Run, condition: Condition, measure: Measure) -> bool:
        """Whether a measure applies, which is said if not; learns what it needs besides the images."""
        try:
            if reason := measure.why_not(run):
                raise ValueError(reason)
            if (run.edits or set(measure.wants) - {'block'}) and not run.is_plugged:
                raise ValueError(f'{run.label} has no sockets, which tell of more than outputs of blocks')
            if measure.wants and run.is_plugged:
                run.backbone.pixels(PROBE)  # refuses where the place of tokens is not known
            if measure.one_size:
                self._go(run, condition, [SIZES])
            if measure.bank:
                run.cache['bank', measure.name] = self._learn(run, condition, measure.bank)
            self._names(run, condition, measure)  # refuses too few images
        except ValueError as error:
            self.left_out[run.label, condition.name, measure.name] = str(error)
            return False
        return True

    def _learn(self, run: Run, condition: Condition, bank: Measure) -> list[str]:
        """Observes training images; keeps their units in the run, and gives their names.

        A condition that changes the model changes it for them, too; what it does to images, it does to tested ones
        alone.
        """
        base, source = run.base or run, source_of(run.cfg, 'train')
        train = replace(run, source=source, pipeline=base.pipeline, num=self.bank, cache={}, attack=None)
        images = [set(map(one.content_of, one.images)) for one in (train, run)]
        if both := images[0] & images[1]:
            raise ValueError(f'{run.label}: {len(both)} images are in train_dataloader and are tested, too')
        of_model = condition.key if run.edits or run.model is not base.model else ''
        trained = Condition('training images', code=of_model)
        self._go(train, trained, [bank])
        units = self._units(train, trained, bank)
        run.cache['bank'] = list(units.values())
        return [self._series(train, trained, bank), *self._names(train, trained, bank).values()]

    # --- names ---

    def _series(self, run: Run, condition: Condition, measure: Measure) -> str:
        """The name of a series: the hash of weights, settings, condition, definitions and bank."""
        return Store.series(
            (run.label, condition.name, measure.name),
            (run.base or run).content,
            condition.key,
            repr(run.source),
            CODE,
            measure.code,
            *run.cache.get(('bank', measure.name), ()),
        )

    def _units(self, run: Run, condition: Condition, measure: Measure) -> dict[tuple[int, ...], Arrays]:
        """What is there, by the numbers of the images of each unit."""
        kept = self.store.units(self._series(run, condition, measure))
        return {group: kept[key] for group, key in self._names(run, condition, measure).items() if key in kept}

    def _names(self, run: Run, condition: Condition, measure: Measure) -> dict[tuple[int, ...], str]:
        """The images of each unit of a measure, and its name, the hash of their content."""
        images = [index for index in run.images if run.image_key(index) not in self.skipped]
        if measure.one_size:
            sizes = {i: tuple(unit['size']) for (i,), unit in self._units(run, condition, SIZES).items()}
            [(most, _)] = Counter(sizes.values()).most_common(1)
            images = [index for index in images if sizes.get(index) == most]
        if measure.most:
            images = [images[at] for at in evenly_spaced(len(images), measure.most)]
        if not measure.groups:
            return {(index,): run.image_key(index) for index in images}
        groups = [tuple(images[at] for at in group) for group in measure.groups(len(images))]
        return {group: digest(*map(run.image_key, group)) for group in groups}

    # --- images ---

    def _go(self, run: Run, condition: Condition, measures: Sequence[Measure]) -> None:
        """Observes what is missing: one image at a time; images are predicted in the whole batches of a test.

        A batch with a missing image is predicted as a whole, so that a second call gives equal numbers.
        """
        names = {measure: self._names(run, condition, measure) for measure in measures}
        there = {measure: self._units(run, condition, measure) for measure in measures}
        todo = {
            measure: {index: group for group in groups if group not in there[measure] for index in group}
            for measure, groups in names.items()
        }
        wanted, images = {index for groups in todo.values() for index in groups}, run.images
        predicted = {index for measure, groups in todo.items() if measure.predicts for index in groups}
        size = 1 if run.edits else run.batch_size
        parts = [images[first : first + size] for first in range(0, len(images), size)]
        observed: dict[tuple[Measure, tuple[int, ...]], list[Any]] = defaultdict(list)
        for part in tqdm(parts, desc=f'{run.label}, {condition.name}', leave=False, disable=None):
            part = part if predicted & set(part) else [index for index in part if index in wanted]
            for seen in self._seen(run, part, bool(predicted & set(part))):
                now = {measure: groups[seen.index] for measure, groups in todo.items() if seen.index in groups}
                with run.editing(seen.index):
                    found = record(seen, list(now))
                    for measure, group in now.items():
                        seen.found = found[measure]
                        observed[measure, group].append(measure.observe(seen))
                for measure, group in now.items():
                    if len(observed[measure, group]) == len(group):
                        arrays = observed.pop((measure, group))
                        unit = measure.join(arrays) if measure.join else arrays[0]
                        self.store.add(self._series(run, condition, measure), names[measure][group], unit)
                self.store.save(at_least=INTERVAL)

    def _seen(self, run: Run, indices: Sequence[int], predicted: bool) -> list[Seen]:
        """Images that can be read and attacked, with predictions if wanted; others are named and counted."""
        seens = []
        for index in indices:
            try:
                seens.append(Seen(run, index, run.batch([index])))
            except Exception as error:  # transforms and decoders of any kind
                self._skip(run, index, error)
        if run.attack and seens:
            for seen, pixels in zip(seens, run.attacked(joined(seens))['inputs'], strict=True):
                seen.batch = dict(seen.batch, inputs=[pixels])
                if pixels.isnan().any():
                    self._skip(run, seen.index, ValueError('the gradient is zero everywhere'))
            seens = [seen for seen in seens if not seen.batch['inputs'][0].isnan().any()]
        if predicted and seens:
            with run.editing(seens[0].index):
                samples = run.predict(joined(seens))
            for seen, sample in zip(seens, samples, strict=True):
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


def joined(seens: Sequence[Seen]) -> dict:
    """The batch of some images."""
    return {key: [item for seen in seens for item in seen.batch[key]] for key in seens[0].batch}


@torch.no_grad()
def record(seen: Seen, measures: Sequence[Measure]) -> dict[Measure, dict[str, dict[int, Any]]]:
    """One forward of the backbone, whose intermediates go to all measures that want them, block by block."""
    found: dict[Measure, dict[str, dict[int, Any]]] = {measure: defaultdict(dict) for measure in measures}

    def reduce(name, tensor, site) -> None:
        place = seen.place(site.index)
        for measure in measures:
            if name in measure.wants and (kept := measure.reduce(seen.run, name, tensor, place)) is not None:
                found[measure][name][site.index] = kept

    if names := sorted({name for measure in measures for name in measure.wants}):
        seen.run.backbone.forward_intermediates(seen.inputs, names, reduce=reduce)
    return found


def _code() -> str:
    """Hash of what computes: the package's sources, plugs among them, and torch's version."""
    sources = sorted(Path(__file__).parents[2].rglob('*.py'))
    return digest(*(source.read_bytes() for source in sources), torch.__version__)


CODE = _code()


def _refuse(reason: str, run: Run) -> Run:
    raise ValueError(reason)
