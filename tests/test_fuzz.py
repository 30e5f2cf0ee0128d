"""Configs and images of every wrong kind: only documented errors come out, and they name what is wrong."""

import inspect
import math
import re
from functools import cache

import pytest
import torch
from cases import PLUGS as PLUG_CASES
from cases import swin, vit, vit_without_class_token
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


@examples(60)
@given(value=VALUES)
def test_any_list_of_plugs(value):
    said = complaint(lambda: vit(plugs=value))
    assert said is None or 'plugs' in said, said


# --- images ---

SIZES = st.sampled_from([0, 1, 3, 7, 8, 15, 16, 17, 31, 33, 40])
SHAPES = st.one_of(
    st.tuples(st.integers(0, 2), st.sampled_from([0, 1, 3, 4]), SIZES, SIZES),
    st.tuples(st.just(1), st.just(3), SIZES, SIZES),
    st.lists(SIZES, max_size=3).map(tuple),
)
DTYPES = [torch.float32] * 4 + [torch.float64, torch.float16, torch.uint8, torch.bool, torch.complex64]
MODELS = {
    'vit': vit(),
    'vit without class token': vit_without_class_token(patch_cfg=dict(padding=0)),
    'vit with plugs': vit(plugs=[*PLUG_CASES['cb-scaled'], *PLUG_CASES['residual-token'], *PLUG_CASES['rel-pos-bias']]),
    'swin': swin(),
    'swin with plugs': swin(pad_small_map=True, plugs=[*PLUG_CASES['refiner'], *PLUG_CASES['gab']]),
}


def expected(name: str, shape: tuple[int, ...]) -> list[tuple[int, ...]]:
    """Shapes of the outputs for images of a shape."""
    batch, _, height, width = shape
    if name.startswith('swin'):
        maps = [(-(-height // side), -(-width // side)) for side in (4, 8)]
        return [(batch, width, *hw) for width, hw in zip((12, 24), maps, strict=True)]
    round_up = 'without' not in name
    hw = tuple((-(-side // 8)) if round_up else side // 8 for side in (height, width))
    return [(batch, 24, *hw)]


@pytest.mark.parametrize('name', MODELS)
@examples(60)
@given(shape=SHAPES, dtype=st.sampled_from(DTYPES), fill=st.sampled_from([0.0, 1.0, math.nan, math.inf]))
def test_any_images(name, shape, dtype, fill):
    images = torch.full(shape, fill if dtype.is_floating_point or dtype.is_complex else 1, dtype=dtype)
    try:
        with torch.no_grad():
            outs = MODELS[name](images)
    except ValueError as error:
        assert any(word in str(error) for word in ('images of', 'image size', 'feature map')), str(error)
    else:
        assert [tuple(out.shape) for out in outs] == expected(name, shape)


@pytest.mark.parametrize('images', [None, 'a.png'])
def test_no_tensor(images):
    with pytest.raises(ValueError, match=r'images: got a .*; expected a tensor \(B, C, H, W\)'):
        vit()(images)
