"""The cells of a grid: a variant with a seed, in a folder of its own that its content names."""

import hashlib
import json
import os
import re
from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mmengine.config import Config

from vitplug.analysis.config_diff import changed_settings
from vitplug.config.parts import as_list
from vitplug.config.text import comment, config_text, named, printable
from vitplug.files.atomic import AtomicBackend
from vitplug.runs.saving.folders import last_checkpoint

from .grid import Variant, pairs
from .held import Held, changed_in_place, differing, held_by, holds_the_same
from .records import CELL, DONE, FAILED, finite_number, read_failure, read_object
from .starts import Starts

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
        data: What its data sets and checkpoints hold now.
        trained_on: What they held when its folder was made; None if there is none yet.
    """

    variant: Variant
    seed: int
    hash: str
    cfg: Config
    folder: Path
    data: Held = field(default_factory=dict)
    trained_on: Held | None = None

    def __str__(self) -> str:
        return f'{self.variant.label} with seed {self.seed}'

    @property
    def is_done(self) -> bool:
        return (self.folder / DONE).is_file()

    @property
    def value(self) -> float | None:
        """The metric of a finished cell; None if it is no finite number."""
        return finite_number(read_object(self.folder / DONE).get('value'))

    @property
    def failure(self) -> dict[str, Any] | None:
        """What `failed.json` says; None if the cell has not failed."""
        return read_failure(self.folder) if (self.folder / FAILED).exists() and not self.is_done else None

    @property
    def checkpoint(self) -> Path | None:
        """The checkpoint from which it would go on; None if there is none."""
        return last_checkpoint(self.folder)


# --- what a cell is ---


def plan_cells(
    variants: Sequence[Variant], seeds: Sequence[int], out: Path, starts: Starts | None = None
) -> list[Cell]:
    """The cells of a grid, those of earlier runs in their folders.

    Args:
        variants: The variants.
        seeds: The seeds.
        out: Folder of the grid.
        starts: Checkpoints that cells start from; cells without one are left out. None if cells start from none.

    Raises:
        ValueError: If two variants have the same config, the folder holds a cell of the same label and seed with
            another config or other data, or a file of a cell cannot be read.
        OSError: If data or a checkpoint cannot be read.
    """
    for variant in variants:
        _check_hooks(variant)
    data = {variant.label: held_by(variant.cfg) for variant in variants}
    found = read_cell_files(out)
    cells = [
        _plan(*_begun(variant, seed, data[variant.label], starts or {}), found, out)
        for variant, seed in pairs(variants, seeds)
        if starts is None or (variant.label, seed) in starts
    ]
    _check_distinct(cells)
    _check_same_grid(cells, found)
    return cells


def _begun(variant: Variant, seed: int, data: Held, starts: Starts) -> tuple[Variant, int, Config, Held]:
    """A variant with its seed and the weights that it starts from."""
    cfg = with_seed(variant.cfg, seed)
    if starts:
        cfg.load_from = str(starts[variant.label, seed])
        data = held_by(cfg)
    return variant, seed, cfg, data


def _plan(variant: Variant, seed: int, cfg: Config, data: Held, found: Sequence[tuple[Path, dict]], out: Path) -> Cell:
    code = content_hash(cfg)[:HASH_DIGITS]
    own = [(folder, before) for folder, before in found if (before['hash'], before['seed']) == (code, seed)]
    # Data that were worked on where they lie count as the same: a repaired image does not undo finished cells.
    for is_same in (holds_the_same, changed_in_place):
        for folder, before in own:
            if is_same(before['data'], data):
                return Cell(variant, seed, code, cfg, folder, data, before['data'])
    return Cell(variant, seed, code, cfg, out / CELLS / folder_name(variant.label, seed, code), data)


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
    keys = (
        lambda cell: (cell.hash, cell.seed, str({key: mark for key, (_, mark) in cell.data.items()})),
        lambda cell: (cell.variant.label, cell.seed),
        lambda cell: cell.folder,
    )
    for key in keys:
        first: dict[Any, Cell] = {}
        for cell in cells:
            other = first.setdefault(key(cell), cell)
            if other is not cell:
                difference = changed_settings(other.cfg, cell.cfg)
                why = f'only {", ".join(difference)} differs, without influence on results' if difference else 'equal'
                raise ValueError(
                    f'the variants {other.variant.label!r} and {cell.variant.label!r} are alike ({why}): leave one out'
                )


def _check_same_grid(cells: Sequence[Cell], found) -> None:
    planned = {(cell.variant.label, cell.seed): cell for cell in cells}
    folders = {cell.folder for cell in cells if cell.trained_on is not None}
    for folder, before in found:
        cell = planned.get((before['label'], before['seed']))
        if cell is None or folder in folders:
            continue
        is_other_data = before['hash'] == cell.hash
        difference = _other_data(before['data'], cell) if is_other_data else _differences(folder, cell.cfg)
        raise ValueError(
            f'{folder} is of another grid: {cell} had other settings there ({difference}); choose another --out, or '
            'move the folder away'
        )


def _other_data(before: Held, cell: Cell) -> str:
    """The data and checkpoints that differ."""
    return ', '.join(
        f'{key}: {before[key][0]} -> {cell.data[key][0]}, which holds something else'
        for key in differing(before, cell.data)
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
            content = read_object(path)
            found.append((path.parent, {key: content[key] for key in ('label', 'seed', 'hash')} | _data_of(content)))
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise ValueError(f'{path} cannot be read ({error}): move its folder away') from error
        if (path.parent / DONE).exists():
            _check_done(path.parent / DONE)
    return found


def finished_in(out: Path) -> set[tuple[str, int]]:
    """Labels and seeds of the finished cells in a folder."""
    return {(cell['label'], cell['seed']) for folder, cell in read_cell_files(out) if (folder / DONE).is_file()}


def _data_of(content: Mapping) -> dict[str, Held]:
    """What a cell noted of its data; nothing in those of earlier versions."""
    return dict(data={key: (str(path), str(mark)) for key, (path, mark) in (content.get('data') or {}).items()})


def _check_done(path: Path) -> None:
    try:
        read_object(path)['value']
    except (ValueError, KeyError) as error:
        raise ValueError(
            f'{path} cannot be read ({error}): move this file away, and the cell goes on from its last checkpoint'
        ) from error


def write_cell(cell: Cell, config_diff: str) -> None:
    """Writes `cell.json` and `config.py`, which say what is trained; leaves equal files as they are.

    The config of a finished cell stays as it is, and so does what a cell that has begun says of its data.
    """
    has_begun = cell.is_done or cell.checkpoint is not None
    content = dict(
        label=cell.variant.label,
        axes=dict(cell.variant.axes),
        plugs=cell.variant.plugs,
        seed=cell.seed,
        hash=cell.hash,
        config_diff=config_diff,
        data=cell.trained_on if has_begun else cell.data,
    )
    write_json(cell.folder / CELL, content)
    if not cell.is_done:
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
    attempts = read_failure(cell.folder, FAILED_BEFORE)['attempt'] if (cell.folder / FAILED_BEFORE).exists() else 0
    write_json(cell.folder / FAILED, dict(error=error, exit_status=status, attempt=attempts + 1))


def begin_again(cell: Cell) -> None:
    """Puts `failed.json` aside: a cell that is repeated counts as unfinished, and goes on if it is interrupted."""
    if cell.failure:
        os.replace(cell.folder / FAILED, cell.folder / FAILED_BEFORE)


def forget_failures(cell: Cell) -> None:
    """Removes what is noted of earlier failures."""
    for name in (FAILED, FAILED_BEFORE):
        (cell.folder / name).unlink(missing_ok=True)


def last_line(folder: Path, begin: int) -> str:
    """The line of a worker's output that says why it ended: its last error, or its last line.

    Args:
        folder: Folder of the cell.
        begin: Bytes of earlier attempts.
    """
    path = folder / OUTPUT
    lines = path.read_bytes()[begin:].decode(errors='replace').splitlines() if path.is_file() else []
    lines = [line.strip() for line in lines if line.strip()]
    errors = [line for line in lines[-50:] if re.match(r'error: ', line)]
    return printable((errors or lines or ['no output'])[-1].removeprefix('error: ')[:500])


def remove_checkpoints(cell: Cell, keep: str) -> None:
    """Removes the checkpoints that a finished cell has written, as its `done.json` says, and no other file.

    Args:
        cell: The cell.
        keep: ``'none'``, or ``'last'`` for the last one.

    Raises:
        ValueError: If `done.json` cannot be read.
    """
    written = read_object(cell.folder / DONE).get('checkpoints')
    if not isinstance(written, list) or cell.folder.is_symlink():
        return
    last = cell.checkpoint if keep == 'last' else None
    if keep == 'last' and not (last and os.path.isfile(last)):  # which one is the last is not known
        return
    for path in cell.folder.glob('*.pth'):
        if path.name in written and path.is_file() and not path.is_symlink() and (not last or path.name != last.name):
            path.unlink()
    if last is None and cell.checkpoint and cell.checkpoint.name in written:
        (cell.folder / 'last_checkpoint').unlink()
