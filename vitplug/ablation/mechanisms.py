"""Do the papers' mechanisms show? One row for each claim of a paper, measured on the trained cells of a grid.

A claim compares a variant, which has one plug, with the baseline on the same seeds, or with its own start, or asks for
the sign of a number. It is *seen* if the 95 % interval over seeds lies on the side that the paper says, *opposite* if
it lies on the other, and *undecided* otherwise. Rows of numbers without a claimed side are *shown*. Intervals are not
adjusted for the number of claims.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import partial
from pathlib import Path

import numpy as np
import torch
from matplotlib.figure import Figure
from mmengine.registry import MODELS, init_default_scope

from vitplug.analysis.study import drawing
from vitplug.analysis.study.images import find_images
from vitplug.analysis.study.measures_by_name import MEASURES
from vitplug.analysis.study.observed import MODEL
from vitplug.analysis.study.plan import check_images, identity, plan
from vitplug.analysis.study.results import results_of
from vitplug.analysis.study.run import run
from vitplug.analysis.study.store import open_store
from vitplug.analysis.study.subject import Subject
from vitplug.config.reading import read_config
from vitplug.files.atomic import AtomicBackend
from vitplug.files.readers import refuse_code_in_files
from vitplug.plugs.text import listed_plugs
from vitplug.runs.saving.folders import last_checkpoint
from vitplug.statistics.images import student
from vitplug.statistics.seeds import MIN_SEEDS, Interval, t_interval
from vitplug.tables import format_table, markdown_table

from .cells import CONFIG
from .records import CELL, Grid, State, read_cells, read_grid, read_object

FOLDER, IMAGES = 'mechanisms', 128
HEADINGS = ('plug', 'claim', 'paper', 'seeds', 'value', 'against', 'difference', '95% interval', 'verdict')

#: What a measure gave for one model: arrays by name of the value.
Numbers = Mapping[str, np.ndarray]
#: From these to the values over depth, a matrix of blocks, or one number.
Values = Callable[[Numbers], np.ndarray]


class Against(Enum):
    """What the number of a variant is compared with."""

    BASELINE = 'the baseline'
    START = 'its start'
    ZERO = '0'


class Seen(Enum):
    """Whether a mechanism shows."""

    SEEN = 'seen'
    OPPOSITE = 'opposite'
    UNDECIDED = 'undecided'
    SHOWN = 'shown'


@dataclass(frozen=True)
class Claim:
    """A claim of a paper.

    Attributes:
        plug: Type of the plug whose variant is looked at.
        text: The claim.
        source: Paper and figure.
        measure: Measure of `analyze.py`.
        values: Takes the values of that measure that the claim is about.
        number: One number of these values.
        sign: 1 if it grows, -1 if it falls, 0 if the paper does not say.
        against: What it is compared with.
    """

    plug: str
    text: str
    source: str
    measure: str
    values: Values
    number: Callable[[np.ndarray], float]
    sign: int
    against: Against = Against.BASELINE


def _value(name: str, numbers: Numbers) -> np.ndarray:
    """The values of a name, after the plug where it changes maps."""
    return numbers.get(f'{name} after the plug', numbers[name])


def _learned(symbol: str, numbers: Numbers, statistic: str = 'mean') -> np.ndarray:
    """A statistic of a learned value by block, mean over its sockets.

    Raises:
        KeyError: If the plug has not learned it.
    """
    found = [array for name, array in numbers.items() if name.startswith(symbol) and name.endswith(f', {statistic}')]
    if not found:
        raise KeyError(symbol)
    return np.mean(found, axis=0)


def _halves(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The values of the first half of the blocks, and of the others."""
    return values[: len(values) // 2], values[len(values) // 2 :]


def _shallow(values: np.ndarray) -> float:
    return float(np.nanmean(_halves(values)[0]))


def _deep(values: np.ndarray) -> float:
    return float(np.nanmean(_halves(values)[1]))


def _all(values: np.ndarray) -> float:
    return float(np.nanmean(values))


def _slope(values: np.ndarray) -> float:
    """Of the least-squares line over the blocks."""
    blocks = np.flatnonzero(np.isfinite(values))
    return float(np.polyfit(blocks, values[blocks], 1)[0])


def _across(matrix: np.ndarray) -> float:
    """Mean over the pairs of a block of the first half and one of the second."""
    half = len(matrix) // 2
    return float(np.nanmean(matrix[:half, half:]))


_MASS = partial(_value, 'attention of the first key, mean of heads')
_SINKS = 'Qiu et al. 2025 (gates)'
CLAIMS = (
    Claim(
        'ContextBroadcast',
        'the attention entropy of the layers falls',
        'Context Broadcasting, Fig. 5a',
        'entropy',
        partial(_value, 'patch queries, mean of heads'),
        _all,
        -1,
    ),
    Claim(
        'ContextBroadcast',
        'the mean of Lambda grows with depth',
        'Context Broadcasting, Fig. 6',
        'learned',
        partial(_learned, 'cb.Lambda'),
        _slope,
        1,
        Against.ZERO,
    ),
    Claim(
        'ContextBroadcast',
        'the ratio of the quantiles of Lambda grows with depth',
        'Context Broadcasting, Fig. 6',
        'learned',
        partial(_learned, 'cb.Lambda', statistic='quantile ratio'),
        _slope,
        1,
        Against.ZERO,
    ),
    Claim(
        'GaussianAttentionBias',
        'the receptive field is closer to a Gaussian (R²)',
        'Gaussian Attention Bias, Sec. 3',
        'erf',
        partial(_value, 'R²'),
        float,
        1,
    ),
    Claim(
        'GaussianAttentionBias',
        'training brings the receptive field closer to a Gaussian (R²)',
        'Gaussian Attention Bias, Sec. 3',
        'erf',
        partial(_value, 'R²'),
        float,
        1,
        Against.START,
    ),
    Claim(
        'GaussianAttentionBias',
        'learned A',
        'Gaussian Attention Bias, Eq. 3',
        'learned',
        partial(_learned, 'gab.A'),
        _all,
        0,
        Against.START,
    ),
    Claim(
        'GaussianAttentionBias',
        'learned sigma, in tokens',
        'Gaussian Attention Bias, Eq. 3',
        'learned',
        partial(_learned, 'gab.sigma'),
        _all,
        0,
        Against.START,
    ),
    Claim(
        'ResidualAttention',
        'the feature similarity of the deep layers falls',
        'ReViT, Fig. 3',
        'feature_similarity',
        partial(_value, 'similarity'),
        _deep,
        -1,
    ),
    Claim(
        'ResidualAttention',
        'the non-locality falls',
        'ReViT, Fig. 7',
        'non_locality',
        partial(_value, 'non-locality, mean of heads'),
        _all,
        -1,
    ),
    Claim(
        'ResidualAttention',
        'learned alpha',
        'ReViT, Fig. 10',
        'learned',
        partial(_learned, 'residual_attention.alpha'),
        _all,
        0,
        Against.ZERO,
    ),
    Claim(
        'BroadAttention',
        'shallow and deep layers are less similar (CKA)',
        'BViT, Fig. 5',
        'cka',
        partial(_value, 'between blocks'),
        _across,
        -1,
    ),
    Claim(
        'BroadAttention',
        'the shallow layers attend more locally (mean attention distance)',
        'BViT, Fig. 6',
        'distance',
        partial(_value, 'mean distance, mean of heads'),
        _shallow,
        -1,
    ),
    Claim(
        'Refiner',
        'features evolve faster',
        'Refiner, Fig. 4',
        'evolving_speed',
        partial(_value, 'evolving speed'),
        _all,
        1,
    ),
    Claim(
        'Refiner',
        'the maps of neighbouring blocks are less similar',
        'Refiner, Fig. 5',
        'map_similarity',
        partial(_value, 'to the next block'),
        _all,
        -1,
    ),
    Claim('GatedAttention', 'the attention of sinks falls', _SINKS, 'sinks', _MASS, _all, -1),
    Claim('LocalitySelfAttention', 'control: the attention of sinks', _SINKS, 'sinks', _MASS, _all, 0),
    Claim('Registers', 'control: the attention of sinks', _SINKS, 'sinks', _MASS, _all, 0),
)


@dataclass(frozen=True)
class Row:
    """A claim for one variant.

    Attributes:
        claim: The claim.
        label: The variant.
        seeds: The seeds for which there are all numbers.
        values: The values of the variant by seed.
        reference: Those that they are compared with; empty for 0.
        numbers: The number of the variant by seed.
        differences: The same less that of the reference.
        interval: Of the mean difference; None below three seeds or without spread.
    """

    claim: Claim
    label: str
    seeds: tuple[int, ...]
    values: tuple[np.ndarray, ...]
    reference: tuple[np.ndarray, ...]
    numbers: tuple[float, ...]
    differences: tuple[float, ...]
    interval: Interval | None

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
    seeds = tuple(seed for seed in found if reference is None or seed in reference)
    values = tuple(claim.values(found[seed]) for seed in seeds)
    others = () if reference is None else tuple(claim.values(reference[seed]) for seed in seeds)
    numbers = np.array([claim.number(value) for value in values])
    differences = numbers - np.array([claim.number(value) for value in others] or [0.0] * len(seeds))
    has_interval = len(seeds) >= MIN_SEEDS and np.ptp(differences) > 0
    interval = t_interval(differences) if has_interval else None
    return Row(
        claim, label, seeds, values, others, tuple(map(float, numbers)), tuple(map(float, differences)), interval
    )


# --- the models ---


@dataclass(frozen=True)
class Model:
    """A trained cell, or its start, whose numbers are measured once.

    Attributes:
        folder: Folder of the cell.
        seed: Its seed.
        is_start: Whether new weights of its config are measured.
    """

    folder: Path
    seed: int
    is_start: bool = False

    @property
    def plugs(self) -> tuple[str, ...]:
        """Types of its plugs."""
        text = read_object(self.folder / CELL).get('plugs') or 'none'
        return tuple(plug['type'].removeprefix('vitplug.') for plug in listed_plugs(text))

    def checkpoint(self, out: Path) -> Path:
        """The last checkpoint, or one with new weights, which is written.

        Raises:
            FileNotFoundError: If the cell keeps none.
        """
        if self.is_start:
            return _new_weights(read_config(str(self.folder / CONFIG)), self.seed, out)
        found = last_checkpoint(self.folder)
        if found is None or not found.is_file():
            raise FileNotFoundError(
                f'{self.folder}: has no checkpoint: mechanisms are measured on trained models, so train the grid with '
                '--keep last'
            )
        return found


def _new_weights(cfg, seed: int, out: Path) -> Path:
    """Weights that a training of a config could start from."""
    path = out / 'start.pth'
    if not path.is_file():
        init_default_scope(cfg.default_scope)
        torch.manual_seed(seed)
        settings = dict(cfg.model, data_preprocessor=cfg.model.get('data_preprocessor') or cfg.get('data_preprocessor'))
        model = MODELS.build(settings)
        model.init_weights()
        out.mkdir(parents=True, exist_ok=True)
        torch.save(dict(state_dict=model.state_dict(), meta=dict(cfg=cfg.pretty_text)), path)
    return path


def measure(model: Model, names: Sequence[str], out: Path, num: int, device: str | None) -> dict[str, Numbers]:
    """Measures one model over images of its validation set; goes on where an earlier call stopped.

    Returns:
        Arrays by measure and name of the value; measures that do not apply are left out.
    """
    out = out / (model.folder.name + ('_start' if model.is_start else ''))
    checkpoint = model.checkpoint(out)
    cfg = read_config(str(model.folder / CONFIG))
    subject = Subject.read(MODEL, cfg, str(checkpoint), device, False)
    usable, _ = check_images([subject], find_images(cfg, 'val', num))
    with open_store(out / 'measured', identity([subject], usable)) as store:
        jobs, _ = plan([MEASURES[name] for name in names], [subject], store)
        run(jobs, [subject], usable, store)
        return {
            result.measure.name: {value: found.mean for value, found in result.shown[0].estimates.items()}
            for result in results_of(jobs)
        }


# --- the command ---


def look_for_mechanisms(folder: Path, num: int = IMAGES, device: str | None = None) -> None:
    """Measures all claims that the variants of a grid allow, prints their table, and writes it with pictures.

    Files go to ``FOLDER/mechanisms``: ``mechanisms.json``, ``mechanisms.md`` and a picture for each row.

    Args:
        folder: Folder of the grid.
        num: Images of the validation set.
        device: Where models run; None for an accelerator where there is one.

    Raises:
        FileNotFoundError: If the folder is none of a grid, or a cell has kept no checkpoint.
        ValueError: If no cell of a variant with one plug that a claim is about is done.
    """
    grid = read_grid(folder)
    models = _trained(folder, grid)
    wanted = _claims_of(models)
    if not wanted:
        plugs = ', '.join(dict.fromkeys(claim.plug for claim in CLAIMS))
        raise ValueError(f'--mechanisms: no finished cell of {folder} has one of these plugs alone: {plugs}')
    refuse_code_in_files()
    out, rows = folder / FOLDER, []
    needed: dict[Model, dict[str, None]] = {}
    for label, claim in wanted:
        for model in _needed(claim, label, models, grid.baseline):
            needed.setdefault(model, {})[claim.measure] = None
    numbers = {}
    for count, (model, names) in enumerate(needed.items(), 1):
        print(f'{count} of {len(needed)}: {model.folder.name}{" at its start" if model.is_start else ""}', flush=True)
        numbers[model] = measure(model, list(names), out, num, device)
    for label, claim in wanted:
        rows += _rows(claim, label, models, grid.baseline, numbers)
    _write(rows, out, num)


def _trained(folder: Path, grid: Grid) -> dict[str, dict[int, Model]]:
    """The finished cells by variant and seed."""
    found: dict[str, dict[int, Model]] = {}
    for cell in read_cells(folder, grid):
        if cell.state is State.DONE:
            found.setdefault(cell.label, {})[cell.seed] = Model(folder / cell.folder, cell.seed)
    return found


def _claims_of(models: Mapping[str, Mapping[int, Model]]) -> list[tuple[str, Claim]]:
    """The claims about each variant: its only plug is the one of the claim."""
    plugs = {label: next(iter(by_seed.values())).plugs for label, by_seed in models.items()}
    return [(label, claim) for claim in CLAIMS for label, own in plugs.items() if own == (claim.plug,)]


def _needed(claim: Claim, label: str, models: Mapping[str, Mapping[int, Model]], baseline: str) -> list[Model]:
    """The models that a row is of."""
    return [*models[label].values(), *(_reference(claim, label, models, baseline) or {}).values()]


def _reference(claim: Claim, label: str, models, baseline: str) -> dict[int, Model] | None:
    if claim.against is Against.ZERO:
        return None
    if claim.against is Against.START:
        return {seed: Model(model.folder, seed, is_start=True) for seed, model in models[label].items()}
    return dict(models.get(baseline, {}))


def _rows(claim: Claim, label: str, models, baseline: str, numbers: Mapping[Model, Mapping[str, Numbers]]) -> list[Row]:
    """The row of a claim; none where a model has no such values, such as a Lambda that is fixed."""
    reference = _reference(claim, label, models, baseline)

    def of(by_seed: Mapping[int, Model]) -> dict[int, Numbers]:
        return {seed: numbers[one][claim.measure] for seed, one in by_seed.items() if claim.measure in numbers[one]}

    try:
        found, others = of(models[label]), None if reference is None else of(reference)
        return [row_of(claim, label, found, others)] if found and others != {} else []
    except KeyError:
        return []


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


def _write(rows: Sequence[Row], out: Path, num: int) -> None:
    files, lines = AtomicBackend(), table(rows)
    for number, row in enumerate(rows, 1):
        drawing.save(picture(row), out / f'{number:02}_{row.claim.plug}_{row.claim.measure}.png')
    content = [
        dict(zip(HEADINGS, line, strict=True), seeds=row.seeds, values=row.numbers, differences=row.differences)
        for line, row in zip(lines[1:], rows, strict=True)
    ]
    files.put_text(json.dumps(dict(images=num, rows=content), indent=1) + '\n', out / 'mechanisms.json')
    files.put_text(markdown_table(lines) + '\n', out / 'mechanisms.md')
    print(f'{format_table(lines, numeric=(3, 4, 6))}\n\n{len(rows)} rows, a picture for each: {out}')


def picture(row: Row) -> Figure:
    """The values that a claim is about, and the differences by seed with their interval."""
    figure, (left, right) = drawing.panels(2, f'{row.label}: {row.claim.text} ({row.claim.source})', columns=2)
    groups = {'model': row.values} | ({'baseline': row.reference} if row.reference else {})
    names = {'model': row.label, 'baseline': row.claim.against.value}
    for label, values in groups.items():
        _draw_values(left, names[label], drawing.style_of(label), np.stack(values))
    left.set_title(f'{row.claim.measure}, intervals over seeds', fontsize=9)
    if left.get_legend_handles_labels()[0]:
        left.legend(fontsize=8)
    right.axvline(0, color='grey', linewidth=1)
    right.plot(row.differences, [0.8] * len(row.differences), 'o', color='black', markersize=4)
    if row.interval is not None:
        ends = [float(row.interval.mean - row.interval.low), float(row.interval.high - row.interval.mean)]
        right.errorbar(float(row.interval.mean), 1, xerr=[[ends[0]], [ends[1]]], fmt='s', color='black', capsize=4)
    right.set(ylim=(0.5, 1.3), yticks=[], xlabel=f'difference from {row.claim.against.value}')
    side = {1: '; the paper: right of 0', -1: '; the paper: left of 0', 0: ''}[row.claim.sign]
    right.set_title(f'{row.verdict.value}{side}', fontsize=9)
    return figure


def _draw_values(ax, name: str, style: dict, values: np.ndarray) -> None:
    """Values of the seeds ``(seeds, ...)``: over the blocks, of one number, or the mean over the rows of a matrix."""
    if values.ndim == 3:
        values = np.nanmean(values, axis=2)
        name = f'{name}, mean of the row'
    if values.ndim == 1:
        ax.plot(values, range(len(values)), linestyle='none', label=name, color=style['color'], marker=style['marker'])
        ax.set(yticks=range(len(values)), ylabel='seed')
        return
    found = student(values)
    blocks = np.flatnonzero(np.isfinite(found.mean))
    ax.fill_between(blocks, found.low[blocks], found.high[blocks], color=style['color'], alpha=0.2, linewidth=0)
    ax.plot(blocks, found.mean[blocks], label=name, markersize=5, **style)
    ax.set_xlabel('block')
    ax.set_xticks(blocks)
