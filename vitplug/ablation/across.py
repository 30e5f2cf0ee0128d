"""Several grids together: in how many pairs a variant is below the baseline, p values together, and mean ranks.

Grids may have other data, models and metrics: signs of differences and ranks are compared. Sizes are compared in two
grids with one metric alone, as by how much a longer training changes what a plug does.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from matplotlib.figure import Figure

from vitplug.files.atomic import AtomicBackend
from vitplug.statistics.grids import MIN_EXPERIMENTS, MIN_VARIANTS, Ranks, Signs, friedman, signs, stouffer
from vitplug.statistics.seeds import Comparison, compare, holm
from vitplug.tables import format_table, markdown_table

from .report import read_report
from .report_pictures import png
from .summary import Summary, summarise

ALPHA = 0.05
REPORT = 'report.json'
NUMERIC = (1, 2, 3, 4, 5, 6)
# Of a change in points; what is below comes from rounding the values.
DIGITS = 9


@dataclass(frozen=True)
class Across:
    """A variant in all grids that have it.

    Attributes:
        label: The variant.
        comparisons: Its comparison with the baseline, by grid.
        signs: Pairs of all grids in which it is worse (below) or better (above) than the baseline.
        p_signs: p of the sign test after Holm's correction over all variants; None without a pair.
        p_together: The paired t tests of the grids together, by Stouffer's method; None below two of them.
        rank: Mean rank over the grids that have all ranked variants; None for others.
    """

    label: str
    comparisons: Mapping[str, Comparison]
    signs: Signs
    p_signs: float | None
    p_together: float | None
    rank: float | None

    @property
    def verdict(self) -> str:
        """What the signs say."""
        if self.p_signs is None or self.p_signs > ALPHA:
            return 'undecided'
        return 'worse' if self.signs.below > self.signs.above else 'better'


@dataclass(frozen=True)
class Together:
    """All grids.

    Attributes:
        variants: The variants but the baseline, in the order of the grids.
        ranks: Friedman's test over the variants that some grids have in common; None if either are too few.
        p_over_all: By grid and label: p of the paired t test after Holm's correction over all grids; without those that
            cannot be tested.
        changes: Of two grids with one metric, by label: the difference to the baseline in the second grid against that
            in the first, over common seeds, in points; empty for others.
    """

    variants: tuple[Across, ...]
    ranks: Ranks | None
    p_over_all: Mapping[tuple[str, str], float]
    changes: Mapping[str, Comparison]


def compare_grids(grids: Mapping[str, Summary]) -> Together:
    """Compares the variants over several grids.

    Args:
        grids: The grids by name.

    Raises:
        ValueError: If their baselines have different names.
    """
    baselines = {summary.grid.baseline for summary in grids.values()}
    if len(baselines) > 1:
        raise ValueError(f'the grids compare with different baselines: {", ".join(sorted(baselines))}')
    labels = dict.fromkeys(row.label for summary in grids.values() for row in summary.compared)
    found = {label: _comparisons(grids, label) for label in labels}
    of_signs = {label: signs([*_pairs(grids, label)]) for label in labels}
    p = holm([1.0 if one.p is None else one.p for one in of_signs.values()])
    ranks = _ranks(grids)
    variants = tuple(
        Across(
            label,
            found[label],
            of_signs[label],
            None if of_signs[label].p is None else float(p_signs),
            _together(grids, found[label]),
            ranks.mean.get(label) if ranks else None,
        )
        for label, p_signs in zip(labels, p, strict=True)
    )
    return Together(variants, ranks, _over_all(found), _changes([*grids.values()]))


def _comparisons(grids: Mapping[str, Summary], label: str) -> dict[str, Comparison]:
    return {name: row.comparison for name, summary in grids.items() for row in summary.compared if row.label == label}


def _pairs(grids: Mapping[str, Summary], label: str) -> list[float]:
    """Differences to the baseline over the seeds of all grids, above 0 where the variant is better."""
    found = []
    for summary in grids.values():
        sign = 1 if summary.grid.greater_is_better else -1
        found += [sign * difference for difference in _by_seed(summary, label).values()]
    return found


def _by_seed(summary: Summary, label: str) -> dict[int, float]:
    """Differences of a variant to the baseline, in points; empty if the grid has no such variant."""
    reference = summary.baseline.by_seed
    own = next((row.by_seed for row in summary.compared if row.label == label), {})
    return {seed: summary.scale * (value - reference[seed]) for seed, value in own.items() if seed in reference}


def _changes(grids: Sequence[Summary]) -> dict[str, Comparison]:
    """What becomes of each variant's difference from the first of two grids to the second."""
    if len(grids) != 2 or len({(summary.grid.metric, summary.grid.greater_is_better) for summary in grids}) > 1:
        return {}
    changes: dict[str, dict[int, float]] = {}
    for row in grids[0].compared:
        before, after = (_by_seed(summary, row.label) for summary in grids)
        if both := before.keys() & after.keys():
            changes[row.label] = {seed: round(after[seed] - before[seed], DIGITS) for seed in sorted(both)}
    none = dict.fromkeys((seed for by_seed in changes.values() for seed in by_seed), 0.0)
    baseline = grids[0].grid.baseline
    return compare({baseline: none, **changes}, baseline, grids[0].grid.greater_is_better)


