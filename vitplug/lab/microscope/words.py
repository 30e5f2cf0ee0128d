"""The first panel: what changed against the baseline, in words and numbers."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from torch import Tensor

from .data import MEASURES, Findings, Measure, Reading

#: Changes of a mean below this share of it are called none.
SMALL = 0.005
#: CKA from which features are called alike.
ALIKE = 0.99


@dataclass(frozen=True)
class Row:
    """A line of the table: a number of the baseline and of the model."""

    name: str
    unit: str
    baseline: float | None
    model: float | None


@dataclass(frozen=True)
class Summary:
    """The first panel.

    Attributes:
        sentences: What changed, or what there is if nothing is compared.
        rows: The numbers.
    """

    sentences: tuple[str, ...]
    rows: tuple[Row, ...]


def number(value: float) -> str:
    """Three significant digits."""
    if not value:
        return '0'
    return f'{value:#.3g}'.rstrip('.') if 1e-4 <= abs(value) < 1000 else f'{value:.2e}'


def summarize(findings: Findings, to_compare: str) -> Summary:
    """Words and numbers for the findings; ``to_compare`` says how a baseline is given."""
    *before, after = findings.readings
    if not before:
        return Summary(tuple(_alone(findings, after, to_compare)), tuple(_rows(None, after)))
    [before] = before
    return Summary(tuple(_changes(findings, before, after)), tuple(_rows(before, after)))


# --- a model alone ---


def _alone(findings: Findings, reading: Reading, to_compare: str) -> Iterator[str]:
    for image, outcome in zip(findings.images, reading.outcomes, strict=True):
        yield f'{image.path.name}: {outcome.text}.'
    yield f'No baseline was given, so nothing is compared; {to_compare} shows what a plug changed.'


# --- against a baseline ---


def _changes(findings: Findings, before: Reading, after: Reading) -> Iterator[str]:
    for image, old, new in zip(findings.images, before.outcomes, after.outcomes, strict=True):
        yield f'{image.path.name}: {old.change_to(new)}.'
    for measure in MEASURES:
        yield from _change_of(measure, before, after)
    yield from _learned(before, after)
    if findings.cross is not None and (sentence := _least_alike(findings.cross)):
        yield sentence


def _change_of(measure: Measure, before: Reading, after: Reading) -> Iterator[str]:
    old, new = (_mean(reading.measures[measure.key]) for reading in (before, after))
    if old is None or new is None:
        return
    if abs(new - old) <= SMALL * abs(old):
        yield f'{measure.title} stays at {number(old)} {measure.unit}.'
        return
    verb = 'rises' if new > old else 'falls'
    share = f' ({(new - old) / old:+.1%})' if old else ''
    change = f'from {number(old)} to {number(new)} {measure.unit}{share}'
    yield f'{measure.title} {verb} {change}{_most(measure, before, after)}.'


def _most(measure: Measure, before: Reading, after: Reading) -> str:
    """In which block a measure changed most, where both models have as many."""
    pairs = list(zip(before.measures[measure.key], after.measures[measure.key], strict=False))
    same = len(before.measures[measure.key]) == len(after.measures[measure.key])
    means = {i: (old.mean(), new.mean()) for i, (old, new) in enumerate(pairs) if old is not None and new is not None}
    if not same or len(means) < 2:
        return ''
    block = max(means, key=lambda i: abs(means[i][1] - means[i][0]))
    return f', most in block {block}: {number(means[block][0])} to {number(means[block][1])}'


def _learned(before: Reading, after: Reading) -> Iterator[str]:
    for name, by_block in after.learned.items():
        values = {block: float(value.float().mean()) for block, value in by_block.items()}
        text = _values_text(values)
        old = before.learned.get(name)
        was = f'; the baseline has {_values_text({b: float(v.float().mean()) for b, v in old.items()})}' if old else ''
        yield f'Learned {name}: {text}{was}.'
    if not after.learned:
        yield 'No plug of the model has learned alpha, A, sigma or Lambda.'


def _values_text(values: Mapping[int | None, float]) -> str:
    """Learned values in words: of all blocks, or from the least to the most."""
    if len(values) == 1:
        [(block, value)] = values.items()
        return f'{number(value)} {"for all blocks" if block is None else f"in block {block}"}'
    low, high = (pick(values, key=values.get) for pick in (min, max))
    if number(values[low]) == number(values[high]):
        return f'{number(values[low])} in all {len(values)} blocks'
    mean = np.mean(list(values.values()))
    return f'{number(values[low])} (block {low}) to {number(values[high])} (block {high}), mean {number(mean)}'


def _least_alike(cross: np.ndarray) -> str:
    if cross.shape[0] != cross.shape[1]:
        return ''
    same = cross.diagonal()
    if not np.isfinite(same).any():
        return ''
    block = int(np.nanargmin(same))
    if same[block] >= ALIKE:
        return f'Features of the same block of both models are alike: CKA {number(float(same[block]))} or more.'
    return (
        f'Features of the same block of both models have a CKA of {number(float(np.nanmean(same)))} on average; they '
        f'differ most in block {block} ({number(float(same[block]))}).'
    )


# --- the table ---


def _rows(before: Reading | None, after: Reading) -> Iterator[Row]:
    def pair(value) -> tuple[float | None, float | None]:
        return None if before is None else value(before), value(after)

    for measure in MEASURES:
        yield Row(measure.title, measure.unit, *pair(lambda reading, key=measure.key: _mean(reading.measures[key])))
    yield Row('Median token norm, last block', '', *pair(lambda reading: reading.norms[-1].median))
    yield Row('Tokens with an outlying norm', '', *pair(lambda reading: sum(norms.outliers for norms in reading.norms)))
    for axis in ('sigma_y', 'sigma_x'):
        title = f'Receptive field, {axis.replace("_", " ")} of the fit'
        yield Row(title, 'pixels', *pair(lambda reading, axis=axis: _of_fit(reading, axis)))
    for name in dict.fromkeys(name for reading in (before, after) if reading for name in reading.learned):
        yield Row(f'{name}, mean', '', *pair(lambda reading, name=name: _learned_mean(reading.learned.get(name))))


def _mean(blocks: Sequence[np.ndarray | None]) -> float | None:
    means = [heads.mean() for heads in blocks if heads is not None]
    return float(np.mean(means)) if means else None


def _of_fit(reading: Reading, axis: str) -> float | None:
    fit = reading.field.fit
    return getattr(fit, axis) if fit.converged and not fit.doubt else None


def _learned_mean(by_block: Mapping[int | None, Tensor] | None) -> float | None:
    return float(np.mean([float(value.float().mean()) for value in by_block.values()])) if by_block else None
