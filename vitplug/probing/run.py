"""Features of a model, then a probe for each seed."""

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from mmengine.config import Config
from mmengine.dataset import pseudo_collate
from torch import Tensor
from tqdm import tqdm

from vitplug.analysis.study.store import Store
from vitplug.stacks import installed
from vitplug.statistics.images import evenly_spaced

from .cache import Cache, Record
from .extractors import Extractor, batches, preprocessor
from .images import SPLITS, Images
from .kinds import Kind
from .probes import Head, Probe, Samples

# Images of one forward pass.
BATCH = 64
# Rows of features that are scored at a time.
ROWS = 512
# Share of the training images that settings are chosen on.
HELD_OUT = 0.1
PICTURES = 6
# Values of a cell that are no scores, in the store.
CHOSEN, HELD, SECONDS, PICTURE = 'chosen', 'held out', 'seconds', 'picture'


@dataclass(eq=False)
class Subject:
    """A model, or a control, with its features.

    Attributes:
        label: As results name it.
        cfg: The config whose test pipeline and data preprocessor make its inputs.
        extractor: Makes its features.
        images: The training and test images, read for it.
        kind: The task.
        classes: Number of classes.
        cache_root: Folder of all caches.
        device: Where it runs.
    """

    label: str
    cfg: Config
    extractor: Extractor
    images: Mapping[str, Images]
    kind: Kind
    classes: int
    cache_root: Path
    device: str

    def __post_init__(self):
        self._preprocess = preprocessor(self.cfg, self.device)
        self.cache = Cache(self.cache_root, self._identity(), self.kind.chunk)

    def _identity(self) -> dict:
        return dict(
            self.extractor.identity,
            vitplug=installed(['vitplug']).get('vitplug'),
            data={split: f'{len(images)} images, {images.fingerprint()}' for split, images in self.images.items()},
            pixels=repr((self.images['test'].pipeline, self._preprocess)),
            preprocessor=repr(self.cfg.model.get('data_preprocessor') or self.cfg.get('data_preprocessor')),
            task=self.kind.library,
        )

    def extract(self, limit: float) -> None:
        """Computes the features that the cache lacks.

        Args:
            limit: Most GiB that all caches may have.

        Raises:
            ValueError: If they are larger, or the backbone's outputs have no known form.
        """
        with self.cache.opened():
            for split in SPLITS:
                images = self.images[split]
                self.cache.fill(split, len(images), lambda wanted, images=images: self._records(images, wanted), limit)

    def records(self, split: str) -> Iterator[Record]:
        """The records of a split, in the order of its images."""
        return self.cache.records(split, len(self.images[split]))

    def _records(self, images: Images, wanted: Sequence[int]) -> list[Record]:
        items = [images[index] for index in wanted]
        records: list[Record] = []
        for batch in batches([item['inputs'] for item in items], BATCH if not self.kind.dense else 1):
            records += self._forward([items[index] for index in batch])
        return records

    def _forward(self, items: Sequence[Mapping]) -> list[Record]:
        with torch.no_grad():
            inputs = self._preprocess(pseudo_collate(list(items)), training=False)['inputs']
            features_BTD, grid = self.extractor(inputs)
        if not features_BTD.isfinite().all():
            raise ValueError(f'{self.label}: features are not finite (NaN or infinite): its weights have diverged')
        return [
            Record(
                features.float().cpu().numpy(),
                self.kind.label(item['data_samples'], self.classes),
                grid,
                tuple(inputs.shape[-2:]),
                tuple(item['inputs'].shape[-2:]),
            )
            for features, item in zip(features_BTD, items, strict=True)
        ]


@dataclass(frozen=True)
class Plan:
    """What is done with the features of each model.

    Attributes:
        probe: The probe.
        seeds: Number of seeds, from 0.
        patches: Patches of each training image that are used; all if it has fewer.
    """

    probe: Probe
    seeds: int
    patches: int


