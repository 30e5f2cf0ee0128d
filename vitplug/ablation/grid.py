"""What an ablation compares: a base config, axes of settings, plugs and seeds."""

import ast
import itertools
import math
import os
import runpy
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

from mmengine.config import Config

from vitplug.backbones.plug_configs import build_plugs, plugs_text
from vitplug.config.keys import check_key, check_takes_plugs
from vitplug.config.reading import read_config
from vitplug.config.text import printable
from vitplug.plugs.text import NONE, label_of, parse_plugs
from vitplug.spelling import hint

from .records import GRID, read_object

PLUGS_KEY = 'model.backbone.plugs'
SEEDS = 3
MOST_CELLS = 100_000
KEEP = ('none', 'last')
UNCHANGED = 'base'
"""Label of the only variant of a grid without plugs and axes."""


@dataclass(frozen=True)
class GridFile:
    """A grid as the user writes it.

    Attributes:
        base: The config that all variants start from.
        axes: Values by the dotted name of a setting; every combination is a variant.
        plugs: Plugs of the variants, each a text or a list as backbones take it, and kept as texts; None to leave
            those of the base as they are.
        seeds: The seeds of every variant.
        metric: Name of the metric; None for the main one of the config.
        greater_is_better: None to tell by the name of the metric.
        margin: Largest difference in points that counts as none, chosen before the first cell; None for that of the
            metric.
        baseline: Label of the variant that the others are compared with; None for the first one.
        options: Settings of all variants that win over the base.
        keep: Which checkpoints of finished cells stay: ``'none'``, or ``'last'`` for the last one of each; None for
            what the folder's grid has.
        start_from: Folder of another grid, relative to this one's: each cell starts with the weights of that grid's
            cell of the same label and seed.
    """

    base: str
    axes: Mapping[str, Sequence] = field(default_factory=dict)
    plugs: Sequence[str | Sequence] | None = None
    seeds: Sequence[int] = tuple(range(SEEDS))
    metric: str | None = None
    greater_is_better: bool | None = None
    margin: float | None = None
    baseline: str | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    keep: str | None = None
    start_from: str | None = None

    def __post_init__(self) -> None:
        _check_axes(self.axes)
        _check_entries(self)
        if isinstance(self.plugs, list | tuple):
            texts = [plugs if isinstance(plugs, str) else plugs_text(plugs) for plugs in self.plugs]
            object.__setattr__(self, 'plugs', texts)
        # As lists and tuples, which grid.json can hold, whatever sequence they are, such as a range.
        object.__setattr__(self, 'axes', {key: [*values] for key, values in self.axes.items()})
        object.__setattr__(self, 'seeds', tuple(self.seeds))
        _check_distinct('plugs', self.plugs)
        if not self.seeds:
            raise ValueError('seeds: there are none; expected a number such as 5, or a list such as [0, 1, 2]')
        for seed in self.seeds:
            if type(seed) is not int or not 0 <= seed < 2**31:
                raise ValueError(f'seeds: {seed!r} is no seed: expected integers from 0 to 2^31 - 1')
        _check_distinct('seeds', self.seeds)
        cells = math.prod([*map(len, self.axes.values()), len(self.plugs or [None]), len(self.seeds)])
        if cells > MOST_CELLS:
            raise ValueError(f'a grid of {cells:,} cells is too large: expected at most {MOST_CELLS:,}')

    def as_json(self) -> dict[str, Any]:
        """The grid as ``grid.json`` has it."""
        return asdict(self)


@dataclass(frozen=True)
class Variant:
    """One combination of plugs and values, trained with every seed.

    Attributes:
        label: Its name in tables.
        axes: Value by the name of the setting.
        plugs: Text of its plugs; None where the grid has no plugs.
        cfg: The config, without a seed.
    """

    label: str
    axes: Mapping[str, Any]
    plugs: str | None
    cfg: Config


# --- reading ---


def is_grid_file(path: Path) -> bool:
    """Whether a Python file assigns ``base``, and so is no config."""
    try:
        tree = ast.parse(path.read_text(encoding='utf-8'))
    except (OSError, SyntaxError, ValueError):
        return False
    targets = [target for node in tree.body for target in getattr(node, 'targets', [])]
    names = {target.id for target in targets if isinstance(target, ast.Name)}
    return 'base' in names and not names & {'_base_', 'model'}


