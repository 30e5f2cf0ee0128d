"""The cells of an ablation: variants with seeds, in a folder that the content of its config and data names.

DIR/grid.json                                       variants, seeds, metrics and cells of the last call
DIR/cells/<label>_seed<k>_<hash>/config.py          the resolved config
                                /cell.json          label, seed, parameters, code of vitplug
                                /*/vis_data/        what the training has logged (mmengine)
                                /output.log         what it has printed
                                /done               once the training has ended well
"""

import functools
import hashlib
import importlib.util
import json
import os
import re
import sys
from collections.abc import Iterable, Mapping
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mmengine.config import Config

from vitplug.config.parts import as_list, data_places, strings_in
from vitplug.config.text import config_text, named
from vitplug.files.folders import of_file, of_names
from vitplug.files.whole import write_text

PACKAGE = Path(__file__).resolve().parents[1]
GRID, CELL, CONFIG, OUTPUT, DONE = 'grid.json', 'cell.json', 'config.py', 'output.log', 'done'
# Parts of a config that a training's results depend on; the others are helpers of configs, records and tests.
PARTS = ('auto_scale_lr', 'compile', 'custom_hooks', 'data_preprocessor', 'default_hooks', 'default_scope', 'load_from')
PARTS += ('model', 'model_wrapper_cfg', 'optim_wrapper', 'param_scheduler', 'randomness', 'runner_type', 'strategy')
PARTS += ('train_cfg', 'train_dataloader', 'val_cfg', 'val_dataloader', 'val_evaluator')
# Hooks by which all cells of a seed start from the same weights, and see the same images whatever the workers.
HOOKS = ('PairedWeightsHook', 'RandomnessHook')
# Settings in them without influence on any number, by the end of their place.
IDLE = re.compile(
    r'(^|\.)(_scope_|with_cp|num_workers|persistent_workers|pin_memory|prefetch_factor)$'
    r'|^default_hooks\.(checkpoint|interruption|logger|plug_values|timer|visualization)$'
)
# Settings that hold paths. Their last part counts, and the content of the file or folder.
PATHS = re.compile(r'(data_root|data_prefix|ann_file|\w*_path|\w*checkpoint|pretrained|load_from)$')
FILES = re.compile(r'(^|\.)(load_from|checkpoint|pretrained|ann_file)$')


@dataclass(frozen=True)
class Cell:
    """A variant with a seed: its label, folder, number of parameters, and a hash of the code that it was made with."""

    label: str
    seed: int
    folder: Path
    parameters: int | None = None
    code: str = ''

    def __str__(self) -> str:
        return f'{self.label}, seed {self.seed}'

    @property
    def is_done(self) -> bool:
        return (self.folder / DONE).exists()

    @property
    def last_line(self) -> str:
        """What the training has printed last: how far it is, or why it failed; empty before it has begun."""
        path = self.folder / OUTPUT
        return path.read_text(errors='replace').strip().rpartition('\n')[2] if path.is_file() else ''

    @property
    def checkpoint(self) -> Path | None:
        """The last checkpoint; None if there is none."""
        note = self.folder / 'last_checkpoint'
        path = self.folder / Path(note.read_text().strip()).name if note.is_file() else None
        return path if path and path.exists() else None

    @property
    def command(self) -> list[str]:
        """The training, which goes on from its last checkpoint."""
        train = [sys.executable, '-m', 'vitplug', 'train', str(self.folder / CONFIG)]
        return [*train, '--work-dir', str(self.folder), '--resume']

    def curve(self, metric: str) -> dict[int, float]:
        """A metric by step (epochs, or iterations where the training counts these), from mmengine's records.

        A validation that a resumed training repeats counts once, as it was repeated.
        """
        found = {}
        for path in sorted(self.folder.glob('*/vis_data/scalars.json')):
            *lines, _ = path.read_text(encoding='utf-8').split('\n')  # the last one may be being written
            for record in map(json.loads, lines):
                if metric in record:
                    found[int(record['step'])] = float(record[metric])
        return dict(sorted(found.items()))


# --- what a cell is ---


