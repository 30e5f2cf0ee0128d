"""Tables as text and as a picture."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from vitplug.tables import markdown_table

from .measure import Table


def as_text(table: Table) -> str:
    """A Markdown table."""
    rows = [('', 'ms', f'ratio to {table.reference}', 'quartiles', 'target')]
    for row in table.rows:
        target = '' if row.target is None else f'<= {row.target:.2f}'
        spread = '' if row.quartiles is None else f'{row.quartiles[0]:.2f} to {row.quartiles[1]:.2f}'
        rows.append((row.name, f'{row.seconds * 1e3:.1f}', f'{row.ratio:.3f}', spread, target))
    return f'### {table.title}\n\n{markdown_table(rows, numeric=range(1, 5))}'


def growth_as_text(growths: Sequence) -> str:
    """A Markdown table of memory and time by tokens."""
    if not growths:
        return ''
    sizes = [f'{n} tokens' for n in growths[0].tokens]
    rows = [('', *sizes, 'slope of time', 'slope of memory', 'target')]
    for growth in growths:
        pairs = zip(growth.seconds, growth.gigabytes, strict=True)
        cells = [f'{seconds:.1f} s, {memory:.2f} GB' for seconds, memory in pairs]
        slopes = [f'{growth.slope(values):.2f}' for values in (growth.seconds, growth.gigabytes)]
        rows.append((growth.name, *cells, *slopes, '' if growth.target is None else f'<= {growth.target}'))
    return f'### Growth of a DeiT-S training step, batch 1\n\n{markdown_table(rows, numeric=range(1, len(rows[0])))}'


def compiled_as_text(results: Sequence) -> str:
    """A Markdown table of compiled against eager, by host and plug."""
    modes = list(dict.fromkeys(each.mode for each in results))
    headings = ('ratio to eager', 'quartiles', 'graph breaks', 'compile time, s')
    rows = [('', *(f'{mode}: {heading}' for mode in modes for heading in headings))]
    for host, plug in dict.fromkeys((each.host, each.plug) for each in results):
        by_mode = {each.mode: each for each in results if (each.host, each.plug) == (host, plug)}
        cells = [cell for mode in modes for cell in _compiled_cells(by_mode.get(mode))]
        rows.append((f'{host}, {plug}', *cells))
    title = 'torch.compile with inductor against eager, by host and plug'
    return f'### {title}\n\n{markdown_table(rows, numeric=range(1, len(rows[0])))}'


def _compiled_cells(result) -> tuple[str, ...]:
    if result is None:
        return ('', '', '', '')
    if result.error:
        return ('does not compile', '', '', '')
    low, high = result.quartiles
    return f'{result.ratio:.2f}', f'{low:.2f} to {high:.2f}', str(result.breaks), f'{result.seconds:.0f}'


def save(folder: Path, machine: Mapping[str, str], **found: Sequence) -> Path:
    """Writes ``bench.json``: the machine, and the results by kind, such as ``tables``."""
    folder.mkdir(parents=True, exist_ok=True)
    content = dict(machine=machine) | {kind: [each.as_dict() for each in results] for kind, results in found.items()}
    path = folder / 'bench.json'
    path.write_text(json.dumps(content, indent=2), encoding='utf-8')
    return path


def draw(folder: Path, machine: Mapping[str, str], tables: Sequence[Table]) -> list[Path]:
    """Writes ``bench.png`` if there are tables and matplotlib is installed; returns the written files."""
    try:
        import matplotlib
    except ImportError:
        return []
    if not tables:
        return []
    matplotlib.use('Agg')
    _draw(folder / 'bench.png', machine, tables)
    return [folder / 'bench.png']


def _draw(path: Path, machine: Mapping[str, str], tables: Sequence[Table]) -> None:
    """One panel per table: ratios as bars, targets as ticks."""
    import matplotlib.pyplot as plt

    rows = [max(2, len(table.rows)) for table in tables]
    size = (9, sum(rows) * 0.27 + 0.9 * len(tables))
    figure, axes = plt.subplots(len(tables), figsize=size, gridspec_kw=dict(height_ratios=rows), squeeze=False)
    for axis, table in zip(axes[:, 0], tables, strict=True):
        names = [row.name for row in table.rows]
        axis.barh(names, [row.ratio for row in table.rows], color='#4c78a8')
        for index, row in enumerate(table.rows):
            axis.annotate(f' {row.ratio:.2f}', (row.ratio, index), va='center', fontsize=7)
            if row.target is not None:
                axis.plot([row.target] * 2, [index - 0.45, index + 0.45], color='#e45756')
        axis.axvline(1, color='black', linewidth=0.8)
        axis.invert_yaxis()
        axis.set_title(f'{table.title} (1 = {table.reference})', fontsize=8, loc='left')
        axis.tick_params(labelsize=7)
    legend = f'time relative to the reference; red: target. {", ".join(machine.values())}'
    axes[-1, 0].set_xlabel(legend, fontsize=7)
    figure.tight_layout()
    figure.savefig(path, dpi=110)
    plt.close(figure)
