"""The measures of `analyze.py`, by name: a new one is one more entry."""

import difflib

from .attention import ATTENTION
from .estimators import ESTIMATORS, UNBIASED
from .features import FEATURES, OfGroups
from .figures import FIGURES
from .gradients import GRADIENTS
from .learned import LEARNED
from .measure import Measure

MEASURES: dict[str, Measure] = {measure.name: measure for measure in (*ATTENTION, *FEATURES, *GRADIENTS, *LEARNED)}
ALL = 'all'


def choose(names: str, cka: str = UNBIASED.name) -> list[Measure]:
    """The measures of a list such as ``'entropy,distance'``; ``'all'`` for all.

    Args:
        names: The list.
        cka: How CKA is estimated, of :data:`~.estimators.ESTIMATORS`.

    Raises:
        ValueError: If a name is unknown; says the closest one. If no measure of the list is CKA, and ``cka`` is another
            than the default.
    """
    wanted = list(MEASURES) if names == ALL else [name.strip() for name in names.split(',')]
    for name in wanted:
        if name not in MEASURES:
            close = difflib.get_close_matches(name, [*MEASURES, ALL], n=1)
            advice = f'did you mean {close[0]}?' if close else f'choose from {", ".join(MEASURES)}, or {ALL}'
            raise ValueError(f'--measures {names}: there is no {name!r}: {advice}')
    chosen = [MEASURES[name] for name in dict.fromkeys(wanted)]
    if cka == UNBIASED.name:
        return chosen
    if not any(isinstance(measure, OfGroups) for measure in chosen):
        of_cka = ', '.join(name for name, measure in MEASURES.items() if isinstance(measure, OfGroups))
        raise ValueError(f'--cka {cka}: none of --measures {names} is of CKA: add one of {of_cka}, or leave --cka out')
    return [measure.by(ESTIMATORS[cka]) if isinstance(measure, OfGroups) else measure for measure in chosen]


def by_all_estimators() -> list[Measure]:
    """Every measure and figure; measures of CKA by every estimator."""
    others = [estimator for estimator in ESTIMATORS.values() if estimator is not UNBIASED]
    more = [m.by(estimator) for m in MEASURES.values() if isinstance(m, OfGroups) for estimator in others]
    return [*MEASURES.values(), *more, *FIGURES.values()]
