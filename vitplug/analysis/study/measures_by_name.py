"""The measures of `analyze.py`, by name: a new one is one more entry."""

import difflib
from collections.abc import Mapping

from .attention import ATTENTION
from .edits import EDITS
from .estimators import ESTIMATORS, UNBIASED
from .features import FEATURES, OfGroups
from .figures import FIGURES
from .gradients import GRADIENTS
from .learned import LEARNED
from .measure import Measure
from .relevance import RELEVANCE
from .sinks import SINKS

MEASURES: dict[str, Measure] = {
    measure.name: measure for measure in (*ATTENTION, *SINKS, *FEATURES, *GRADIENTS, *RELEVANCE, *LEARNED)
}
ALL = 'all'


def choose(names: str, cka: str = UNBIASED.name) -> list[Measure]:
    """The measures of a list such as ``'entropy,distance'``; ``'all'`` for all
            that are not slow.

    Args:
        names: The list.
        cka: How CKA is estimated, of :data:`~.estimators.ESTIMATORS`.

    Raises:
        ValueError: If a name is unknown; says the closest one. If no measure of the list is CKA, and ``cka`` is another
            than the default.
    """
    defaults = [measure for measure in MEASURES.values() if measure.by_default]
    chosen = defaults if names == ALL else _named('--measures', names, MEASURES, ALL)
    if cka == UNBIASED.name:
        return chosen
    if not any(isinstance(measure, OfGroups) for measure in chosen):
        of_cka = ', '.join(name for name, measure in MEASURES.items() if isinstance(measure, OfGroups))
        raise ValueError(f'--cka {cka}: none of --measures {names} is of CKA: add one of {of_cka}, or leave --cka out')
    return [measure.by(ESTIMATORS[cka]) if isinstance(measure, OfGroups) else measure for measure in chosen]


def choose_figures(names: str) -> list[Measure]:
    """The figures of a list such as ``'cb-figure10,revit-figure3'``.

    Raises:
        ValueError: If there is no figure of a name; says the closest one.
    """
    return _named('--figure', names, FIGURES)


def choose_edits(names: str) -> list[Measure]:
    """The edits of a list such as ``'head-zero,head-mean'``.

    Raises:
        ValueError: If there is no edit of a name; says the closest one.
    """
    return _named('--edit', names, EDITS)


def _named(option: str, names: str, table: Mapping[str, Measure], *others: str) -> list[Measure]:
    wanted = [name.strip() for name in names.split(',')]
    for name in wanted:
        if name not in table:
            close = difflib.get_close_matches(name, [*table, *others], n=1)
            advice = (
                f'did you mean {close[0]}?' if close else f'choose from {", or ".join((", ".join(table), *others))}'
            )
            raise ValueError(f'{option} {names}: there is no {name!r}: {advice}')
    return [table[name] for name in dict.fromkeys(wanted)]


def by_all_estimators() -> list[Measure]:
    """Every measure, figure and edit; measures of CKA by every estimator."""
    others = [estimator for estimator in ESTIMATORS.values() if estimator is not UNBIASED]
    more = [m.by(estimator) for m in MEASURES.values() if isinstance(m, OfGroups) for estimator in others]
    return [*MEASURES.values(), *more, *FIGURES.values(), *EDITS.values()]