def read_grid_file(path: Path) -> GridFile:
    """Reads a grid file: Python with ``base`` and some of ``axes``, ``plugs``, ``seeds``, ``metric`` ...

    Raises:
        ValueError: If it fails, has an unknown name, or a wrong value.
    """
    try:
        found = runpy.run_path(str(path))
    except Exception as error:  # a program can fail with any
        raise ValueError(f'{path} is no grid ({type(error).__name__}): {error}') from error
    entries = {
        name: value
        for name, value in found.items()
        if not name.startswith('_') and not isinstance(value, ModuleType | FunctionType | type)
    }
    known = [entry.name for entry in fields(GridFile)]
    for name in entries:
        if name not in known:
            raise ValueError(f'{path}: {name} is unknown: choose from {", ".join(known)}{hint(name, known)}')
    base = entries.pop('base')
    if not isinstance(base, str):
        raise ValueError(f'{path}: base = {base!r}: expected the path of a config')
    if isinstance(entries.get('seeds'), int):
        entries['seeds'] = seeds_of(str(entries['seeds']))
    beside = base if '::' in base or os.path.isabs(base) else os.path.normpath(path.parent / base)
    try:
        return GridFile(base=beside, **entries)
    except (TypeError, ValueError) as error:
        raise ValueError(f'{path}: {error}') from error


def read_grid_json(folder: Path) -> GridFile:
    """The grid of a folder.

    Raises:
        FileNotFoundError: If the folder has no ``grid.json``.
        ValueError: If it cannot be read.
    """
    path = folder / GRID
    if not path.is_file():
        raise FileNotFoundError(f'{folder} has no {GRID}: name a config, a grid file or the folder of a grid')
    try:
        content = read_object(path)
        return GridFile(**{entry.name: content[entry.name] for entry in fields(GridFile) if entry.name in content})
    except (TypeError, KeyError, ValueError) as error:
        raise ValueError(f'{path} cannot be read: {error}') from error


def seeds_of(text: str) -> tuple[int, ...]:
    """The seeds of a text: ``5`` for 0 to 4, ``3,4`` for these, and ``7,`` for one.

    Raises:
        ValueError: If it is neither.
    """
    try:
        numbers = tuple(int(number) for number in text.split(',') if number.strip())
    except ValueError:
        numbers = ()
    if not numbers or (',' not in text and not 1 <= numbers[0] <= MOST_CELLS):
        raise ValueError(
            f'seeds: {text[:40]!r}: expected how many there are, such as 5 (at most {MOST_CELLS:,}), or a list such as '
            "'0,1,2'"
        )
    return numbers if ',' in text else tuple(range(numbers[0]))


def _check_entries(grid: GridFile) -> None:
    for name in ('metric', 'baseline', 'start_from'):
        value = getattr(grid, name)
        if not isinstance(value, str | None):
            raise ValueError(f'{name} = {value!r}: expected a text')
    if not isinstance(grid.greater_is_better, bool | None):
        raise ValueError(f'greater_is_better = {grid.greater_is_better!r}: expected True or False')
    if grid.margin is not None:
        check_margin(grid.margin)
    if not isinstance(grid.options, Mapping):
        raise ValueError(f'options = {grid.options!r}: expected a dict of settings, such as {{"log_level": "ERROR"}}')
    if grid.keep not in (None, *KEEP):
        raise ValueError(f'keep = {grid.keep!r}: choose from {", ".join(KEEP)}')
    if not isinstance(grid.seeds, Sequence) or isinstance(grid.seeds, str):
        raise ValueError(f'seeds = {grid.seeds!r}: expected a number such as 5, or a list such as [0, 1, 2]')


def check_margin(margin: object) -> None:
    """Checks a margin of equality.

    Raises:
        ValueError: If it is no number above 0.
    """
    if type(margin) not in (int, float) or not 0 < margin < math.inf:
        raise ValueError(f'margin = {margin!r}: expected a difference above 0, in points of the metric')


def _check_axes(axes: object) -> None:
    if not isinstance(axes, Mapping):
        raise ValueError(f"axes = {axes!r}: expected a dict such as {{'optim_wrapper.optimizer.lr': [1e-3, 1e-4]}}")
    for key, values in axes.items():
        if isinstance(values, str) or not isinstance(values, Sequence):
            raise ValueError(f'axes: {key} = {values!r}: expected a list of values')
        if not values:
            raise ValueError(f'axes: {key} has no values: name at least one, or leave the axis out')
        if len(values) > MOST_CELLS:
            raise ValueError(f'axes: {key} has {len(values):,} values: expected at most {MOST_CELLS:,}')
        if key == PLUGS_KEY or key == 'randomness.seed':
            raise ValueError(f'axes: {key}: write {key.rpartition(".")[2].removesuffix("s")}s = [...] in its place')
        _check_distinct(f'axes: {key}', [repr(value) for value in values])


