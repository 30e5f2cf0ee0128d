"""Finished cells from the report of a grid whose folder is lost, as of a machine that is gone."""

import json
import re
from collections.abc import Collection, Mapping
from pathlib import Path

from vitplug.runs.saving.folders import last_checkpoint

from .cells import CELLS, HASH_DIGITS, files, write_json
from .grid import GridFile
from .records import CELL, DONE, VALIDATIONS, Cell, State

MEASURED = ('value', 'best', 'seconds', 'memory_mib', 'parameters', 'iterations')
FOLDER = re.compile(rf'{CELLS}/[\w.+=-]+_seed\d+_[0-9a-f]{{{HASH_DIGITS}}}')


def restore_cells(
    path: Path, out: Path, grid: GridFile, labels: Collection[str], hashes: Mapping[tuple[str, int], str]
) -> int:
    """Writes the finished cells of a ``report.json`` into the folder of a grid, where they have not begun.

    A report says nothing of data sets and checkpoints. Settings are compared by the hash in the name of a cell's
    folder.

    Args:
        path: The report.
        out: Folder of the grid.
        grid: The grid; cells of other seeds are left out.
        labels: Its variants; cells of others are left out.
        hashes: Of the cells that can be trained, by label and seed.

    Returns:
        How many cells were written.

    Raises:
        ValueError: If there is no report, or it is of another grid or of other settings, or lacks the folder of a cell;
            then nothing is written.
    """
    from .report import read_report  # loads matplotlib, which takes a second

    summary = read_report(path)
    base = summary.grid.facts.get('base')
    if Path(str(base)).name != Path(grid.base).name or summary.grid.metric != grid.metric:
        raise ValueError(
            f'--from-report: {path} is of a grid with base {base} and metric {summary.grid.metric}, not {grid.base} '
            f'and {grid.metric}: choose the report of this grid'
        )
    ours = [cell for cell in summary.cells if cell.label in labels and cell.seed in grid.seeds]
    done = [cell for cell in ours if cell.state is State.DONE]
    for cell in done:
        if not FOLDER.fullmatch(cell.folder):
            raise ValueError(
                f'{path}: folder = {cell.folder!r} of {cell.label} with seed {cell.seed} is none of a cell'
            )
        code = cell.folder[-HASH_DIGITS:]
        if code != hashes.get((cell.label, cell.seed), code):
            raise ValueError(
                f'--from-report: {path} is of a grid with other settings, by the hash of {cell.label} with seed '
                f'{cell.seed}: choose the report of this grid'
            )
    missing = [cell for cell in done if not _has_begun(out / cell.folder)]
    for cell in missing:
        _write(cell, summary.grid.metric, out / cell.folder)
    return len(missing)


def _has_begun(folder: Path) -> bool:
    return (folder / DONE).exists() or last_checkpoint(folder) is not None


def _write(cell: Cell, metric: str, folder: Path) -> None:
    code = folder.name[-HASH_DIGITS:]
    write_json(folder / CELL, dict(label=cell.label, seed=cell.seed, hash=code, config_diff=cell.config_diff))
    lines = (json.dumps(dict(step=step, by=cell.by, metrics={metric: value})) for step, value in cell.curve.items())
    files.put_text(''.join(f'{line}\n' for line in lines), folder / VALIDATIONS)
    measured = {name: getattr(cell, name) for name in MEASURED}
    done = dict(metric=metric, **measured, checkpoints=[], code=cell.code, status='done', restored=True)
    write_json(folder / DONE, done)  # last: until then the cell is not done, and is written again
