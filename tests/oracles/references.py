"""Reference parameter counts: those of the table of models, which says whose they are. Tests derive all others."""

from pathlib import Path

from model_table import SECTIONS

ROWS = [row for rows in SECTIONS.values() for row in rows]
#: Parameters by name of the model: their number, or millions with some decimals as text.
COUNTS = {row.name: row.parameters for row in ROWS}
#: The same by name of the config, where it is the model as it is.
BY_CONFIG = {Path(row.config).name: row.parameters for row in ROWS if not row.changes}


def equals(count: int, reference: int | str) -> bool:
    """Whether a count is the reference in all its digits."""
    if isinstance(reference, int):
        return count == reference
    decimals = len(reference.partition('.')[2])
    return f'{count / 1e6:.{decimals}f}' == reference