def _check_distinct(name: str, values: Sequence | None) -> None:
    if values is None:
        return
    if isinstance(values, str) or not isinstance(values, Sequence) or not values:
        raise ValueError(f'{name} = {values!r}: expected a list of values')
    twice = [value for value, number in Counter(values).items() if number > 1]
    if twice:
        raise ValueError(f'{name}: {twice[0]} occurs twice')


# --- variants ---


def make_variants(grid: GridFile) -> list[Variant]:
    """The variants of a grid, in the order of plugs and axes.

    Raises:
        FileNotFoundError: If there is no base.
        ValueError: If a plug, a key or a value is refused; names the variant.
    """
    base = read_config(grid.base, dict(grid.options))
    for key in grid.axes:
        check_key(base, key, 'axes: ')
    texts = [None] if grid.plugs is None else [label_of(text) for text in grid.plugs]
    _check_distinct('plugs', texts)
    parsed = {text: None if text is None else _parsed(text) for text in texts}
    if grid.plugs is not None:
        _check_takes_plugs(base)
    names = short_ends(grid.axes, '.')
    shown = {key: dict(zip(map(repr, values), _shown(values), strict=True)) for key, values in grid.axes.items()}
    return [
        _variant(base, text, parsed[text], dict(zip(grid.axes, values, strict=True)), names, shown)
        for text, values in itertools.product(texts, itertools.product(*grid.axes.values()))
    ]


def _parsed(text: str) -> list[dict]:
    plugs = parse_plugs(text, '--plugs')
    try:
        build_plugs(plugs)
    except (ValueError, TypeError) as error:
        raise ValueError(f'--plugs: {text!r}: {error}') from error
    return plugs


def baseline_of(grid: GridFile, labels: Sequence[str]) -> str:
    """The label of the baseline: the one that the grid names, or the first, preferably without plugs.

    Raises:
        ValueError: If the grid names none of the labels.
    """
    if grid.baseline is None:
        plain = [label for label in labels if label == NONE or label.startswith(f'{NONE}, ')]
        return (plain or labels)[0]
    if grid.baseline not in labels:
        near = hint(grid.baseline, labels)
        raise ValueError(f'--baseline: {grid.baseline!r} is none of the variants {", ".join(labels)}{near}')
    return grid.baseline


def _variant(
    base: Config, text: str | None, plugs: list | None, axes: dict, names: Mapping[str, str], shown: Mapping[str, dict]
) -> Variant:
    parts = [f'{names[key]}={shown[key][repr(value)]}' for key, value in axes.items()]
    label = printable(', '.join([*([] if text is None else [text]), *parts])) or UNCHANGED
    cfg = deepcopy(base)
    if plugs is not None:
        cfg.model.backbone.plugs = deepcopy(plugs)
    try:
        cfg.merge_from_dict(deepcopy(axes))
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise ValueError(f'{label}: its settings do not fit {base.filename}: {error}') from error
    return Variant(label, axes, text, cfg)


def _check_takes_plugs(base: Config) -> None:
    backbone = (base.get('model') or {}).get('backbone')
    if not isinstance(backbone, Mapping):
        raise ValueError(f'{base.filename}: its model has no backbone that could take plugs')
    check_takes_plugs(backbone, base)


def short_ends(names: Iterable[str], separator: str) -> dict[str, str]:
    """The shortest distinct ends of names, such as settings or paths."""
    found, names = {}, [*names]
    for name in names:
        parts = name.split(separator)
        ends = [separator.join(parts[-number:]) for number in range(1, len(parts) + 1)]
        others = [separator + other for other in names if other != name]
        found[name] = next((end for end in ends if not any(one.endswith(separator + end) for one in others)), name)
    return found


def _shown(values: Sequence) -> list[str]:
    """The values of an axis in labels: short, of paths the ends by which they differ, numbered where still alike."""
    texts = [str(value.get('type', value)) if isinstance(value, Mapping) else str(value) for value in values]
    paths = [text for value, text in zip(values, texts, strict=True) if isinstance(value, str) and '/' in text]
    ends = short_ends([path.rstrip('/') for path in paths], '/')
    short = [ends.get(text.rstrip('/'), text)[-40:] if text in paths else text[:40] for text in texts]
    numbers = [short[:place].count(text) + 1 for place, text in enumerate(short)]
    return [f'{text} ({number})' if number > 1 else text for text, number in zip(short, numbers, strict=True)]


def pairs(variants: Sequence[Variant], seeds: Sequence[int]) -> Iterator[tuple[Variant, int]]:
    """Variants and seeds, seed by seed: variants can be compared from the first finished seed on."""
    for seed in seeds:
        for variant in variants:
            yield variant, seed
