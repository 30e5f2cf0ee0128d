"""Measures, conditions and papers' parts by name, as a command line gives them."""

import inspect
import os
import pkgutil
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import yaml

from . import conditions, pixels
from .conditions import CLEAN, Condition
from .measure import Measure
from .measures import attention, cka, fields, grad_cam, learned, neighbours, pictures, scores, tokens
from .store import digest

GROUPS = scores, attention, tokens, cka, fields, grad_cam, learned, neighbours, pictures
MEASURES: Mapping[str, Measure] = {
    measure.name: measure
    for group in GROUPS
    for value in vars(group).values()
    for measure in (value if isinstance(value, tuple) else [value])
    if isinstance(measure, Measure)
}
SCORE = 'score'
OF_PIXELS = pixels.shift, pixels.shrink, pixels.occlude, pixels.noise, pixels.shot, pixels.blur, pixels.corruption
OF_MODELS = pixels.field, conditions.fgsm, conditions.reset, conditions.edit
OTHER_IMAGES = conditions.imagenet_a, conditions.imagenet_v2, conditions.real
CONDITIONS: Mapping[str, Callable[..., Condition | list[Condition]]] = {
    function.__name__.replace('_', '-'): function for function in (*OF_PIXELS, *OF_MODELS, *OTHER_IMAGES)
}
#: The papers' tables and figures, see `papers.yml`.
PAPERS: Mapping[str, Mapping[str, Any]] = yaml.safe_load(Path(__file__).with_name('papers.yml').read_text())


def measures_of(names: Sequence[str], library: str) -> list[Measure]:
    """The measures of a command line: names, ``score`` for that of the task, or one's own."""
    known = MEASURES | {SCORE: MEASURES[scores.SCORES_OF[library]]}
    chosen: list[Measure] = []
    for name in names:
        chosen += [known[name]] if name in known else own(name, '--measures', known)
    return list({measure.name: measure for measure in chosen}.values())


def conditions_of(texts: Sequence[str], repeats: int = 1) -> list[Condition]:
    """The conditions of a command line, clean images first: names with values (``shift:right:15``), or one's own."""
    chosen = [CLEAN]
    for text in texts:
        name, *values = text.split(':')
        if name not in CONDITIONS:
            chosen += own(text, '--conditions', CONDITIONS)
            continue
        make = CONDITIONS[name]
        is_drawn = 'seed' in inspect.signature(make).parameters
        try:
            for draw in [dict(seed=draw) for draw in range(repeats)] if is_drawn else [{}]:
                chosen += _as_list(make(*values, **draw))
        except (TypeError, ValueError, ZeroDivisionError) as error:
            raise ValueError(f'--conditions {text}: {error}: {inspect.getdoc(make)}') from error
    return list({(condition.name, condition.repeat): condition for condition in chosen}.values())


def _as_list(made: object) -> list:
    return made if isinstance(made, list) else [made]


def own(text: str, option: str, known: Iterable[str]) -> list:
    """What a user's ``module:name`` is or gives, also of the folder of the call; else a ValueError with the names.

    Their attribute ``code`` gets a hash of the module's source.
    """
    if os.getcwd() not in sys.path:  # a script's own folder is there, that of the call is not
        sys.path.insert(0, os.getcwd())
    try:
        made = pkgutil.resolve_name(text)
    except (ImportError, AttributeError, ValueError) as error:
        raise ValueError(f'{option} {text}: there is none ({error}): choose from {", ".join(known)}') from error
    code = digest(inspect.getsource(sys.modules[text.partition(':')[0]]))
    return [replace(one, code=code) for one in _as_list(made() if callable(made) else made)]
