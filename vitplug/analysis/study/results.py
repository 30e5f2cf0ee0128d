"""Results of an analysis: JSON, CSV, a picture for each measure, a table."""

import json
import platform
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from vitplug.files.atomic import AtomicBackend
from vitplug.stacks import DISTRIBUTIONS, installed
from vitplug.statistics.images import LEVEL, Estimate, paired
from vitplug.tables import csv_text, format_table

from . import drawing
from .measure import Measure, Shown
from .run import Job
from .subject import Subject

DIFFERENCE = 'difference'
JSON, CSV = 'results.json', 'results.csv'
HEADINGS = ('measure', 'value', 'model', 'layer', 'head', 'other layer', 'mean', 'low', 'high', 'n')
DIGITS = 4


@dataclass(frozen=True)
class Result:
    """A measure and its results.

    Attributes:
        measure: The measure.
        shown: For the model, its baseline, or both together.
        difference: By value, model - baseline on the same images.
    """

    measure: Measure
    shown: Sequence[Shown]
    difference: Mapping[str, Estimate]

    @property
    def by_label(self) -> dict[str, Mapping[str, Estimate]]:
        """The estimates by model, and the differences where there are some."""
        estimates = {one.label: one.estimates for one in self.shown}
        return estimates | ({DIFFERENCE: self.difference} if self.difference else {})


def results_of(jobs: Sequence[Job]) -> list[Result]:
    """The results of finished jobs, by measure; the model's come before the baseline's."""
    jobs_by_measure: dict[str, list[Job]] = {}
    for job in jobs:
        jobs_by_measure.setdefault(job.measure.name, []).append(job)
    return [_result(same) for same in jobs_by_measure.values()]


def _result(jobs: Sequence[Job]) -> Result:
    shown = [_shown(job) for job in jobs]
    images = [[image for unit in job.units for image in unit] for job in jobs]
    difference: dict[str, Estimate | None] = {}
    if len(jobs) == 2 and images[0] == images[1]:
        model, baseline = (one.estimates for one in shown)
        difference = {value: paired(model[value], baseline[value]) for value in model if value in baseline}
    return Result(jobs[0].measure, shown, {value: kept for value, kept in difference.items() if kept is not None})


def _shown(job: Job) -> Shown:
    units = [arrays for _, arrays in sorted(job.kept.items())]
    images = sum(map(len, job.units))
    return Shown(job.label, job.measure.estimate(units, images), units)


def write(
    folder: Path,
    results: Sequence[Result],
    subjects: Sequence[Subject],
    images: Mapping,
    left_out: Mapping[str, Mapping[str, str]],
    command: str,
    picture_format: str = drawing.FORMATS[0],
) -> list[Path]:
    """Writes the files of results, each as a whole.

    Args:
        folder: Where they go.
        results: The results.
        subjects: The models.
        images: What is said of the images.
        left_out: Reasons, by measure and model.
        command: The command line.
        picture_format: Of :data:`~.drawing.FORMATS`.

    Returns:
        The paths of the pictures.
    """
    write_json(
        folder / JSON,
        command=command,
        models={subject.label: describe(subject) for subject in subjects},
        images=images,
        interval=f"{LEVEL:.0%} over images; Student's t",
        left_out=left_out,
        measures={result.measure.name: _as_json(result) for result in results},
    )
    AtomicBackend().put_text(csv_text(HEADINGS, rows(results)), folder / CSV)
    pictures = []
    for result in results:
        figure = result.measure.draw(result.shown)
        if figure is not None:
            pictures.append(folder / f'{result.measure.name}.{picture_format}')
            drawing.save(figure, pictures[-1])
    return pictures


def describe(subject: Subject) -> dict:
    """Which model it is."""
    return dict(
        config=str(subject.cfg.filename),
        checkpoint=subject.checkpoint,
        sha256=subject.sha256,
        backbone=subject.about,
        blocks=subject.num_layers,
    )


