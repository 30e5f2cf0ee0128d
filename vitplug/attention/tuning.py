"""Thresholds that choose, by device, between forms of attention that compute the same numbers.

A wrong value costs time or memory, never accuracy. The thresholds were chosen on one machine, 2 cores of an AMD EPYC
with 1 MB of L2 cache each and 32 MB of L3, in float32 with torch 2.12, by the attention and model tables of
`tools/analysis_tools/benchmark.py` (`make bench`). The choices for other devices were
reasoned: the launch of a kernel costs there, so they get few large tiles and torch's fused call. `docs/benchmarks.md`
has what they reach on one GPU; no threshold was tried there.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager

import torch

# Query tokens from which on tiles pay on a CPU, because the maps of an image no longer stay in the cache.
TILES_FROM = 512
# Query tokens from which on tiles save memory that matters, at some cost in time.
TILES_TO_SAVE_FROM = 2048
# Entries of one tile of one head: 2 MB of float32 in a CPU's cache; elsewhere of all heads together.
TILE = 1 << 19
TILE_ELSEWHERE = 1 << 26
# Entries of the bias rows that are formed for one fused call: 32 MB of float32.
BIAS_OF_CALL = 1 << 23
# Channels of q and k of which a GPU's fused call without maps needs a multiple, in half precision too.
WIDTH_OF_CALL = 8
# Entries of which the rows of a GPU's bias are multiples. torch copies a bias with other rows in every fused call.
BIAS_STEP = 8
# Channels by which q and k may be wider than v for values to be padded: 65 channels take 1.2 of the time of 64, maps 2.
PADDED_VALUES = 8
# Entries of float32 in one line of a CPU's cache. Maps whose rows begin with one multiply up to 1.4 times as fast.
CACHE_LINE = 16
# Entries of the maps of one image from which on a CPU convolves them image by image in inference: 1 MB of float32.
# 16 refined blocks of 12 heads at a batch of 4 then take 1.37 of the plain model's time, not 1.84.
MAPS_BY_IMAGE_FROM = 1 << 18
# Tokens of one part of a branch in inference on a CPU. Fewer make products slower.
PART = 1024


def read_tokens(name: str) -> int | None:
    """A number of tokens from an environment variable; None where it is not set."""
    text = os.environ.get(name)
    if text is not None and not (text.isdecimal() and int(text) > 0):
        raise ValueError(f'{name}={text!r}: expected a number of tokens from 1 on, such as 1024; unset it for none')
    return None if text is None else int(text)


# Tokens from which on FlexAttention computes attention with a bias by offset; None: never. Chosen by the user, because
# it does not compile for all heads on all GPUs: see docs/benchmarks.md.
FLEX_FROM = read_tokens('VITPLUG_FLEX_FROM')

_pretended: str | None = None


def on_cpu(device: torch.device) -> bool:
    """Whether the forms for a CPU serve; all other devices get those for a GPU."""
    return (_pretended or device.type) == 'cpu'


@contextmanager
def tuned_for(device_type: str) -> Iterator[None]:
    """Chooses the forms of another type of device inside a ``with`` block: what a GPU runs, on a CPU."""
    global _pretended
    before, _pretended = _pretended, device_type
    try:
        yield
    finally:
        _pretended = before
