"""Cells that start from those of another grid: with the weights of the same variant and seed."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from mmengine.config import Config
from torch import Size

from vitplug.analysis.costs import build_model
from vitplug.checkpoints.files import find_weights, read_checkpoint, some_of
from vitplug.checkpoints.fit import BACKBONE
from vitplug.checkpoints.formats import is_derived
from vitplug.checkpoints.pretrained import POSITION_TABLES
from vitplug.runs.saving.folders import last_checkpoint

from .grid import Variant
from .records import GRID, State, read_cells, read_grid

SHOWN = 3
Starts = Mapping[tuple[str, int], Path]
"""Checkpoint by the label and seed of a cell."""


def find_starts(folder: Path, labels: Sequence[str], seeds: Sequence[int]) -> dict[tuple[str, int], Path]:
    """The last checkpoints of the finished cells of a grid, where they were kept.

    Args:
        folder: Folder of the grid.
        labels: Variants that start from it.
        seeds: Seeds that do.

    Raises:
        FileNotFoundError: If there is no grid.
        ValueError: If it lacks a variant or a seed, or has no checkpoint at all.
    """
    if not (folder / GRID).is_file():
        raise FileNotFoundError(f'start_from: {folder} has no {GRID}: train that grid first')
    grid = read_grid(folder)
    for name, given, there in (('variant', labels, grid.labels), ('seed', seeds, grid.seeds)):
        absent = [one for one in given if one not in there]
        if absent:
            known = ', '.join(map(str, there))
            raise ValueError(f'start_from: {folder} has no {name} {absent[0]!r}: choose from {known}')
    cells = [cell for cell in read_cells(folder, grid) if cell.label in labels and cell.seed in seeds]
    paths = {
        (cell.label, cell.seed): last_checkpoint(folder / cell.folder) for cell in cells if cell.state is State.DONE
    }
    found = {key: path for key, path in paths.items() if path and path.is_file()}
    if not found:
        raise ValueError(
            f"start_from: no cell of {folder} is done and has its checkpoint: set keep = 'last' in its grid file, and "
            'train it first'
        )
    return found


def check_starts(variants: Sequence[Variant], starts: Starts) -> None:
    """Checks that the checkpoints of variants are of their backbones, one of each.

    Position tables are resized. What is behind the backbone is of another task, and starts anew.

    Raises:
        ValueError: If a backbone has no place for a tensor of its checkpoint.
    """
    for variant in variants:
        path = next((path for (label, _), path in starts.items() if label == variant.label), None)
        if path:
            _check_start(variant.cfg, path)


def _check_start(cfg: Config, path: Path) -> None:
    weights, _ = find_weights(read_checkpoint(path), path)
    given, own = _backbone_shapes(weights), _backbone_shapes(build_model(cfg).state_dict())
    wrong = [key for key, shape in given.items() if own.get(key) != shape]
    if wrong or not given:
        raise ValueError(
            f'start_from: {path} is of another backbone than that of {cfg.filename}, which has no place for '
            f'{some_of(wrong, SHOWN) if given else "any of its tensors"}'
        )


def _backbone_shapes(weights: Mapping) -> dict[str, Size]:
    """Shapes of the tensors that do not depend on the size of images."""
    left_out = tuple(POSITION_TABLES)
    return {
        key: value.shape
        for key, value in weights.items()
        if key.startswith(BACKBONE) and not key.endswith(left_out) and not is_derived(key)
    }