def write_json(path: Path, command: str, packages: Collection[str] = (), **content: object) -> None:
    """Writes results as a whole file: the command line, versions, also of further packages, and the content.

    Raises:
        OSError: If it cannot be written.
    """
    content = dict(command=command, versions=versions() | installed(packages)) | content
    AtomicBackend().put_text(json.dumps(content, indent=1), path)


def versions() -> dict[str, str]:
    """Versions of Python, vitplug and the packages that the numbers depend on."""
    names = [name for names in DISTRIBUTIONS.values() for name in names]
    return dict(python=platform.python_version()) | installed(('vitplug', 'torch', 'numpy', 'scipy', *names))


def _as_json(result: Result) -> dict:
    measure = result.measure
    return dict(
        definition=measure.definition,
        unit=measure.unit,
        source=measure.source,
        axes=measure.axes,
        values={
            label: {value: _numbers(estimate) for value, estimate in estimates.items()}
            for label, estimates in result.by_label.items()
        },
        notes={one.label: notes for one in result.shown if (notes := _notes(one))},
    )


def _notes(shown: Shown) -> list[dict[str, str]]:
    """Arrays that are texts, such as the score whose gradient is taken, unit by unit."""
    notes = [{name: str(array) for name, array in unit.items() if array.dtype.kind == 'U'} for unit in shown.units]
    return notes if any(notes) else []


def _numbers(estimate: Estimate) -> dict:
    return {name: _listed(getattr(estimate, name)) for name in ('mean', 'low', 'high', 'n')}


def _listed(array: np.ndarray):
    """Nested lists with None for NaN, which JSON does not have."""
    return np.where(np.isfinite(array), array.astype(object), None).tolist()


def rows(results: Sequence[Result]) -> Iterator[tuple]:
    """One row for each number, in the order of :data:`HEADINGS`; numbers that are not there are left out."""
    for result in results:
        for label, estimates in result.by_label.items():
            for value, estimate in estimates.items():
                for index in np.ndindex(estimate.mean.shape):
                    if np.isfinite(estimate.mean[index]):
                        position = dict(zip(result.measure.axes, index, strict=False))
                        numbers = (estimate.mean[index], estimate.low[index], estimate.high[index])
                        yield (
                            result.measure.name,
                            value,
                            label,
                            *(position.get(axis, '') for axis in ('layer', 'head', 'other layer')),
                            *(repr(float(number)) if np.isfinite(number) else '' for number in numbers),
                            int(estimate.n[index]),
                        )


def table(results: Sequence[Result]) -> str:
    """The first, the middle and the last block of every value, with half the width of the interval."""
    lines = [('measure', 'value', 'unit', 'model', 'first block', 'middle block', 'last block', 'images')]
    for result in results:
        named = (result.measure.name, result.measure.unit)
        for value in dict.fromkeys(value for estimates in result.by_label.values() for value in estimates):
            for label, estimates in result.by_label.items():
                if value in estimates and estimates[value].mean.ndim < 2:
                    estimate, sign = estimates[value], '+' if label == DIFFERENCE else ''
                    lines.append((named[0], value, named[1], label, *_cells(estimate, sign), str(estimate.n.max())))
    return format_table(lines, numeric=(4, 5, 6, 7))


def _cells(estimate: Estimate, sign: str) -> tuple[str, str, str]:
    """Of a number for the whole network, the last cell alone."""
    if estimate.mean.ndim == 0:
        return '', '', _cell(estimate, (), sign)
    return tuple(_cell(estimate, block, sign) for block in (0, len(estimate.mean) // 2, -1))


def _cell(estimate: Estimate, index, sign: str) -> str:
    mean, half = estimate.mean[index], (estimate.high[index] - estimate.low[index]) / 2
    if not np.isfinite(mean):
        return '-'
    return f'{mean:{sign if mean else ""}.{DIGITS}g}' + (f' ± {half:.2g}' if np.isfinite(half) else '')
