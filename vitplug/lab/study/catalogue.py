"""Measures, conditions and papers' parts by name, as a command line gives them."""

import difflib
import inspect
import os
import pkgutil
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import yaml

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


#: The papers' tables and figures, see `papers.yml`.
PAPERS: Mapping[str, Mapping[str, Any]] = yaml.safe_load(Path(__file__).with_name('papers.yml').read_text())


def paper_of(name: str | None, measures: Sequence[str]) -> Mapping[str, Any]:
    """A paper's part; without a name nothing, or the score if no measure is named either.

    Raises:
        ValueError: If there is no such part; says the closest one.
    """
    if name and name not in PAPERS:
        raise ValueError(f'--paper {name}: there is none: {advice_for(name, PAPERS)}')
    defaults = dict(measures=[] if measures else [SCORE], conditions=[], num=None, figures={}, choices=[])
    return defaults | PAPERS.get(name, {})


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
        chosen += known[name] if name in known else own(name, '--measures', known, 'code')
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
            chosen += own(text, '--conditions', CONDITIONS, 'content')
            continue
        make = CONDITIONS[name]
        try:
            made = _as_list(make(*values))
            if made[0].repeat is not None:  # its last argument is the seed
                fixed = values[: len(inspect.signature(make).parameters) - 1]
                made += [make(*fixed, seed=str(made[0].repeat + draw)) for draw in range(1, repeats)]
        except (TypeError, ValueError, ZeroDivisionError) as error:
            raise ValueError(f'--conditions {text}: {error}: {inspect.getdoc(make)}') from error
        chosen += made
    return list({(condition.name, condition.repeat): condition for condition in chosen}.values())


def _as_list(made: object) -> list:
    return made if isinstance(made, list) else [made]


def own(text: str, option: str, known: Iterable[str], source: str) -> list:
    """What a user's ``module:name`` is or gives, also of the folder of the call.

    Their attribute ``source`` gets a hash of the module's source.

    Raises:
        ValueError: If there is none, nor a known name; says the closest one.
    """
    if os.getcwd() not in sys.path:  # a script's own folder is there, that of the call is not
        sys.path.insert(0, os.getcwd())
    try:
        made = pkgutil.resolve_name(text)
    except (ImportError, AttributeError, ValueError) as error:
        raise ValueError(f'{option} {text}: there is none ({error}): {advice_for(text, known)}') from error
    code = digest(inspect.getsource(sys.modules[text.partition(':')[0]]))
    return [replace(one, **{source: code}) for one in _as_list(made() if callable(made) else made)]


def advice_for(name: str, known: Iterable[str]) -> str:
    """The closest known name, or all."""
    close = difflib.get_close_matches(name, known := list(known), n=1)
    return f'did you mean {close[0]}?' if close else f'choose from {", ".join(known)}'
