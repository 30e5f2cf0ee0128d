"""Rows of the table of mechanisms: a claim for a variant, with its verdict, as text, picture and JSON."""

import json
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from vitplug.analysis.study import drawing
from vitplug.statistics.images import student
from vitplug.statistics.seeds import MIN_SEEDS, Interval, t_interval

from .mechanism_claims import CLAIMS, Claim, Numbers

FOLDER, JSON = 'mechanisms', 'mechanisms.json'
HEADINGS = ('plug', 'claim', 'paper', 'seeds', 'value', 'against', 'difference', '95% interval', 'verdict')
NUMERIC = (3, 4, 6)


class Seen(Enum):
    """Whether a mechanism shows."""

    SEEN = 'seen'
    OPPOSITE = 'opposite'
    UNDECIDED = 'undecided'
    SHOWN = 'shown'


@dataclass(frozen=True)
class Row:
    """A claim for one variant.

    Attributes:
        claim: The claim.
        label: The variant.
        values: The values of the variant by seed.
        reference: Those that they are compared with, of the same seeds; None for 0.
    """

    claim: Claim
    label: str
    values: Mapping[int, np.ndarray]
    reference: Mapping[int, np.ndarray] | None

    @property
    def seeds(self) -> tuple[int, ...]:
        """The seeds for which there are all numbers."""
        return tuple(self.values)

    @property
    def numbers(self) -> tuple[float, ...]:
        """The number of the variant by seed."""
        return tuple(map(self.claim.number, self.values.values()))

    @property
    def differences(self) -> tuple[float, ...]:
        """The same less that of the reference."""
        if self.reference is None:
            return self.numbers
        others = map(self.claim.number, self.reference.values())
        return tuple(number - other for number, other in zip(self.numbers, others, strict=True))

    @property
    def interval(self) -> Interval | None:
        """Of the mean difference; None below three seeds or without spread."""
        differences = np.array(self.differences)
        return t_interval(differences) if len(differences) >= MIN_SEEDS and np.ptp(differences) > 0 else None

    @property
    def verdict(self) -> Seen:
        """What the interval says."""
        if not self.claim.sign:
            return Seen.SHOWN
        if self.interval is None:
            return Seen.UNDECIDED
        low, high = sorted(self.claim.sign * end for end in (float(self.interval.low), float(self.interval.high)))
        return Seen.SEEN if low > 0 else Seen.OPPOSITE if high < 0 else Seen.UNDECIDED


def row_of(claim: Claim, label: str, found: Mapping[int, Numbers], reference: Mapping[int, Numbers] | None) -> Row:
    """The row of a claim.

    Args:
        claim: The claim.
        label: The variant.
        found: What its measure gave, by seed.
        reference: The same of the baseline, or of the start; None for 0.
    """
    seeds = [seed for seed in found if reference is None or seed in reference]
    others = None if reference is None else {seed: claim.values(reference[seed]) for seed in seeds}
    return Row(claim, label, {seed: claim.values(found[seed]) for seed in seeds}, others)


# --- as JSON ---


def as_json(rows: Sequence[Row], images: int) -> dict:
    """The content of its file: the table, and the values of each seed, from which it can be made again."""
    content = []
    for line, row in zip(table(rows)[1:], rows, strict=True):
        numbers = dict(numbers=_rounded([*row.numbers]), differences=_rounded([*row.differences]))
        content.append(
            dict(zip(HEADINGS, line, strict=True))
            | dict(type=row.claim.plug, seeds=row.seeds)
            | numbers
            | dict(values=_lists(row.values), reference=row.reference and _lists(row.reference))
        )
    return dict(images=images, rows=content)


def read_rows(path: Path) -> tuple[int, list[Row]]:
    """Number of images and rows of a `mechanisms.json`.

    Raises:
        ValueError: If the file is broken, or of other claims.
    """
    claims = {(claim.plug, claim.text): claim for claim in CLAIMS}
    try:
        content = json.loads(path.read_text())
        return content['images'], [
            Row(
                claims[row['type'], row['claim']],
                row['plug'],
                _arrays(row['values']),
                row['reference'] and _arrays(row['reference']),
            )
            for row in content['rows']
        ]
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise ValueError(
            f'{path}: is no table of mechanisms of this version ({error}): measure again, by ablate.py DIR --mechanisms'
        ) from error


def joined(rows: Sequence[Row], earlier: Sequence[Row]) -> list[Row]:
    """Rows with the seeds that only earlier ones have, in the order of the claims."""
    found = {(row.claim, row.label): row for row in earlier}
    for row in rows:
        old = found.get((row.claim, row.label), row)
        reference = None if row.reference is None else _by_seed({**(old.reference or {}), **row.reference})
        found[row.claim, row.label] = Row(row.claim, row.label, _by_seed({**old.values, **row.values}), reference)
    return sorted(found.values(), key=lambda row: CLAIMS.index(row.claim))