def make_cell(label: str, variant: Config, seed: int, out: Path, parameters: int) -> Cell:
    """Writes what a cell trains; the config of one that is done stays as it is, and it notes all code that it ran."""
    cfg = deepcopy(variant)
    cfg.randomness = {**(cfg.get('randomness') or {}), 'seed': seed}
    hooks, others = as_list(cfg.get('custom_hooks')), (cfg.get('default_hooks') or {}).values()
    present = [str(hook.get('type')) for hook in (*hooks, *others) if hook]
    missing = [name for name in HOOKS if not any(kind.endswith(name) for kind in present)]
    cfg.custom_hooks = [*hooks, *(dict(type=f'vitplug.{name}') for name in missing)]
    if checkpoints := (cfg.get('default_hooks') or {}).get('checkpoint'):
        checkpoints.setdefault('max_keep_ckpts', 1)
    if visualizer := cfg.get('visualizer'):
        backends = as_list(visualizer.get('vis_backends'))
        if all(one.get('type') != 'LocalVisBackend' for one in backends):  # whose records are read
            visualizer.vis_backends = [*backends, dict(type='LocalVisBackend')]
    safe = re.sub(r'[^\w.+=-]+', '_', label).strip('_.')[:80]
    folder = out / 'cells' / f'{safe}_seed{seed}_{content_hash(cfg)}'
    if not (folder / DONE).exists():  # settings and places of data that the hash does not count may be others by now
        write_text(folder / CONFIG, config_text(cfg._cfg_dict))
        codes = read_cell(folder).code.split('+') if any(folder.glob('*/vis_data')) else []
        code = '+'.join(dict.fromkeys([*codes, vitplug_hash()]))
        note = dict(label=label, seed=seed, parameters=parameters, code=code)
        write_text(folder / CELL, json.dumps(note, indent=1) + '\n')
    return read_cell(folder)


def read_cell(folder: Path) -> Cell:
    note = json.loads((folder / CELL).read_text(encoding='utf-8'))
    return Cell(folder=folder, **note)


def content_hash(cfg: Config) -> str:
    """A hash of what the results of a training depend on: settings, and the bytes of data, checkpoints and own modules.

    It does not depend on where these lie, on the order of keys, on logging, or on the number of loader workers.
    """
    settings = {name: _canonical(cfg[name], name) for name in PARTS if cfg.get(name) is not None}
    parts = dict(
        load_from=cfg.get('load_from'), model=cfg.get('model'), val_evaluator=as_list(cfg.get('val_evaluator'))
    )
    named_files = [(key, text) for key, text in strings_in(parts) if FILES.search(key) and text]
    places = [*data_places(cfg, 'train'), *data_places(cfg, 'val'), *((key, Path(text)) for key, text in named_files)]
    held = {key: _hash(os.path.abspath(path)) for key, path in places if path.exists()}
    held |= {key: of_names([text]) for key, text in named_files if '://' in text}  # an address is known by its text
    content = dict(settings=settings, held=held | own_code(cfg))
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:10]


def own_code(cfg: Config) -> dict[str, str]:
    """Hashes of the modules that a config imports or names in types, but for installed ones."""
    imports = as_list((cfg.get('custom_imports') or {}).get('imports'))
    types = (text for key, text in strings_in(cfg._cfg_dict) if re.search(r'(^|\.)type$', key) and '.' in text)
    held = {}
    for module in sorted({*imports, *(text.partition('.')[0] for text in types)} - {PACKAGE.name}):
        spec = importlib.util.find_spec(module)
        if spec and (module in imports or 'site-packages' not in str(spec.origin)):
            folders = spec.submodule_search_locations
            files = Path(folders[0]).rglob('*.py') if folders else [Path(spec.origin)]
            held[f'custom_imports.{module}'] = _code_hash(files)
    return held


# A hash of the bytes of a file or folder, which all variants of a call share.
_hash = functools.cache(of_file)


@functools.cache
def vitplug_hash() -> str:
    """A hash of the code of vitplug outside of the laboratory."""
    return _code_hash(path for path in PACKAGE.rglob('*.py') if 'lab' not in path.relative_to(PACKAGE).parts)


def _code_hash(files: Iterable[Path]) -> str:
    return of_names(f'{path.name} {of_file(path)}' for path in sorted(files))


def _canonical(value: Any, place: str) -> Any:
    if isinstance(value, Mapping):
        children = {str(key): (child, f'{place}.{key}') for key, child in value.items()}
        kept = {key: _canonical(child, at) for key, (child, at) in children.items() if not IDLE.search(at)}
        # No plugs are no plugs, whether a config says so or not.
        return {key: child for key, child in kept.items() if key != 'plugs' or child}
    if isinstance(value, list | tuple):
        return [_canonical(child, place) for child in value]
    if isinstance(value, str) and any(map(PATHS.fullmatch, place.split('.'))):
        return os.path.basename(os.path.normpath(value)) if value else value
    return value if isinstance(value, str | int | float | None) else str(named(value))
