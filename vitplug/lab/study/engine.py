"""One loop over models, conditions and images; what is stored is not computed again."""

import itertools
import sys
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tqdm import tqdm

from vitplug.errors import printable
from vitplug.statistics.images import Arrays, evenly_spaced

from .conditions import Condition
from .measure import Measure, Seen, means
from .measures.scores import accuracy
from .runs import Run, source_of
from .store import INTERVAL, Store, digest

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
        found: What each image gave for a measure, by run and condition.
    """

    store: Store
    runs: Sequence[Run]
    conditions: Sequence[Condition]
    measures: Sequence[Measure]
    bank: int
    skipped: dict[str, str] = field(default_factory=dict)
    left_out: dict[tuple[str, str, str], str] = field(default_factory=dict)
    found: dict[Measure, list[tuple[Run, Condition, list[Arrays]]]] = field(default_factory=dict)

    def evaluate(self) -> None:
        """Does what is left to do; what is done is kept on an interruption.

        An image that is left out late, as one that an attack cannot change, leaves the groups of images that ran before
        without it: they are made again.
        """
        known = None
        try:
            self.conditions = [one.of_first(self._top_1) if one.of_first else one for one in self.conditions]
            while known != len(self.skipped):
                known = len(self.skipped)
                self.found, self.left_out = {measure: [] for measure in self.measures}, {}
                self._evaluate_once()
        finally:
            self.store.save()

    def _top_1(self, condition: Condition) -> float:
        """The accuracy of the first model, by which a condition is set."""
        run = condition.change(self.runs[0])
        return float(means(run, self._observed(run, condition, accuracy))['top-1'].mean)

    def _evaluate_once(self) -> None:
        for run, condition in itertools.product(self.runs, self.conditions):
            try:
                changed = condition.change(run)
                reasons = self._go(changed, condition, self.measures)
            except ValueError as error:  # a model without what the condition changes, or edits
                self.left_out[run.label, condition.name, 'all measures'] = str(error)
                continue
            self.left_out |= {(run.label, condition.name, measure.name): why for measure, why in reasons.items()}
            for measure in (measure for measure in self.measures if measure not in reasons):
                units = list(self._units(changed, condition, measure).values())
                if any(one.dtype.kind != 'f' or np.isfinite(one).any() for unit in units for one in unit.values()):
                    self.found[measure].append((run, condition, units))
                else:
                    self.left_out[run.label, condition.name, measure.name] = 'no image has a number for it'

    def _prepare(self, run: Run, condition: Condition, measure: Measure) -> None:
        """Learns what a measure needs besides the images; a ValueError if it does not apply."""
        if (run.edits or set(measure.wants) - {'block'}) and not run.is_plugged:
            raise ValueError(f'{run.label} has no sockets, which tell of more than outputs of blocks')
        if measure.wants and run.is_plugged:
            run.backbone.pixels((256, 256))  # refuses where the place of tokens is not known
        if measure.one_size:
            self._observed(run, condition, SIZES)
        if measure.bank:
            run.cache['bank', measure.name] = self._learn(run, condition, measure.bank)

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
        run.cache['bank'] = self._observed(train, trained, bank)
        return [self._series(train, trained, bank), *self._names(train, trained, bank).values()]

    # --- names ---

    def _series(self, run: Run, condition: Condition, measure: Measure) -> str:
        """The name of a series: the hash of weights, settings, condition, definitions, bank and batches."""
        size = int(run.cfg.test_dataloader.get('batch_size') or 1)
        is_alone = size == 1 or run.edits or not measure.predicts  # images of a batch are padded together
        return Store.series(
            (run.label, condition.name, measure.name),
            (run.base or run).content,
            condition.key,
            repr(run.source),
            CODE,
            measure.code,
            *(() if is_alone else (repr(size), *map(run.image_key, run.images))),
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

    def _observed(self, run: Run, condition: Condition, measure: Measure) -> list[Arrays]:
        """What each image gives for one measure; a ValueError if it does not apply."""
        for reason in self._go(run, condition, [measure]).values():
            raise ValueError(reason)
        return list(self._units(run, condition, measure).values())

    def _go(self, run: Run, condition: Condition, measures: Sequence[Measure]) -> dict[Measure, str]:
        """Observes what is missing: one image at a time; images are predicted in the whole batches of a test.

        A batch with a missing image is predicted as a whole, so that a second call gives equal numbers. Gives the
        measures that do not apply, with the reasons.
        """
        reasons: dict[Measure, str] = {}
        names: dict[Measure, dict[tuple[int, ...], str]] = {}
        series: dict[Measure, str] = {}
        todo: dict[Measure, dict[int, tuple[int, ...]]] = {}
        for measure in measures:
            try:
                self._prepare(run, condition, measure)
                names[measure] = self._names(run, condition, measure)
                series[measure] = self._series(run, condition, measure)
            except ValueError as error:
                reasons[measure] = str(error)
            else:
                there = self._units(run, condition, measure)
                todo[measure] = {index: group for group in names[measure] if group not in there for index in group}
        of_test, images = int(run.cfg.test_dataloader.get('batch_size') or 1), run.images
        size = 1 if run.edits else of_test
        parts = [images[first : first + size] for first in range(0, len(images), size)]
        observed: dict[tuple[Measure, tuple[int, ...]], list[Any]] = defaultdict(list)
        for part in tqdm(parts, desc=f'{run.label}, {condition.name}', leave=False, disable=None):
            wanted = [index for index in part if any(index in groups for groups in todo.values())]
            predicted = any(index in groups for measure, groups in todo.items() if measure.predicts for index in part)
            for seen in self._seen(run, part if predicted else wanted, predicted):
                now = {measure: groups[seen.index] for measure, groups in todo.items() if seen.index in groups}
                with run.editing(seen.index):
                    found = record(seen, list(now))
                    for measure, group in now.items():
                        seen.found, arrays = found[measure], observed[measure, group]
                        try:
                            arrays.append(measure.observe(seen))
                        except ValueError as error:
                            reasons[measure] = str(error)
                            todo.pop(measure)
                            continue
                        if len(arrays) == len(group):
                            unit = measure.join(observed.pop((measure, group)))
                            self.store.add(series[measure], names[measure][group], unit)
                self.store.save(at_least=INTERVAL)
        return reasons

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
            raise OSError(f'none of {len(run.images)} images can be used: {words}') from error


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

    names = {name for measure in measures for name in measure.wants}
    if 'maps' in names and not seen.run.changes_maps:
        names.remove('maps')  # the same as the probabilities
    if names:
        seen.run.backbone.forward_intermediates(seen.inputs, sorted(names), reduce=reduce)
    return found


# Hash of what computes: the package's sources, plugs among them, and torch's version.
CODE = digest(*(path.read_bytes() for path in sorted(Path(__file__).parents[2].rglob('*.py'))), torch.__version__)
