"""Reads the folder of a grid, also while cells are running.

    DIR/grid.json                                    what is compared
    DIR/cells/<label>_seed<k>_<hash>/cell.json       label, axes, plugs, seed, hash, config_diff, data
                                    /validations.jsonl   one line per validation: step, by, metrics
                                    /done.json       metric, value, best, seconds, memory_mib, parameters, iterations
                                    /failed.json     error, exit_status, attempt

A cell without ``done.json`` and ``failed.json`` is running or was interrupted.
"""

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Any

GRID, CELL, VALIDATIONS, DONE, FAILED = 'grid.json', 'cell.json', 'validations.jsonl', 'done.json', 'failed.json'


class State(Enum):
    """How far a cell is."""

    DONE = 'done'
    FAILED = 'failed'
    UNFINISHED = 'unfinished'
    MISSING = 'missing'


@dataclass(frozen=True)
class Grid:
    """What is compared.

    Attributes:
        labels: Variants in the order of the tables, the baseline included.
        baseline: Label of the baseline.
        seeds: Seeds of every variant.
        metric: Name of the metric in the validations.
        greater_is_better: False for metrics such as a loss.
        margin: Largest difference in points that counts as none; None where none was chosen.
        facts: All other entries of the file, such as the base config, the command and versions.
    """

    labels: tuple[str, ...]
    baseline: str
    seeds: tuple[int, ...]
    metric: str
    greater_is_better: bool
    margin: float | None = None
    facts: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Cell:
    """One training: a variant with a seed.

    Attributes:
        label: The variant.
        seed: The seed.
        state: How far it is.
        folder: Its folder below the grid's; empty if there is none.
        value: Metric of the last validation; None unless the cell is done and the metric is finite.
        best: Best metric of all validations.
        seconds: Duration of the training.
        memory_mib: Peak memory.
        parameters: Parameters of the model.
        iterations: Iterations of the training.
        error: Why it failed, one line.
        config_diff: Difference of its config to the baseline's, by meaning.
        curve: Metric by step; in epochs or iterations, as ``by`` says.
        by: ``'epoch'`` or ``'iter'``.
        data: Path and fingerprint of its data sets and checkpoints, by the place in the config.
        code: Fingerprints of the code of vitplug that trained it.
    """

    label: str
    seed: int
    state: State
    folder: str = ''
    value: float | None = None
    best: float | None = None
    seconds: float | None = None
    memory_mib: float | None = None
    parameters: int | None = None
    iterations: int | None = None
    error: str = ''
    config_diff: str = ''
    curve: Mapping[int, float] = field(default_factory=dict)
    by: str = 'epoch'
    data: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    code: tuple[str, ...] = ()


def read_grid(folder: Path) -> Grid:
    """Reads ``grid.json``.

    Raises:
        FileNotFoundError: If the folder has none.
        ValueError: If it is damaged, an entry is missing, or the baseline is no label.
    """
    path = folder / GRID
    if not path.is_file():
        raise FileNotFoundError(f'{folder} has no {GRID}: name the folder of a grid')
    content = read_object(path)
    needed = ('labels', 'baseline', 'seeds', 'metric', 'greater_is_better')
    absent = [key for key in needed if key not in content]
    if absent:
        raise ValueError(f'{path}: has no {", ".join(map(repr, absent))}')
    labels = tuple(content['labels'])
    if content['baseline'] not in labels:
        raise ValueError(f'{path}: baseline = {content["baseline"]!r} is none of the labels {[*labels]}')
    return Grid(
        labels=labels,
        baseline=content['baseline'],
        seeds=tuple(content['seeds']),
        metric=content['metric'],
        greater_is_better=content['greater_is_better'],
        margin=content.get('margin'),
        facts={key: value for key, value in content.items() if key not in (*needed, 'margin')},
    )


def read_cells(folder: Path, grid: Grid) -> list[Cell]:
    """All cells of a grid, by label and seed; those without a folder are missing.

    Cells of other labels or seeds, which an earlier form of the grid may have left, are left out.

    Raises:
        ValueError: If a file is damaged, or two folders hold the same label and seed.
    """
    found: dict[tuple[str, int], Cell] = {}
    for path in sorted(folder.glob(f'cells/*/{CELL}')):
        cell = _read_cell(folder, path, grid.metric)
        key = cell.label, cell.seed
        if key in found:
            raise ValueError(
                f'{found[key].folder} and {cell.folder} are both {cell.label!r} with seed {cell.seed}: their configs '
                'differ, so move the one away that is no longer of this grid'
            )
        found[key] = cell
    keys = ((label, seed) for label in grid.labels for seed in grid.seeds)
    return [found.get(key, Cell(*key, State.MISSING)) for key in keys]


