"""Names that are near a name which nothing knows."""

import difflib
from collections.abc import Collection


def hint(name: str, known: Collection[str], cutoff: float = 0.6) -> str:
    """``'; did you mean ...?'`` with the nearest of some names; '' if none is near."""
    close = difflib.get_close_matches(name, known, n=1, cutoff=cutoff)
    return f'; did you mean {close[0]!r}?' if close else ''
