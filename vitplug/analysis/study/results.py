"""Results of an analysis: JSON, CSV, a picture for each measure, a table."""

import csv
import io
import json
import platform
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from vitplug.analysis.tables import format_table
from vitplug.files.atomic import AtomicBackend
from vitplug.stacks import DISTRIBUTIONS, installed

from . import drawing
from .measure import Measure, Shown
from .run import Job
from .statistics import LEVEL, Estimate
from .subject import Subject

JSON, CSV = 'results.json', 'results.csv'
HEADINGS = ('measure', 'value', 'model', 'layer', 'head', 'other layer', 'mean', 'low', 'high', 'n')
DIGITS = 4


@dataclass(frozen=True)
class Result:
    """A measure and its results: for the model, its baseline, or both together."""

    measure: Measure
    shown: Sequence[Shown]


def results_of(jobs: Sequence[Job]) -> list[Result]:
    """The results of finished jobs, by measure."""
    found: dict[str, list[Job]] = {}
    for job in jobs:
        found.setdefault(job.measure.name, []).append(job)
    return [Result(same[0].measure, [_shown(job) for job in same]) for same in found.values()]


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
) -> list[Path]:
    """Writes the files of results, each as a whole.

    Args:
        folder: Where they go.
        results: The results.
        subjects: The models.
        images: What is said of the images.
        left_out: Reasons, by measure and model.
        command: The command line.

    Returns:
        The paths of the pictures.

    Raises:
        OSError: If they cannot be written.
    """
    content = dict(
        command=command,
        versions=versions(),
        models={subject.label: describe(subject) for subject in subjects},
        images=images,
        interval=f"{LEVEL:.0%} over images; Student's t",
        left_out=left_out,
        measures={result.measure.name: _as_json(result) for result in results},
    )
    AtomicBackend().put_text(json.dumps(content, indent=1), folder / JSON)
    AtomicBackend().put_text(_as_csv(results), folder / CSV)
    pictures = []
    for result in results:
        figure = result.measure.draw(result.shown)
        if figure is not None:
            pictures.append(folder / f'{result.measure.name}.png')
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
        values={one.label: {value: _numbers(found) for value, found in one.estimates.items()} for one in result.shown},
        notes={one.label: notes for one in result.shown if (notes := _notes(one))},
    )


def _notes(shown: Shown) -> list[dict[str, str]]:
    """Arrays that are texts, such as the score whose gradient is taken, unit by unit."""
    notes = [{name: str(array) for name, array in unit.items() if array.dtype.kind == 'U'} for unit in shown.units]
    return notes if any(notes) else []


def _numbers(found: Estimate) -> dict:
    return {name: _listed(getattr(found, name)) for name in ('mean', 'low', 'high', 'n')}


def _listed(array: np.ndarray):
    """Nested lists with None for NaN, which JSON does not have."""
    return np.where(np.isfinite(array), array.astype(object), None).tolist()


def rows(results: Sequence[Result]) -> Iterator[tuple]:
    """One row for each number, in the order of :data:`HEADINGS`; numbers that are not there are left out."""
    for result in results:
        for one in result.shown:
            for value, found in one.estimates.items():
                for index in np.ndindex(found.mean.shape):
                    if np.isfinite(found.mean[index]):
                        place = dict(zip(result.measure.axes, index, strict=False))
                        numbers = (found.mean[index], found.low[index], found.high[index])
                        yield (
                            result.measure.name,
                            value,
                            one.label,
                            *(place.get(axis, '') for axis in ('layer', 'head', 'other layer')),
                            *(repr(float(number)) if np.isfinite(number) else '' for number in numbers),
                            int(found.n[index]),
                        )


def _as_csv(results: Sequence[Result]) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator='\n')
    writer.writerow(HEADINGS)
    writer.writerows(rows(results))
    return text.getvalue()


def table(results: Sequence[Result]) -> str:
    """The first, the middle and the last block of every value, with half the width of the interval."""
    lines = [('measure', 'value', 'unit', 'model', 'first block', 'middle block', 'last block', 'images')]
    for result in results:
        for one in result.shown:
            for value, found in one.estimates.items():
                if found.mean.ndim < 2:
                    unit = result.measure.unit
                    lines.append((result.measure.name, value, unit, one.label, *_cells(found), str(found.n.max())))
    return format_table(lines, numeric=(4, 5, 6, 7))


def _cells(found: Estimate) -> tuple[str, str, str]:
    """Of a number for the whole network, the last cell alone."""
    if found.mean.ndim == 0:
        return '', '', _cell(found, ())
    return tuple(_cell(found, block) for block in (0, len(found.mean) // 2, -1))


def _cell(found: Estimate, index) -> str:
    mean, half = found.mean[index], (found.high[index] - found.low[index]) / 2
    if not np.isfinite(mean):
        return '-'
    return f'{mean:.{DIGITS}g}' + (f' ± {half:.2g}' if np.isfinite(half) else '')
