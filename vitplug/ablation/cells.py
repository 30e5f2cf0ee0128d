"""The cells of a grid: a variant with a seed, in a folder of its own that its content names."""

import hashlib
import json
import os
import re
from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mmengine.config import Config

from vitplug.analysis.config_diff import changed_settings
from vitplug.config.parts import as_list
from vitplug.config.text import comment, config_text, named
from vitplug.files.atomic import AtomicBackend
from vitplug.runs.saving.folders import last_checkpoint

from .grid import Variant, pairs
from .records import CELL, DONE, FAILED

CONFIG, OUTPUT, FAILED_BEFORE = 'config.py', 'output.log', 'failed_before.json'
CELLS = 'cells'
HASH_DIGITS = 10
# The parts of a config that a training's results depend on. Others are helpers of configs, or about records and tests.
PARTS = (
    'auto_scale_lr',
    'compile',
    'custom_hooks',
    'data_preprocessor',
    'default_hooks',
    'default_scope',
    'load_from',
    'model',
    'model_wrapper_cfg',
    'optim_wrapper',
    'param_scheduler',
    'randomness',
    'runner_type',
    'strategy',
    'train_cfg',
    'train_dataloader',
    'val_cfg',
    'val_dataloader',
    'val_evaluator',
)
# Settings of them without influence on any number, by the end of their place.
NO_MATTER = re.compile(
    r'(^|\.)(_scope_|with_cp|num_workers|persistent_workers|pin_memory|prefetch_factor|timeout|multiprocessing_context)$'
    r'|^default_hooks\.(checkpoint|interruption|logger|plug_values|timer|visualization)$'
)
# Settings that hold paths, of which the last part counts: the rest is the machine's.
PATHS = re.compile(
    r'(data_root|data_prefix|ann_file|\w*_path|seg_map_path|img_path|\w*checkpoint|pretrained|load_from)$'
)
# Hooks without which a training is neither exact on resume nor paired with others of its seed.
NEEDED_HOOKS = {
    'randomness': 'RandomnessHook',
    'interruption': 'InterruptionHook',
    'checkpoint': 'CheckpointHook',
}
PAIRED = dict(type='vitplug.PairedWeightsHook')
files = AtomicBackend()


@dataclass(frozen=True)
class Cell:
    """A variant with a seed.

    Attributes:
        variant: The variant.
        seed: The seed.
        hash: Hash of all that its results depend on.
        cfg: Its config.
        folder: Its folder, which may not exist yet.
    """

    variant: Variant
    seed: int
    hash: str
    cfg: Config
    folder: Path

    def __str__(self) -> str:
        return f'{self.variant.label} with seed {self.seed}'

    @property
    def is_done(self) -> bool:
        return (self.folder / DONE).is_file()

    @property
    def failure(self) -> dict[str, Any] | None:
        """What `failed.json` says; None if the cell has not failed."""
        path = self.folder / FAILED
        return json.loads(path.read_text(encoding='utf-8')) if path.is_file() and not self.is_done else None

    @property
    def checkpoint(self) -> Path | None:
        """The checkpoint from which it would go on; None if there is none."""
        return last_checkpoint(self.folder)


# --- what a cell is ---


def plan_cells(variants: Sequence[Variant], seeds: Sequence[int], out: Path) -> list[Cell]:
    """The cells of a grid, those of earlier runs in their folders.

    Args:
        variants: The variants.
        seeds: The seeds.
        out: Folder of the grid.

    Raises:
        ValueError: If two variants have the same config, or the folder holds a cell of the same label and seed with
            another config.
    """
    for variant in variants:
        _check_hooks(variant)
    found = {(cell['hash'], cell['seed']): (folder, cell) for folder, cell in read_cell_files(out)}
    cells = []
    for variant, seed in pairs(variants, seeds):
        cfg = with_seed(variant.cfg, seed)
        code = content_hash(cfg)
        folder, _ = found.get((code[:HASH_DIGITS], seed), (out / CELLS / folder_name(variant.label, seed, code), None))
        cells.append(Cell(variant, seed, code[:HASH_DIGITS], cfg, folder))
    _check_distinct(cells)
    _check_same_grid(cells, found.values())
    return cells


def with_seed(cfg: Config, seed: int) -> Config:
    """A config with a seed, and with the hook that pairs initial weights."""
    cfg = deepcopy(cfg)
    cfg.randomness = {**(cfg.get('randomness') or {}), 'seed': seed}
    hooks = as_list(cfg.get('custom_hooks'))
    if not any(str(hook.get('type')).endswith('PairedWeightsHook') for hook in hooks):
        cfg.custom_hooks = [*hooks, PAIRED]
    return cfg


def content_hash(cfg: Config) -> str:
    """A hash of what the results of a training depend on: not of paths, the order of keys, or the machine."""
    content = {name: _canonical(cfg[name], name) for name in PARTS if cfg.get(name) is not None}
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def folder_name(label: str, seed: int, code: str) -> str:
    """The name of a cell's folder, without characters that a shell or a file system acts on."""
    safe = re.sub(r'[^\w.+=-]+', '_', label).strip('_.')[:100]
    return f'{safe}_seed{seed}_{code[:HASH_DIGITS]}'


def _canonical(value: Any, place: str) -> Any:
    if isinstance(value, Mapping):
        children = {str(key): (child, f'{place}.{key}') for key, child in value.items()}
        kept = {key: _canonical(child, at) for key, (child, at) in children.items() if not NO_MATTER.search(at)}
        # No plugs are no plugs, whether a config says so or not.
        return {key: child for key, child in kept.items() if key != 'plugs' or child}
    if isinstance(value, list | tuple):
        return [_canonical(child, place) for child in value]
    if isinstance(value, str) and any(map(PATHS.fullmatch, place.split('.'))):
        return os.path.basename(os.path.normpath(value)) if value else value
    return value if isinstance(value, str | int | float | None) else str(named(value))


