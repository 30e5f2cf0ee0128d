"""Where the stacks differ in what a test can ask for; `test_stacks.py` pins the differences."""

from functools import cache

import pytest
import torch

from vitplug.stacks import nearest_stack

STACK = nearest_stack().name


@cache
def has_half_on_cpu() -> bool:
    """Whether torch multiplies float16 on a CPU and autocasts to it; torch 2.1 refuses both."""
    ones = torch.ones(1, 2, 2)
    try:
        with torch.autocast('cpu', torch.float16):
            return (ones @ ones).dtype == torch.float16
    except RuntimeError:
        return False


def skip_unless_computed_on_cpu(dtype: torch.dtype) -> None:
    """Skips a test in float16 where a CPU cannot run it."""
    if dtype == torch.float16 and not has_half_on_cpu():
        pytest.skip('this torch has no float16 on a CPU')
