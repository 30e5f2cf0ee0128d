"""Arguments of plugs of every wrong kind: only documented errors come out, and they name what is wrong."""

import inspect
import math
import re
from functools import cache

import pytest
from cases import swin, vit
from hypothesis import given, settings
from hypothesis import strategies as st

from vitplug.plugs import PLUG_TYPES

HOSTS = {'vit': vit, 'swin': swin}
# What a config file can hold.
WORDS = ['', 'all', 'upper', 'mean', 'featmap', '3', 'yes', 'GELU', math.nan, math.inf, -math.inf]
SCALARS = st.none() | st.booleans() | st.integers(-3, 12) | st.floats(-2.0, 2.0) | st.sampled_from(WORDS)
DICTS = st.dictionaries(st.sampled_from(['type', 'eps', 'foo']), SCALARS, max_size=2)
VALUES = SCALARS | st.lists(SCALARS, max_size=3) | DICTS


def examples(count: int):
    """As many examples, and as many times more as a profile of hypothesis has more than its 50."""
    return settings(max_examples=count * settings.default.max_examples // 50)


def arguments(kind: type) -> list[str]:
    """Names of the arguments of a class."""
    return [name for name in inspect.signature(kind.__init__).parameters if name != 'self']


def complaint(build) -> str | None:
    """What a documented error of building says; None where nothing is wrong."""
    try:
        build()
    except (ValueError, TypeError) as error:
        return str(error)
    return None


@cache
def has_place(host: str, plug: str) -> bool:
    """Whether a host takes a plug as it is; one that does not refuses it whatever its arguments."""
    return complaint(lambda: HOSTS[host](plugs=[dict(type=plug)])) is None


@pytest.mark.parametrize('host', HOSTS)
@pytest.mark.parametrize('plug', PLUG_TYPES, ids=lambda plug: plug.__name__)
@examples(20)
@given(data=st.data())
def test_any_value_of_a_plug(host, plug, data):
    """Every argument, drawn by its name; one that is not there; a type that is none. Class and argument are named."""
    if not has_place(host, plug.__name__):
        return
    key, value = data.draw(st.sampled_from([*arguments(plug), 'foo', 'type'])), data.draw(VALUES)
    said = complaint(lambda: HOSTS[host](plugs=[{'type': plug.__name__, key: value}]))
    wanted = [key] if key == 'type' else [plug.__name__, key]
    assert said is None or all(re.search(rf'(?<!\w){word}(?!\w)', said) for word in wanted), said