def _check_hooks(variant: Variant) -> None:
    hooks = variant.cfg.get('default_hooks') or {}
    for name, kind in NEEDED_HOOKS.items():
        if str((hooks.get(name) or {}).get('type')) != f'vitplug.{kind}':
            raise ValueError(
                f'{variant.cfg.filename}: default_hooks.{name} is no vitplug.{kind}, without which trainings are '
                "neither exact on resume nor comparable by seed: add 'vitplug::_base_/hooks.py' to its _base_ and "
                'set default_hooks = _base_.vitplug_hooks'
            )


def _check_distinct(cells: Sequence[Cell]) -> None:
    for name in ('hash', 'label'):
        first: dict[tuple, Cell] = {}
        for cell in cells:
            key = (cell.hash if name == 'hash' else cell.variant.label), cell.seed
            other = first.setdefault(key, cell)
            if other is not cell:
                difference = changed_settings(other.cfg, cell.cfg)
                why = f'only {", ".join(difference)} differs, without influence on results' if difference else 'equal'
                raise ValueError(
                    f'the variants {other.variant.label!r} and {cell.variant.label!r} are alike ({why}): leave one out'
                )


def _check_same_grid(cells: Sequence[Cell], found) -> None:
    planned = {(cell.variant.label, cell.seed): cell for cell in cells}
    hashes = {(cell.hash, cell.seed) for cell in cells}
    for folder, before in found:
        cell = planned.get((before['label'], before['seed']))
        if cell is None or (before['hash'], before['seed']) in hashes:
            continue
        raise ValueError(
            f'{folder} is of another grid: {cell} had other settings there ({_differences(folder, cell.cfg)}); choose '
            'another --out, or move the folder away'
        )


def _differences(folder: Path, cfg: Config) -> str:
    """The settings in which a cell's config of an earlier run differs."""
    try:
        before = Config.fromfile(folder / CONFIG)
    except Exception:  # of anybody
        return 'its config.py cannot be read'
    found = changed_settings(before, cfg)
    counted = [key for key in found if key.partition('.')[0] in PARTS and not NO_MATTER.search(key)]
    return ', '.join(f'{key}: {found[key][0]!r} -> {found[key][1]!r}' for key in counted[:3]) or 'see its config.py'


# --- files ---


def read_cell_files(out: Path) -> list[tuple[Path, dict]]:
    """The folders of cells and what their `cell.json` says.

    Raises:
        ValueError: If one cannot be read.
    """
    found = []
    for path in sorted(out.glob(f'{CELLS}/*/{CELL}')):
        try:
            content = json.loads(path.read_text(encoding='utf-8'))
            found.append((path.parent, {key: content[key] for key in ('label', 'seed', 'hash')}))
        except (ValueError, KeyError, TypeError) as error:
            raise ValueError(f'{path} cannot be read ({error}): move its folder away') from error
    return found


def write_cell(cell: Cell, config_diff: str) -> None:
    """Writes `cell.json` and `config.py`, which say what is trained; leaves equal files as they are."""
    content = dict(
        label=cell.variant.label,
        axes=dict(cell.variant.axes),
        plugs=cell.variant.plugs,
        seed=cell.seed,
        hash=cell.hash,
        config_diff=config_diff,
    )
    write_json(cell.folder / CELL, content)
    _write(cell.folder / CONFIG, cell_config(cell))


def cell_config(cell: Cell) -> str:
    """The resolved config of a cell as a file that `tools/train.py` takes."""
    return comment(str(cell)) + config_text(cell.cfg._cfg_dict)


def write_json(path: Path, content: Mapping) -> None:
    """Writes a JSON file as a whole."""
    _write(path, json.dumps(content, indent=1, default=str) + '\n')


def _write(path: Path, text: str) -> None:
    if not path.is_file() or path.read_text(encoding='utf-8') != text:
        files.put_text(text, path)


def note_failure(cell: Cell, error: str, status: int) -> None:
    """Writes `failed.json`."""
    earlier = cell.folder / FAILED_BEFORE
    attempts = json.loads(earlier.read_text(encoding='utf-8'))['attempt'] if earlier.is_file() else 0
    write_json(cell.folder / FAILED, dict(error=error, exit_status=status, attempt=attempts + 1))


def begin_again(cell: Cell) -> None:
    """Puts `failed.json` aside: a cell that is repeated counts as unfinished, and goes on if it is interrupted."""
    if cell.failure:
        os.replace(cell.folder / FAILED, cell.folder / FAILED_BEFORE)


def forget_failures(cell: Cell) -> None:
    """Removes what is noted of earlier failures."""
    for name in (FAILED, FAILED_BEFORE):
        (cell.folder / name).unlink(missing_ok=True)


def last_line(folder: Path) -> str:
    """The line of a worker's output that says why it ended: its last error, or its last line."""
    path = folder / OUTPUT
    lines = path.read_text(errors='replace').splitlines() if path.is_file() else []
    lines = [line.strip() for line in lines if line.strip()]
    errors = [line for line in lines[-50:] if re.match(r'error: ', line)]
    return (errors or lines or ['no output'])[-1].removeprefix('error: ')[:500]


def remove_checkpoints(cell: Cell, keep: str) -> None:
    """Removes the checkpoints of a finished cell.

    Args:
        cell: The cell.
        keep: ``'none'``, or ``'last'`` for the last one.
    """
    last = cell.checkpoint if keep == 'last' else None
    for path in cell.folder.glob('*.pth'):
        if last is None or path.name != last.name:
            path.unlink()
    if last is None:
        (cell.folder / 'last_checkpoint').unlink(missing_ok=True)