def _read_cell(folder: Path, path: Path, metric: str) -> Cell:
    content, here = read_object(path), path.parent
    absent = [key for key in ('label', 'seed') if key not in content]
    if absent:
        raise ValueError(f'{path}: has no {", ".join(map(repr, absent))}: move its folder away')
    common = dict(
        label=content['label'],
        seed=content['seed'],
        folder=here.relative_to(folder).as_posix(),
        config_diff=content.get('config_diff') or '',
        data=content.get('data') or {},
    )
    try:
        common['curve'], common['by'] = _read_curve(here / VALIDATIONS, metric)
        if (here / DONE).exists():
            return _finished(read_object(here / DONE), common)
    except ValueError as error:
        return Cell(**common, state=State.FAILED, error=str(error))
    if (here / FAILED).exists():
        failed = read_failure(here)
        status = f' (exit status {failed["exit_status"]})' if failed['exit_status'] is not None else ''
        return Cell(**common, state=State.FAILED, error=failed['error'] + status)
    return Cell(**common, state=State.UNFINISHED)


def read_failure(folder: Path, name: str = FAILED) -> dict[str, Any]:
    """Error, exit status and attempt of a cell that has failed, as far as its note can be read."""
    try:
        content = read_object(folder / name)
    except ValueError as error:
        content = dict(error=str(error))
    attempt = content.get('attempt')
    return dict(
        error=str(content.get('error') or 'no message'),
        exit_status=content.get('exit_status'),
        attempt=attempt if isinstance(attempt, int) else 1,
    )


def _finished(done: Mapping[str, Any], common: Mapping[str, Any]) -> Cell:
    measured = {key: finite_number(done.get(key)) for key in ('seconds', 'memory_mib')}
    measured |= {key: _whole(done.get(key)) for key in ('parameters', 'iterations')}
    measured['code'] = tuple(done.get('code') or ())
    value = finite_number(done.get('value'))
    if value is None:
        error = f'finished, but its {done.get("metric")} is {done.get("value")}'
        return Cell(**common, **measured, state=State.FAILED, error=error)
    return Cell(**common, **measured, state=State.DONE, value=value, best=finite_number(done.get('best')))


def finite_number(value: object) -> float | None:
    """A number as a float; None for anything that is no finite number."""
    if not isinstance(value, int | float):
        return None
    try:
        return float(value) if math.isfinite(value) else None
    except OverflowError:  # an integer with hundreds of digits
        return None


def _whole(value: object) -> int | None:
    number = finite_number(value)
    return None if number is None else int(number)


def _read_curve(path: Path, metric: str) -> tuple[dict[int, float], str]:
    """Metric by step, and what steps are counted in. A validation that was repeated after a stop counts once."""
    curve, by = {}, 'epoch'
    for record in _complete_lines(path):
        value, step = finite_number(record['metrics'].get(metric)), finite_number(record['step'])
        if value is not None and step is not None:
            curve[int(step)], by = value, record['by']
    return dict(sorted(curve.items())), by


def _complete_lines(path: Path) -> Iterator[dict]:
    """Records of a file that may be being written: a last line without an end is left out.

    Raises:
        ValueError: If another line is no record.
    """
    if not path.is_file():
        return
    *lines, _ = path.read_text(encoding='utf-8').split('\n')
    for number, line in enumerate(lines, 1):
        try:
            record = json.loads(line)
            yield {key: record[key] for key in ('step', 'by', 'metrics')}
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise ValueError(f'{path}, line {number}: is no record of a validation: {error!r}') from error


def read_object(path: Path) -> dict[str, Any]:
    """The object of a JSON file.

    Raises:
        ValueError: If it is no regular file or holds no object.
    """
    if not path.is_file():
        raise ValueError(f'{path}: is no regular file')
    try:
        content = json.loads(path.read_text(encoding='utf-8'))
    except (ValueError, RecursionError) as error:
        raise ValueError(f'{path}: is no JSON: {error}') from error
    if not isinstance(content, dict):
        raise ValueError(f'{path}: must hold an object, not {type(content).__name__}')
    return content
