"""Runs measures over images: one forward for each image and model serves all measures of maps and features."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import torch
from tqdm import tqdm

from vitplug.statistics.images import Arrays

from .loaded import Loaded
from .measure import Measure, Recorded
from .places import ImagePlace
from .store import Store
from .subject import Subject


@dataclass(eq=False)
class Job:
    """One measure on a model, or on the model and its baseline.

    Attributes:
        measure: The measure.
        subjects: The models.
        store: Where its arrays are kept.
    """

    measure: Measure
    subjects: Sequence[Subject]
    store: Store
    _waiting: dict[int, list[list[Any]]] = field(default_factory=dict)

    @property
    def label(self) -> str:
        """Its models, as results name them."""
        return ' and '.join(subject.label for subject in self.subjects)

    @property
    def kept(self) -> Mapping[int, Arrays]:
        """The arrays of its units so far."""
        return self.store.units(self.label, self.measure.name)

    @cached_property
    def units(self) -> list[Sequence[int]]:
        """Its images, by unit."""
        return self.measure.units(*self.subjects)

    @cached_property
    def _unit_of(self) -> dict[int, int]:
        return {index: unit for unit, images in enumerate(self.units) for index in images}

    def todo(self) -> set[int]:
        """The images that it still needs."""
        return {index for unit, images in enumerate(self.units) if unit not in self.kept for index in images}

    @property
    def done(self) -> bool:
        """Whether all its units are kept."""
        return not self.todo()

    def observe(self, subject: Subject, index: int, image: Loaded, recorded: Recorded) -> None:
        """Takes one image of one model; keeps the arrays of a unit after its last image."""
        unit = self._unit_of[index]
        waiting = self._waiting.setdefault(unit, [[] for _ in self.subjects])
        waiting[self.subjects.index(subject)].append(self.measure.observe(subject, image, recorded))
        if all(len(observed) == len(self.units[unit]) for observed in waiting):
            self.store.add(self.label, self.measure.name, unit, self.measure.join(*self._waiting.pop(unit)))


def run(jobs: Sequence[Job], subjects: Sequence[Subject], paths: Sequence[ImagePlace], store: Store) -> None:
    """Does what is left to do of some jobs, with a progress bar; on an interruption, what is done is kept.

    Args:
        jobs: The measures.
        subjects: The models.
        paths: The images.
        store: Where arrays are kept.

    Raises:
        Unreadable: If an image cannot be read any more.
    """
    todo = {id(job): job.todo() for job in jobs}
    steps = [
        (index, subject, wanted)
        for index in sorted(set().union(*todo.values()))
        for subject in subjects
        if (wanted := [job for job in jobs if subject in job.subjects and index in todo[id(job)]])
    ]
    try:
        for index, subject, wanted in tqdm(steps, desc='analysing', unit='image', mininterval=1.0, disable=None):
            image = subject.load(paths[index])
            recorded = record(subject, image, [job.measure for job in wanted])
            for job in wanted:
                job.observe(subject, index, image, recorded[job.measure.name])
            store.save_sometimes()
    finally:
        store.save()


@torch.no_grad()
def record(subject: Subject, image: Loaded, measures: Sequence[Measure]) -> dict[str, Recorded]:
    """One forward of the backbone, whose intermediates go to all measures that want them, block by block.

    Returns:
        What each measure kept, by its name.
    """
    wanted = {measure.name: frozenset(measure.names(subject)) for measure in measures}
    recorded: dict[str, dict] = {measure.name: {} for measure in measures}
    names = sorted(frozenset().union(*wanted.values()))
    if not names:
        return recorded

    def reduce(name, tensor, site) -> None:
        place = subject.place(site.index, image.size)
        for measure in measures:
            if name in wanted[measure.name]:
                kept = measure.reduce(subject, name, tensor, place)
                recorded[measure.name].setdefault(name, {})[site.index] = kept

    subject.backbone.forward_intermediates(image.inputs, names, reduce=reduce)
    return recorded
