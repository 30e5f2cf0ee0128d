"""Measures and conditions by name, as a command line gives them."""

import difflib
import importlib
import inspect
import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from .conditions import CLEAN, CONDITIONS, Condition
from .measure import Measure
from .measures.attention import ATTENTION
from .measures.cka import CKA
from .measures.fields import FIELDS
from .measures.grad_cam import GRAD_CAM
from .measures.learned import LEARNED
from .measures.neighbours import NEIGHBOURS
from .measures.pictures import PICTURES
from .measures.relevance import RELEVANCE
from .measures.scores import SCORES, SCORES_OF
from .measures.sinks import SINKS
from .measures.tokens import TOKENS
from .store import digest

GROUPS = SCORES, ATTENTION, SINKS, TOKENS, CKA, FIELDS, GRAD_CAM, RELEVANCE, LEARNED, NEIGHBOURS, PICTURES
MEASURES: Mapping[str, Measure] = {measure.name: measure for group in GROUPS for measure in group}
SCORE, ALL = 'score', 'all'


def measures_of(names: Sequence[str], library: str) -> list[Measure]:
    """The measures of a command line: names, ``score`` for that of the task, ``all`` that are quick, or one's own.

    Raises:
        ValueError: If a name is unknown; says the closest one.
    """
    score = MEASURES[SCORES_OF[library]]
    quick = [measure for measure in MEASURES.values() if not measure.slow and not measure.predicts]
    known = {name: [measure] for name, measure in MEASURES.items()} | {SCORE: [score], ALL: [*quick, score]}
    chosen: list[Measure] = []
    for name in names:
        if name in known:
            chosen += known[name]
        else:
            made, source = own(name, '--measures', known)
            chosen += [replace(measure, code=source) for measure in made]
    return list({measure.name: measure for measure in chosen}.values())


def conditions_of(texts: Sequence[str], repeats: int = 1) -> list[Condition]:
    """The conditions of a command line, clean images first: names with values (``shift:right:15``), or one's own.

    Raises:
        ValueError: If a condition is unknown, or its values are wrong; names it.
    """
    chosen = [CLEAN]
    for text in texts:
        name, *values = text.split(':')
        if name not in CONDITIONS:
            made, source = own(text, '--conditions', CONDITIONS)
            chosen += [replace(condition, content=condition.content + source) for condition in made]
            continue
        make = CONDITIONS[name]
        try:
            [first, *others] = _as_list(make(*values))
            chosen += [first, *others]
            if first.repeat is not None:  # its last argument is the seed
                fixed = list(values)[: len(inspect.signature(make).parameters) - 1]
                chosen += [make(*fixed, seed=str(first.repeat + draw)) for draw in range(1, repeats)]
        except (TypeError, ValueError, ZeroDivisionError) as error:
            raise ValueError(f'--conditions {text}: {error}: {inspect.getdoc(make)}') from error
    return list({(condition.name, condition.repeat): condition for condition in chosen}.values())


def _as_list(made: object) -> list:
    return made if isinstance(made, list) else [made]


def own(text: str, option: str, known: Iterable[str]) -> tuple[list, str]:
    """What a user's ``module:name`` is or gives, and a hash of the module's source; also of the folder of the call.

    Raises:
        ValueError: If there is none, nor a known name; says the closest one.
    """
    module, colon, function = text.partition(':')
    if not colon:
        raise ValueError(f'{option} {text}: there is none: {advice_for(text, known)}')
    if os.getcwd() not in sys.path:  # a script's own folder is there, that of the call is not
        sys.path.insert(0, os.getcwd())
    try:
        made = getattr(importlib.import_module(module), function)
    except (ImportError, AttributeError) as error:
        advice = advice_for(module, known)
        raise ValueError(f'{option} {text}: there is none, nor a function {text} ({error}): {advice}') from error
    made = made() if callable(made) else made
    return _as_list(made), digest(inspect.getsource(sys.modules[module]))


def advice_for(name: str, known: Iterable[str]) -> str:
    """The closest known name, or all."""
    close = difflib.get_close_matches(name, known := list(known), n=1)
    return f'did you mean {close[0]}?' if close else f'choose from {", ".join(known)}'