def run(subjects: Sequence[Subject], plan: Plan, store: Store, limit: float) -> None:
    """Computes features and fits probes, as far as these are not stored yet.

    Args:
        subjects: The models.
        plan: What to do.
        store: Takes the values of each model and seed.
        limit: See :meth:`Subject.extract`.
    """
    for subject in subjects:
        subject.extract(limit)
    todo = [
        (subject, seed)
        for subject in subjects
        for seed in range(plan.seeds)
        if seed not in store.units(subject.label, plan.probe.name)
    ]
    for subject, seed in tqdm(todo, desc='probing', unit='probe', mininterval=1.0, disable=None):
        store.add(subject.label, plan.probe.name, seed, cell(subject, plan, seed))
        store.save()


def cell(subject: Subject, plan: Plan, seed: int) -> dict[str, np.ndarray]:
    """One probe: fitted on a part of the training data, its setting chosen on the rest, then tested once.

    Returns:
        The values, the setting and the first pictures by name.

    Raises:
        ValueError: As :meth:`.probes.Probe.fit` does.
    """
    start = time.monotonic()
    fitted, held_out = _samples(subject, plan.patches, seed)
    head = plan.probe.fit(fitted, held_out, subject.kind.scorer.choice, seed)
    scorer = subject.kind.scorer(subject.classes)
    shown = evenly_spaced(len(subject.images['test']), PICTURES)
    arrays: dict[str, np.ndarray] = {}
    for index, (record, scores_TC) in enumerate(_scored(subject.records('test'), head, subject.device)):
        predicted = scorer.add(scores_TC, record)
        if index in shown:
            arrays[f'{PICTURE} {index}'] = predicted
    arrays |= {name: np.asarray(value) for name, value in scorer.values().items()}
    extra = {CHOSEN: head.chosen, HELD: 100 * head.held_out, SECONDS: time.monotonic() - start}
    return arrays | {name: np.asarray(value) for name, value in extra.items()}


@torch.no_grad()
def _scored(records: Iterable[Record], head: Head, device: str) -> Iterator[tuple[Record, Tensor]]:
    """Records with the scores ``(T, C)`` of their features, computed for several at a time."""
    for group in _groups(records):
        features = torch.from_numpy(np.concatenate([record.features for record in group])).to(device)
        yield from zip(group, head.scores(features).split([len(record.features) for record in group]), strict=True)


def _groups(records: Iterable[Record]) -> Iterator[list[Record]]:
    """Neighbours with about :data:`ROWS` rows of features in all."""
    group: list[Record] = []
    for record in records:
        group.append(record)
        if sum(len(one.features) for one in group) >= ROWS:
            yield group
            group = []
    if group:
        yield group


def split_held_out(count: int, seed: int) -> np.ndarray:
    """Which training images are held out: a tenth, drawn by the seed.

    Raises:
        ValueError: If there are less than two images.
    """
    if count < 2:
        raise ValueError(
            f'--num-train {count}: at least 2 training images are needed, one of them to choose settings on'
        )
    held = np.zeros(count, bool)
    held[np.random.default_rng(seed).permutation(count)[: max(1, round(HELD_OUT * count))]] = True
    return held


def _samples(subject: Subject, patches: int, seed: int) -> tuple[Samples, Samples]:
    """What a probe learns from and what it chooses its setting on; training images alone."""
    held = split_held_out(len(subject.images['train']), seed)
    parts: tuple[list, list] = ([], [])
    for index, record in enumerate(subject.records('train')):
        targets = subject.kind.targets(record, subject.classes)
        known = np.flatnonzero(targets.sum(1) > 0)  # patches that are all void teach nothing
        if len(known) > patches:
            known = np.sort(np.random.default_rng([seed, index]).choice(known, patches, replace=False))
        parts[int(held[index])].append((record.features[known], targets[known]))
    return tuple(_joined(part, subject.device) for part in parts)


def _joined(parts: Sequence[tuple[np.ndarray, np.ndarray]], device: str) -> Samples:
    features, targets = (np.concatenate(arrays) for arrays in zip(*parts, strict=True))
    return Samples(torch.from_numpy(features).to(device), torch.from_numpy(targets).to(device))
