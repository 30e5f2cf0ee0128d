"""Tables as text, for the terminal, Markdown, LaTeX and spreadsheets."""

import csv
import io
from collections.abc import Collection, Iterable, Sequence

Rows = Sequence[Sequence[str]]
# What TeX reads as a command.
TEX = str.maketrans(
    {char: f'\\{char}' for char in '&%$#_{}'}
    | {char: f'${char}$' for char in '<>'}
    | {'~': r'\textasciitilde{}', '^': r'\textasciicircum{}', '\\': r'\textbackslash{}'}
)


def format_table(rows: Rows, numeric: Collection[int] = ()) -> str:
    """Rows of text, headings first, as lines with aligned columns; columns of ``numeric`` are right-aligned."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    aligns = [str.rjust if i in numeric else str.ljust for i in range(len(widths))]
    lines = ['  '.join(f(cell, n) for f, cell, n in zip(aligns, row, widths, strict=True)).rstrip() for row in rows]
    lines.insert(1, '  '.join('-' * width for width in widths))
    return '\n'.join(lines)


def markdown_table(rows: Rows, numeric: Collection[int] = ()) -> str:
    """The same as a Markdown table."""
    rule = ['---:' if i in numeric else '---' for i in range(len(rows[0]))]
    return '\n'.join(f'| {" | ".join(row)} |' for row in (rows[0], rule, *rows[1:]))


def csv_text(headings: Sequence[str], rows: Iterable[Sequence]) -> str:
    """Rows of any values as a CSV file."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator='\n')
    writer.writerow(headings)
    writer.writerows(rows)
    return text.getvalue()


def latex_table(rows: Rows, numeric: Collection[int] = ()) -> str:
    """The same as a LaTeX table, which needs the package booktabs."""
    columns = ''.join('r' if i in numeric else 'l' for i in range(len(rows[0])))
    head, *body = (' & '.join(cell.translate(TEX) for cell in row) + r' \\' for row in rows)
    lines = [
        rf'\begin{{tabular}}{{{columns}}}',
        r'\toprule',
        head,
        r'\midrule',
        *body,
        r'\bottomrule',
        r'\end{tabular}',
    ]
    return '\n'.join([*lines, ''])
