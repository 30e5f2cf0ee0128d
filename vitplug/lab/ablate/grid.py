"""What an ablation compares: a base config, plugs, axes of settings, and seeds."""

import itertools
import math
import os
import re
from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mmengine.config import Config

from vitplug.config.reading import read_config, take_plugs
from vitplug.config.slips import check_key
from vitplug.plugs.text import NONE, label_of, parse_plugs
from vitplug.spelling import hint

UNCHANGED = 'base'
"""Label of the only variant of a grid without plugs and axes."""


@dataclass(frozen=True)
class Grid:
    """A grid as the user writes it.

    Attributes:
        base: The config that all variants start from.
        plugs: Texts of plugs, one for each variant; None to leave those of the base as they are.
        axes: Values by the dotted name of a setting; every combination is a variant.
        seeds: The seeds of every variant, as a sequence or as a number from 0 on.
        metric: The metrics to compare by; None for the main one of the config.
        greater_is_better: None to tell by the name of the metric.
        margin: Largest difference in points that counts as none; None for that of the metric.
        baseline: Label of the variant that the others are compared with; None for that without plugs, or the first.
        options: Settings of all variants that win over the base.
        names: What tables and pictures call a variant, by its label.
    """

    base: str
    plugs: Sequence[str] | None = None
    axes: Mapping[str, Sequence] = field(default_factory=dict)
    seeds: Sequence[int] | int = 3
    metric: Sequence[str] | str | None = None
    greater_is_better: bool | None = None
    margin: float | None = None
    baseline: str | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    names: Mapping[str, str] = field(default_factory=dict)

    @property
    def all_seeds(self) -> list[int]:
        return [*range(self.seeds)] if isinstance(self.seeds, int) else [*dict.fromkeys(self.seeds)]

    def baseline_of(self, labels: Sequence[str]) -> str:
        """The label of the baseline: the one that the grid names, that without plugs, or the first."""
        return self.baseline or next((label for label in labels if label.split(', ')[0] == NONE), labels[0])


def read_grid_file(path: Path) -> Grid | None:
    """Reads a grid file: Python that assigns ``base`` and other entries of :class:`Grid`; None of a config."""
    if not path.is_file() or not re.search(r'^base *=', path.read_text(encoding='utf-8'), re.M):
        return None
    found = Config.fromfile(path, import_custom_modules=False).to_dict()
    base = found.pop('base')
    return Grid(base if '::' in base else os.path.normpath(path.parent / base), **found)


def make_variants(grid: Grid) -> dict[str, Config]:
    """The configs of a grid, without seeds, in the order of plugs and axes.

    Returns:
        By the label of the variant: its plugs and the values of the axes in full.

    Raises:
        FileNotFoundError: If there is no base.
        ValueError: Names an entry of the grid that is refused, and what is expected.
    """
    if not grid.all_seeds:
        raise ValueError(f'seeds = {grid.seeds!r}: expected a number such as 5, or a list such as [0, 1, 2]')
    if grid.margin is not None and not 0 < grid.margin < math.inf:
        raise ValueError(f'margin = {grid.margin!r}: expected a difference above 0, in points of the metric')
    for key, values in grid.axes.items():
        if isinstance(values, str) or not values:
            raise ValueError(f'axes: {key} = {values!r}: expected a list of values')
        if key in ('model.backbone.plugs', 'randomness.seed'):
            raise ValueError(f'axes: {key}: write {key.rpartition(".")[2].removesuffix("s")}s = [...] in its place')
    base = read_config(grid.base, dict(grid.options))
    if grid.plugs is not None:
        take_plugs(base)
    variants: dict[str, Config] = {}
    last = [key.rpartition('.')[2] for key in grid.axes]
    names = dict(zip(grid.axes, last if len({*last}) == len(last) else grid.axes, strict=True))
    for text, values in itertools.product(grid.plugs or [None], itertools.product(*grid.axes.values())):
        settings = dict(zip(grid.axes, values, strict=True))
        parts = [f'{names[key]}={value}' for key, value in settings.items()]
        label = ', '.join([*([] if text is None else [label_of(text)]), *parts]) or UNCHANGED
        if label in variants:
            raise ValueError(f'two variants are called {label!r}: leave one out')
        cfg = variants[label] = deepcopy(base)
        if text is not None:
            cfg.model.backbone.plugs = parse_plugs(text, '--plugs')
        try:
            for key in settings:  # after the plugs, whose arguments may be axes
                check_key(cfg, key, 'axes: ')
            cfg.merge_from_dict(deepcopy(settings))
        except (KeyError, TypeError, ValueError) as error:
            raise ValueError(f'{label}: {error}') from error
    for label in [*grid.names, grid.baseline_of([*variants])]:
        if label not in variants:
            raise ValueError(f'{label!r} is none of the variants {", ".join(variants)}{hint(label, variants)}')
    return variants
