"""Numbers of a run: scores, drops from the clean images, differences between models; as tables, JSON and CSV."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from vitplug.analysis.study.results import write_json
from vitplug.analysis.study.store import Store
from vitplug.files.atomic import AtomicBackend
from vitplug.statistics.images import LEVEL, Estimate, exact, paired
from vitplug.tables import csv_text, format_table

from .columns import Column
from .conditions import CLEAN, Condition
from .run import kept_repeats
from .scores import estimates, mean_of, over_repeats
from .suites import ALEXNET, NOISES, SEVERITIES, SUITES, Options, title_of

FIGURES = "the paper's figures"
JSON, CSV = 'results.json', 'results.csv'
SCORE, DROP, DIFFERENCE, OF_DROPS, REPEATS = 'score', 'drop', 'difference', 'difference of drops', 'score over repeats'
HEADINGS = ('suite', 'condition', 'strength', 'value', 'model', 'quantity', 'mean', 'low', 'high', 'n')
INTERVALS = (
    f"{LEVEL:.0%} over images: Student's t of top-1, whose differences are paired by image; the jackknife over "
    f"at most 16 groups of images of mIoU and AP, paired by group. Scores over repeats: Student's t over repeats"
)


@dataclass(frozen=True)
class Number:
    """One number with its interval.

    Attributes:
        suite: Name of the suite.
        condition: The row.
        value: ``'top-1'``, ``'mIoU'``, ``'bbox AP'`` or ``'segm AP'``, in points.
        model: Label of the column.
        quantity: ``'score'``; ``'drop'``, clean - score; ``'difference'``, the model's score - the first model's;
            ``'difference of drops'``; or ``'score over repeats'``.
        estimate: The number.
    """

    suite: str
    condition: Condition
    value: str
    model: str
    quantity: str
    estimate: Estimate


#: Scores by value, of one model under one condition.
Scores = Mapping[str, Estimate]


def numbers_of(
    suites: Mapping[str, Sequence[Condition]], columns: Sequence[Column], store: Store, repeats: int
) -> list[Number]:
    """All numbers of finished suites; the clean images are the first row of each."""
    kept = {
        (column.label, condition): kept_repeats(store, column, condition, repeats)
        for conditions in suites.values()
        for condition in conditions
        for column in columns
    }
    scores = {key: estimates(arrays) for key, arrays in kept.items()}
    every_number = []
    for suite, conditions in suites.items():
        if suite in SUITES:
            rows = {
                condition: [scores[column.label, condition] for column in columns] for condition in [CLEAN, *conditions]
            }
            rows |= _means(suite, rows)
            for condition, by_column in rows.items():
                every_number += _numbers(suite, condition, by_column, rows[CLEAN], columns)
                every_number += _over_repeats(suite, condition, columns, kept)
    return every_number


def _numbers(suite, condition, by_column: Sequence[Scores], clean: Sequence[Scores], columns) -> Iterator[Number]:
    for column, scores, unchanged in zip(columns, by_column, clean, strict=True):
        for value, score in scores.items():
            first, first_clean = by_column[0][value], clean[0][value]
            yield Number(suite, condition, value, column.label, SCORE, score)
            if condition.clean:
                yield Number(suite, condition, value, column.label, DROP, paired(unchanged[value], score))
            if column is not columns[0]:
                yield Number(suite, condition, value, column.label, DIFFERENCE, paired(score, first))
                if condition.clean:
                    drops = paired(unchanged[value], score), paired(first_clean, first)
                    yield Number(suite, condition, value, column.label, OF_DROPS, paired(*drops))


def _over_repeats(suite, condition, columns, kept) -> Iterator[Number]:
    for column in columns:
        arrays = kept.get((column.label, condition), ())
        if len(arrays) > 1:
            for value, estimate in over_repeats(arrays).items():
                yield Number(suite, condition, value, column.label, REPEATS, estimate)


def _means(suite: str, rows: Mapping[Condition, Sequence[Scores]]) -> dict[Condition, Sequence[Scores]]:
    """Rows of means over the 15 corruptions of the benchmark; none for other suites."""
    if suite != 'corruptions':
        return {}
    common = [condition for condition in rows if condition.family in ALEXNET]
    severities = sorted({int(condition.strength) for condition in common})
    if not common:
        return {}
    released = common[0].folder is not None
    name = 'mPC' if severities == list(SEVERITIES) else f'mean over severities {", ".join(map(str, severities))}'
    clean = None if released else CLEAN.name
    milder = [one for one in common if one.family not in NOISES or one.strength <= 3]
    by_condition = {Condition(f'{name}, the 15 corruptions', clean=clean): _mean(rows, common)}
    if milder != common and not released:
        by_condition[Condition(f'{name}, noise up to severity 3', clean=clean)] = _mean(rows, milder)
    ratios = [
        {value: _ratio(mean, unchanged[value]) for value, mean in means.items()}
        for means, unchanged in zip(next(iter(by_condition.values())), rows[CLEAN], strict=True)
    ]
    by_condition[Condition(f'{name} / P, in %', clean=None)] = ratios
    if released and severities == list(SEVERITIES):
        by_condition[Condition("mCE, in % of AlexNet's errors", clean=None)] = [
            {
                'top-1': mean_corruption_error(
                    {c.family: [rows[o][i]['top-1'] for o in common if o.family == c.family] for c in common}
                )
            }
            for i in range(len(rows[CLEAN]))
        ]
    return by_condition


def _mean(rows: Mapping[Condition, Sequence[Scores]], conditions: Sequence[Condition]) -> list[Scores]:
    of_columns = zip(*(rows[condition] for condition in conditions), strict=True)
    return [{value: mean_of([scores[value] for scores in column]) for value in column[0]} for column in of_columns]


def _ratio(mean: Estimate, clean: Estimate) -> Estimate:
    return exact({'': 100 * mean.mean / clean.mean if clean.mean else np.nan})['']


def mean_corruption_error(scores: Mapping[str, Sequence[Estimate]]) -> Estimate:
    """mCE: errors summed over severities and divided by AlexNet's, averaged over corruptions; in %.

    Args:
        scores: Top-1 accuracies in points by severity, of exactly the 15 corruptions.

    Raises:
        ValueError: If they are others.
    """
    if scores.keys() != ALEXNET.keys():
        raise ValueError(f'mCE is of {list(ALEXNET)}, and here are {list(scores)}')
    errors = [np.mean([100 - float(one.mean) for one in levels]) / ALEXNET[name] for name, levels in scores.items()]
    return exact({'': np.mean(errors)})['']


# --- files ---


def table(suite: str, numbers: Sequence[Number], columns: Sequence[Column], options: Options) -> str:
    """The table of a suite, with what the paper leaves open."""
    estimates = {(n.condition, n.value, n.model, n.quantity): n.estimate for n in numbers if n.suite == suite}
    labels = [column.label for column in columns]
    headings = ['condition', 'value', *labels, *(f'drop {label}' for label in labels)]
    headings += [f'{label} - {labels[0]}' for label in labels[1:]] + [FIGURES]
    lines = [headings]
    for condition, value in dict.fromkeys((condition, value) for condition, value, *_ in estimates):
        cells = [_cell(estimates.get((condition, value, label, SCORE))) for label in labels]
        cells += [_cell(estimates.get((condition, value, label, DROP))) if condition.clean else '' for label in labels]
        cells += [_cell(estimates.get((condition, value, label, DIFFERENCE)), '+') for label in labels[1:]]
        lines.append([condition.name, value, *cells, condition.paper])
        repeats = [estimates.get((condition, value, label, REPEATS)) for label in labels]
        if repeats[0] is not None:
            name = f'  over {int(repeats[0].n)} repeats'
            lines.append([name, value, *map(_cell, repeats), *[''] * (len(headings) - 2 - len(labels))])
    used = [i for i, column in enumerate(zip(*lines, strict=True)) if any(column[1:])]
    last = headings[used[-1]] == FIGURES
    shown = format_table([[line[i] for i in used] for line in lines], numeric=range(2, len(used) - last))
    choices = ''.join(f'  choice: {choice}\n' for choice in SUITES[suite].choices)
    return f'{title_of(suite, options)}\n{choices}{shown}'


def _cell(estimate: Estimate | None, sign: str = '') -> str:
    if estimate is None or not np.isfinite(estimate.mean):
        return ''
    half = float(estimate.high - estimate.low) / 2
    return f'{float(estimate.mean):{sign}.2f}' + (f' ± {half:.2f}' if np.isfinite(half) else '')


def write(
    folder: Path,
    numbers: Sequence[Number],
    columns: Sequence[Column],
    suites: Sequence[str],
    options: Options,
    about: Mapping,
) -> None:
    """Writes JSON and CSV, each as a whole.

    Args:
        folder: Where they go.
        numbers: The results.
        columns: The models.
        suites: Names of the suites.
        options: Of the call.
        about: What is said of the call: command, images, seed, remarks.
    """
    write_json(
        folder / JSON,
        **about,
        packages=('timm', 'imagecorruptions-imaug'),
        models={
            c.label: dict(
                config=str(c.cfg.filename or c.about), checkpoint=c.checkpoint, sha256=c.sha256, model=c.about
            )
            for c in columns
        },
        intervals=INTERVALS,
        suites={name: _as_json(name, numbers, options) for name in suites},
    )
    AtomicBackend().put_text(csv_text(HEADINGS, map(_row, numbers)), folder / CSV)


def _as_json(suite: str, numbers: Sequence[Number], options: Options) -> dict:
    rows: dict[str, dict] = {}
    for number in (number for number in numbers if number.suite == suite):
        condition = number.condition
        row = rows.setdefault(
            condition.name,
            dict(
                family=condition.family,
                strength=condition.strength,
                unit=condition.unit,
                paper=condition.paper,
                values={},
            ),
        )
        by_model = row['values'].setdefault(number.value, {}).setdefault(number.model, {})
        by_model[number.quantity] = {
            name: _plain(getattr(number.estimate, name)) for name in ('mean', 'low', 'high', 'n')
        }
    return dict(title=title_of(suite, options), left_open=list(SUITES[suite].choices), conditions=rows)


def _plain(number: np.ndarray) -> float | None:
    return float(number) if np.isfinite(number) else None


def _row(number: Number) -> tuple:
    estimate = number.estimate
    ends = (repr(float(end)) if np.isfinite(end) else '' for end in (estimate.mean, estimate.low, estimate.high))
    strength = f'{number.condition.strength:g}' if number.condition.family else ''
    return (
        number.suite,
        number.condition.name,
        strength,
        number.value,
        number.model,
        number.quantity,
        *ends,
        int(estimate.n),
    )
