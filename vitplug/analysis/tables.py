"""Tables as text, and the units of counts in them."""

from vitplug.tables import Rows, format_table, latex_table, markdown_table

__all__ = ['Rows', 'format_table', 'giga', 'latex_table', 'markdown_table', 'millions']


def millions(count: int) -> str:
    """A number of parameters in millions."""
    return f'{count / 1e6:.3f} M'


def giga(count: int) -> str:
    """A number of MACs, in G (10^9)."""
    return f'{count / 1e9:.3f} G'