def _together(grids: Mapping[str, Summary], found: Mapping[str, Comparison]) -> float | None:
    """p of the paired t tests together, from their one-sided p that the variant is worse."""
    p = []
    for name, one in found.items():
        if one.p is not None and one.difference is not None:
            is_below = (one.difference < 0) == grids[name].grid.greater_is_better
            p.append(one.p / 2 if is_below else 1 - one.p / 2)
    return stouffer(p) if len(p) > 1 else None


def _ranks(grids: Mapping[str, Summary]) -> Ranks | None:
    """Ranks over some grids of the variants that all of them have, the baseline included: of the largest such table."""
    means = {
        name: {row.label: row.mean for row in summary.rows if row.mean is not None} for name, summary in grids.items()
    }
    shared: dict[frozenset[str], None] = {}  # the labels that some grids have in common
    for own in map(frozenset, means.values()):
        both = [own, *(own & others for others in shared)]
        shared |= dict.fromkeys(labels for labels in both if len(labels) >= MIN_VARIANTS)
    having = {labels: [name for name, own in means.items() if labels <= own.keys()] for labels in shared}
    sizes = {labels: len(labels) * len(names) for labels, names in having.items() if len(names) >= MIN_EXPERIMENTS}
    if not sizes:
        return None
    names = having[labels := max(sizes, key=sizes.__getitem__)]
    values = {label: [means[name][label] for name in names] for label in means[names[0]] if label in labels}
    return friedman(values, [grids[name].grid.greater_is_better for name in names])


def _over_all(found: Mapping[str, Mapping[str, Comparison]]) -> dict[tuple[str, str], float]:
    tested = {
        (name, label): one.p for label, by_grid in found.items() for name, one in by_grid.items() if one.p is not None
    }
    return dict(zip(tested, map(float, holm([*tested.values()])), strict=True))


# --- what is written ---


def write_comparison(paths: Sequence[Path], out: Path | None) -> None:
    """Prints the comparison of several grids, and writes it as JSON, Markdown and a picture of the ranks.

    Args:
        paths: Folders of grids, or their ``report.json``.
        out: Folder of the files ``across.json``, ``across.md`` and ``across.png``; None to print alone.

    Raises:
        FileNotFoundError, ValueError: If one of the grids cannot be read, or two have the same name.
    """
    grids: dict[str, Summary] = {}
    for path in paths:
        name = _name(path)
        if name in grids:
            raise ValueError(f'--across: two grids are named {name}: rename a folder')
        grids[name] = read_report(path) if path.is_file() else summarise(path)
    found = compare_grids(grids)
    rows, lines, changes = table(found), [*remarks(found), *dependent(grids)], table_of_changes(found, [*grids])
    print('\n'.join([format_table(rows, NUMERIC), '', *lines]))
    if changes:
        print(f'\n{format_table(changes, NUMERIC)}')
    if out is None:
        return
    files = AtomicBackend()
    files.put_text(json.dumps(as_json(found), indent=1, allow_nan=False) + '\n', out / 'across.json')
    text = [markdown_table(rows, NUMERIC), '', *(f'- {line}' for line in lines), '']
    if changes:
        text += [markdown_table(changes, NUMERIC), '']
    files.put_text('\n'.join(text), out / 'across.md')
    if found.ranks:
        files.put(ranks_picture(found.ranks), out / 'across.png')
    print(f'comparison: {out}')


def _name(path: Path) -> str:
    """The name of a grid's folder, or of a report that lies elsewhere."""
    if path.is_dir():
        return path.resolve().name
    return path.parent.resolve().name if path.name == REPORT else path.stem


def table(found: Together) -> list[tuple[str, ...]]:
    """Headings and a row for each variant, as text."""
    rows = [
        ('variant', 'grids', 'pairs worse', 'pairs better', 'p (signs, Holm)', 'p (Stouffer)', 'mean rank', 'verdict')
    ]
    for one in found.variants:
        numbers = (len(one.comparisons), one.signs.below, one.signs.above)
        rows.append(
            (one.label, *map(str, numbers), *map(p_text, (one.p_signs, one.p_together)), _rank(one), one.verdict)
        )
    return rows


