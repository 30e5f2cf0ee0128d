"""What an analysis will do: the images it can use, the measures that apply, and the identity of its folder."""

import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from hashlib import sha256
from pathlib import Path

from tqdm import tqdm

from vitplug.config.text import printable
from vitplug.files.picture_sources import Unreadable
from vitplug.stacks import installed

from .measure import Measure
from .places import ImagePlace
from .run import Job
from .store import Store
from .subject import Subject

#: Reasons, by measure and model.
LeftOut = Mapping[str, Mapping[str, str]]


def check_images(subjects: Sequence[Subject], paths: Sequence[ImagePlace]) -> tuple[list[ImagePlace], dict[str, str]]:
    """Reads all images once, so that what cannot be used is known before the run; notes their sizes in the models.

    Args:
        subjects: The models, each with its own test pipeline.
        paths: The images.

    Returns:
        The usable images, and the reasons for the others by path, which are also said on stderr.

    Raises:
        ValueError: If none can be used.
    """
    usable, skipped, sizes = [], {}, []
    for path in tqdm(paths, desc='reading', unit='image', mininterval=1.0, disable=None):
        try:
            images = [subject.load(path) for subject in subjects]
        except Unreadable as error:
            skipped[str(path)] = str(error)
            tqdm.write(printable(f'cannot use {path}: {error}'), file=sys.stderr)
            continue
        if not usable:
            for subject, image in zip(subjects, images, strict=True):
                subject.probe(image)
        usable.append(path)
        sizes.append([image.size for image in images])
    if not usable:
        raise ValueError(f'none of {len(paths)} images can be used: the first is {paths[0]}: {skipped[str(paths[0])]}')
    for subject, of_subject in zip(subjects, zip(*sizes, strict=True), strict=True):
        subject.sizes, subject.paths = of_subject, tuple(usable)
    return usable, skipped


def identity(subjects: Sequence[Subject], paths: Sequence[ImagePlace]) -> dict:
    """What the arrays of an analysis depend on besides the measure."""
    content = sha256()
    for path in paths:
        content.update(os.fsencode(path.name) + path.read_bytes())
    models = {
        subject.label: dict(
            config=Path(subject.cfg.filename).name,
            settings=sha256(subject.cfg.pretty_text.encode()).hexdigest()[:16],
            checkpoint=subject.sha256[:16],
        )
        for subject in subjects
    }
    images = dict(number=len(paths), sha256=content.hexdigest()[:16])
    return dict(vitplug=installed(['vitplug']).get('vitplug'), baseline=None) | models | dict(images=images)


def check_named(measures: Iterable[Measure], subjects: Sequence[Subject], named_by: str) -> None:
    """Checks that measures that were named one by one apply to the model, before anything is written.

    Args:
        measures: The wanted ones.
        subjects: The model, and the baseline if there is one.
        named_by: The option that names them; '' if none does.

    Raises:
        ValueError: If one does not apply; says why.
    """
    for measure in measures if named_by else ():
        group = subjects if measure.compares else subjects[:1]
        if reason := measure.why_not(*group):
            label = ' and '.join(subject.label for subject in group)
            raise ValueError(f'{named_by} {measure.name}: does not apply to the {label}: {reason}')


def plan(
    measures: Iterable[Measure], subjects: Sequence[Subject], store: Store
) -> tuple[list[Job], dict[str, dict[str, str]]]:
    """The measures that apply, on each model or on both together.

    Args:
        measures: The wanted ones.
        subjects: The model, and the baseline if there is one.
        store: Where arrays are kept.

    Returns:
        The jobs, and the reasons for measures, or parts of them, that do not apply.
    """
    jobs, left_out = [], {}
    for measure in measures:
        for group in [subjects] if measure.compares else [[subject] for subject in subjects]:
            job = Job(measure, group, store)
            reason = measure.why_not(*group)
            if not reason:
                jobs.append(job)
            if said := reason or measure.left_out(*group):
                left_out.setdefault(measure.name, {})[job.label] = said
    return jobs, left_out


def finished(measures: Iterable[Measure], jobs: Sequence[Job], subjects: Sequence[Subject], store: Store) -> list[Job]:
    """The jobs of earlier calls in this folder that were finished, beside those of this call."""
    now = {job.measure.name for job in jobs}
    others, _ = plan([m for m in measures if m.name not in now], subjects, store)
    return [job for job in others if job.done]