def _by_seed(values: Mapping[int, np.ndarray]) -> dict[int, np.ndarray]:
    return dict(sorted(values.items()))


def _lists(values: Mapping[int, np.ndarray]) -> dict[int, list]:
    """Arrays as lists, None for no number."""
    return {seed: _rounded(np.asarray(array).tolist()) for seed, array in values.items()}


def _rounded(value):
    if isinstance(value, list):
        return [_rounded(one) for one in value]
    return float(f'{value:.7g}') if np.isfinite(value) else None


def _arrays(values: Mapping[str, list]) -> dict[int, np.ndarray]:
    return {int(seed): np.array(array, dtype=float) for seed, array in values.items()}


# --- as text and picture ---


def table(rows: Sequence[Row]) -> list[tuple[str, ...]]:
    """Headings and a line for each row, as text."""
    lines = [HEADINGS]
    for row in rows:
        claim, value, difference = row.claim, _mean(row.numbers), _mean(row.differences)
        against = f'{claim.against.value} ({value - difference:.3g})' if row.reference else claim.against.value
        interval = '' if row.interval is None else f'{row.interval.low:+.3g} to {row.interval.high:+.3g}'
        lines.append(
            (
                row.label,
                claim.text,
                claim.source,
                str(len(row.seeds)),
                f'{value:.3g}',
                against,
                f'{difference:+.3g}',
                interval,
                row.verdict.value,
            )
        )
    return lines


def _mean(numbers: Sequence[float]) -> float:
    return float(np.mean(numbers)) if numbers else float('nan')


def picture(rows: Sequence[Row], title: str) -> Figure:
    """For each row the values that the claim is about, and the differences by seed with their interval."""
    figure, axes = drawing.panels(2 * len(rows), title, columns=min(4, 2 * len(rows)), inches=(3.0, 2.5))
    for row, left, right in zip(rows, axes[::2], axes[1::2], strict=True):
        _draw_groups(left, row)
        _draw_differences(right, row)
    return figure


def _draw_groups(ax: Axes, row: Row) -> None:
    _draw_values(ax, row.label, drawing.style_of('model'), row.values)
    if row.reference:
        name = row.claim.against.value
        _draw_values(ax, name, drawing.style_of('baseline'), row.reference)
    ax.set_title(textwrap.fill(f'{row.label}: {row.claim.text} ({row.claim.source})', 44), fontsize=8)
    ax.set_ylabel(row.claim.measure, fontsize=8)
    ax.tick_params(labelsize=8)
    ax.legend(fontsize=7)


def _draw_differences(ax: Axes, row: Row) -> None:
    ax.axvline(0, color='grey', linewidth=1)
    ax.plot(row.differences, [0.8] * len(row.seeds), 'o', color='black', markersize=4)
    if row.interval is not None:
        ends = [float(row.interval.mean - row.interval.low), float(row.interval.high - row.interval.mean)]
        ax.errorbar(float(row.interval.mean), 1, xerr=[[ends[0]], [ends[1]]], fmt='s', color='black', capsize=4)
    ax.set(ylim=(0.5, 1.3), yticks=[])
    ax.xaxis.set_major_locator(MaxNLocator(4))
    ax.tick_params(labelsize=8)
    ax.set_xlabel(f'difference from {row.claim.against.value}', fontsize=8)
    side = {1: '; the paper: right of 0', -1: '; the paper: left of 0', 0: ''}[row.claim.sign]
    ax.set_title(f'{row.verdict.value}{side}', fontsize=8)


def _draw_values(ax: Axes, name: str, style: dict, by_seed: Mapping[int, np.ndarray]) -> None:
    """Values of the seeds: over the blocks, of one number by seed, or the mean over the rows of a matrix."""
    values = np.stack([*by_seed.values()])
    if values.ndim == 3:
        values = np.nanmean(values, axis=2)
        name = f'{name}, mean of the row'
    if values.ndim == 1:
        ax.plot(values, range(len(values)), linestyle='none', label=name, color=style['color'], marker=style['marker'])
        ax.set_yticks(range(len(values)), [f'seed {seed}' for seed in by_seed])
        ax.xaxis.set_major_locator(MaxNLocator(4))
        return
    found = student(values)
    blocks = np.flatnonzero(np.isfinite(found.mean))
    if len(values) >= MIN_SEEDS:
        ax.fill_between(blocks, found.low[blocks], found.high[blocks], color=style['color'], alpha=0.2, linewidth=0)
    ax.plot(blocks, found.mean[blocks], label=name, markersize=5, **style)
    ax.set_xlabel('block', fontsize=8)
    ax.set_xticks(blocks)
