"""The measures of `analyze.py`, by name: a new one is one more entry."""

import difflib

from .attention import ATTENTION
from .features import FEATURES
from .gradients import GRADIENTS
from .learned import LEARNED
from .measure import Measure

MEASURES: dict[str, Measure] = {measure.name: measure for measure in (*ATTENTION, *FEATURES, *GRADIENTS, *LEARNED)}
ALL = 'all'


def choose(names: str) -> list[Measure]:
    """The measures of a list such as ``'entropy,distance'``; ``'all'`` for all.

    Raises:
        ValueError: If a name is unknown; says the closest one.
    """
    if names == ALL:
        return list(MEASURES.values())
    wanted = [name.strip() for name in names.split(',')]
    for name in wanted:
        if name not in MEASURES:
            close = difflib.get_close_matches(name, [*MEASURES, ALL], n=1)
            advice = f'did you mean {close[0]}?' if close else f'choose from {", ".join(MEASURES)}, or {ALL}'
            raise ValueError(f'--measures {names}: there is no {name!r}: {advice}')
    return [MEASURES[name] for name in dict.fromkeys(wanted)]
