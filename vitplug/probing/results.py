"""Results of probes: table, JSON, CSV and pictures."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from vitplug.analysis.study.drawing import save
from vitplug.analysis.study.results import write_json
from vitplug.analysis.study.store import Store
from vitplug.files.atomic import AtomicBackend
from vitplug.statistics.seeds import Comparison, Verdict, compare, mean_and_sd
from vitplug.tables import csv_text, format_table

from . import result_pictures
from .run import CHOSEN, HELD, HELD_OUT, PICTURE, SECONDS, Plan, Subject

JSON, CSV = 'results.json', 'results.csv'
PER_CLASS = 'per_class'
MEANING = (
    f'A seed draws which {HELD_OUT:.0%} of the training images are held out, which patches of an image are used, the '
    "initial head and the order of the batches: the same for all models. Intervals: Student's t over seeds, 95 %, of "
    'paired differences; they say nothing of other test images or of other initial weights of a backbone.'
)


@dataclass(frozen=True)
class Row:
    """A model.

    Attributes:
        label: Its label.
        values: By name of the value, then by seed, in percent.
        chosen: Chosen settings by seed.
        held_out: Scores on held-out samples by seed, in percent.
        seconds: Durations by seed.
        comparison: Main value against the reference; None for the reference.
        cells: All arrays by seed.
    """

    label: str
    values: Mapping[str, Mapping[int, float]]
    chosen: Mapping[int, float]
    held_out: Mapping[int, float]
    seconds: Mapping[int, float]
    comparison: Comparison | None
    cells: Mapping[int, Mapping[str, np.ndarray]]


@dataclass(frozen=True)
class Results:
    """All models.

    Attributes:
        rows: The models in their order.
        main: Name of the value that is compared.
        reference: Label of the model that the others are compared with; None for one model alone.
    """

    rows: Sequence[Row]
    main: str
    reference: str | None


def collect(subjects: Sequence[Subject], plan: Plan, store: Store, reference: str | None) -> Results:
    """The results of a store, compared with the reference."""
    main = subjects[0].kind.scorer.main
    stored = {subject.label: store.units(subject.label, plan.probe.name) for subject in subjects}
    cells = {label: {seed: own[seed] for seed in range(plan.seeds)} for label, own in stored.items()}
    by_seed = {label: {seed: float(cell[main]) for seed, cell in own.items()} for label, own in cells.items()}
    compared = compare(by_seed, reference) if reference else {}
    return Results([_row(label, own, compared.get(label)) for label, own in cells.items()], main, reference)


def _row(label: str, cells: Mapping[int, Mapping[str, np.ndarray]], comparison: Comparison | None) -> Row:
    first = next(iter(cells.values()))
    names = [name for name in first if name not in (PER_CLASS, CHOSEN, HELD, SECONDS) and not name.startswith(PICTURE)]

    def of(name: str) -> dict[int, float]:
        return {seed: float(cell[name]) for seed, cell in cells.items()}

    values = {name: of(name) for name in names}
    return Row(label, values, of(CHOSEN), of(HELD), of(SECONDS), comparison, cells)


def table(results: Results, plan: Plan) -> str:
    """Mean and standard deviation of each value, the difference with its interval, and what it says."""
    names = list(results.rows[0].values)
    compared = [f'{results.main} - {results.reference}', 'p (Holm)', 'verdict'] if results.reference else []
    lines = [['model', *names, *compared, plan.probe.chooses, 's']]
    for row in results.rows:
        line = [row.label, *(_mean(row.values[name].values()) for name in names)]
        if results.reference:
            line += _compared(row.comparison)
        lines.append([*line, _settings(row.chosen.values()), f'{np.mean([*row.seconds.values()]):.1f}'])
    return format_table(lines, numeric=range(1, len(names) + 1))


def _mean(values) -> str:
    mean, sd = mean_and_sd([*values])
    return f'{mean:.2f}' if sd is None else f'{mean:.2f} ± {sd:.2f}'


def _compared(comparison: Comparison | None) -> list[str]:
    if comparison is None:
        return ['', '', 'reference']
    if comparison.low is None:
        return [f'{comparison.difference:+.2f}', '', comparison.verdict.value]
    decided = comparison.verdict in (Verdict.BETTER, Verdict.WORSE)
    interval = f'{comparison.difference:+.2f} [{comparison.low:+.2f}, {comparison.high:+.2f}]'
    return [interval, f'{comparison.p_holm:.2g}', comparison.verdict.value if decided else Verdict.OPEN.value]


def _settings(values) -> str:
    return ', '.join(f'{value:g}' for value in sorted(set(values)))


def write(
    folder: Path, results: Results, subjects: Sequence[Subject], plan: Plan, names: Sequence[str], command: str
) -> None:
    """Writes results and pictures, each file as a whole.

    Args:
        folder: Where they go.
        results: The results.
        subjects: The models.
        plan: What was done.
        names: Names of the classes.
        command: The command line.
    """
    write_json(
        folder / JSON,
        command=command,
        meaning=MEANING,
        probe=dict(name=plan.probe.name, chooses=plan.probe.chooses, patches=plan.patches, **plan.probe.settings),
        compared=results.main,
        reference=results.reference,
        classes=list(names),
        models={row.label: _as_json(row, subject) for row, subject in zip(results.rows, subjects, strict=True)},
    )
    AtomicBackend().put_text(_as_csv(results), folder / CSV)
    save(result_pictures.draw_values(results), folder / 'values.png')
    save(result_pictures.draw_predictions(results, subjects[0], names), folder / 'predictions.png')


def _as_json(row: Row, subject: Subject) -> dict:
    per_class = np.mean([cell[PER_CLASS] for cell in row.cells.values()], axis=0)
    return dict(
        about=subject.extractor.about,
        config=str(subject.cfg.filename),
        features=subject.cache.key,
        images={split: len(images) for split, images in subject.images.items()},
        values={
            name: dict(zip(('mean', 'sd'), mean_and_sd([*by_seed.values()]), strict=True), seeds=by_seed)
            for name, by_seed in row.values.items()
        },
        per_class=[float(value) if np.isfinite(value) else None for value in per_class],
        chosen=row.chosen,
        held_out=row.held_out,
        seconds=row.seconds,
        comparison=row.comparison and asdict(row.comparison) | dict(verdict=row.comparison.verdict.value),
    )


def _as_csv(results: Results) -> str:
    rows = (
        (row.label, seed, name, repr(value))
        for row in results.rows
        for name, by_seed in row.values.items()
        for seed, value in by_seed.items()
    )
    return csv_text(('model', 'seed', 'value', 'percent'), rows)