def table_of_changes(found: Together, names: Sequence[str]) -> list[tuple[str, ...]]:
    """Headings and a row for each variant whose difference two grids have on common seeds; empty without one."""
    if not found.changes:
        return []
    rows = [('variant', 'common seeds', f'change from {names[0]} to {names[1]}', 'p (Holm)')]
    for label, one in found.changes.items():
        rows.append((label, str(len(one.seeds)), interval_text(one), p_text(one.p_holm)))
    return rows


def interval_text(one: Comparison) -> str:
    """A difference in points and its interval, such as ``'+0.67 (+0.43 to +0.91)'``."""
    if one.low is None:
        return f'{one.difference:+.2f}'
    return f'{one.difference:+.2f} ({one.low:+.2f} to {one.high:+.2f})'


def p_text(p: float | None) -> str:
    """A p value: with three decimals, or as a power of ten."""
    if p is None:
        return ''
    return f'{p:.3f}' if p >= 0.001 else f'{p:.1e}'


def _rank(one: Across) -> str:
    return '' if one.rank is None else f'{one.rank:.2f}'


def remarks(found: Together) -> list[str]:
    """Lines below the table."""
    lines = [
        'pairs of all grids and seeds; the verdict is that of the sign test, p <= 0.05 after Holm over the variants'
    ]
    if found.ranks is None:
        return [*lines, 'no ranks: they need three grids that have three variants in common']
    ranks = found.ranks
    differ = 'differ' if ranks.p <= ALPHA else 'are not shown to differ'
    return [
        *lines,
        f'ranks of {len(ranks.mean)} variants over {ranks.experiments} grids {differ}: Friedman p = {p_text(ranks.p)}; '
        f'mean ranks further apart than {ranks.critical_difference:.2f} differ (Nemenyi)',
    ]


def dependent(grids: Mapping[str, Summary]) -> list[str]:
    """A line on the grids whose cells start from those of another one."""
    names = [name for name, summary in grids.items() if summary.grid.facts.get('start_from')]
    if not names:
        return []
    return [
        f'cells of {", ".join(names)} start from cells of another grid: where that one is among these, its pairs count '
        'twice; compare without them, too'
    ]


def as_json(found: Together) -> dict:
    """Everything in the comparison."""
    return dict(
        variants=[
            dict(
                label=one.label,
                grids={name: _plain(comparison) for name, comparison in one.comparisons.items()},
                signs=asdict(one.signs),
                p_signs=one.p_signs,
                p_together=one.p_together,
                rank=one.rank,
                verdict=one.verdict,
            )
            for one in found.variants
        ],
        ranks=asdict(found.ranks) if found.ranks else None,
        changes={label: _plain(change) for label, change in found.changes.items()},
        over_all_grids=[dict(grid=name, label=label, p_holm=p) for (name, label), p in found.p_over_all.items()],
    )


def _plain(comparison: Comparison) -> dict:
    return {**asdict(comparison), 'verdict': comparison.verdict.value, 'effect': comparison.effect}


def ranks_picture(ranks: Ranks) -> bytes:
    """PNG of mean ranks, each with a bar of the critical difference: a rank beyond its end differs."""
    ordered = sorted(ranks.mean.items(), key=lambda item: item[1])
    figure = Figure(figsize=(6, 1.2 + 0.3 * len(ordered)), layout='constrained')
    ax = figure.subplots()
    for height, (_, rank) in enumerate(ordered):
        ax.plot([rank, rank + ranks.critical_difference], [height] * 2, color='#999999', linewidth=2, alpha=0.5)
        ax.plot(rank, height, 'D', color='#0072b2', markersize=6)
        ax.annotate(
            f'{rank:.2f}',
            (rank, height),
            xytext=(-6, 0),
            textcoords='offset points',
            ha='right',
            va='center',
            fontsize=8,
        )
    ax.set_yticks(range(len(ordered)), [label for label, _ in ordered], fontsize=9)
    ax.set_ylim(len(ordered) - 0.4, -0.6)
    ax.set_xlim(0.5, len(ordered) + 0.5)
    ax.set_xlabel(f'mean rank over {ranks.experiments} grids (1 is the best)', fontsize=9)
    ax.set_title(f'grey: {ranks.critical_difference:.2f}, a rank beyond it differs (Nemenyi)', fontsize=9, loc='left')
    ax.spines[['top', 'right']].set_visible(False)
    return png(figure)
