"""Where the stacks differ in what a test can ask for; `test_stacks.py` pins the differences."""

import warnings
from functools import cache

import pytest
import torch


@cache
def has_half_on_cpu() -> bool:
    """Whether torch multiplies float16 on a CPU and autocasts to it; torch 2.1 does neither."""
    ones = torch.ones(1, 2, 2)
    with warnings.catch_warnings():
        warnings.simplefilter('ignore')
        with torch.autocast('cpu', torch.float16):
            return (ones @ ones).dtype == torch.float16


def skip_unless_computed_on_cpu(dtype: torch.dtype) -> None:
    """Skips a test in float16 where a CPU cannot run it."""
    if dtype == torch.float16 and not has_half_on_cpu():
        pytest.skip('this torch has no float16 on a CPU')
