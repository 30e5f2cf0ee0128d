"""Checks of plug arguments, so that all of them complain in the same way."""

import math
from collections.abc import Sequence
from typing import Any


def check_choice(name: str, value: Any, allowed: Sequence) -> Any:
    """The value, if it is allowed; all of these functions raise a ValueError if not."""
    if not any(type(value) is type(choice) and value == choice for choice in allowed):
        raise ValueError(f'{name}={value!r}: expected one of {list(allowed)}')
    return value


def check_flag(name: str, value: Any) -> bool:
    """The value, if it is True or False."""
    if not isinstance(value, bool):
        raise ValueError(f'{name}={value!r}: expected True or False')
    return value


def check_integer(name: str, value: Any, least: int) -> int:
    """The value, if it is an integer of at least ``least``."""
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise ValueError(f'{name}={value!r}: expected an integer of at least {least}')
    return value


def check_number(
    name: str, value: Any, least: float = -math.inf, most: float = math.inf, below: float = math.inf
) -> float:
    """The value as a float, if it is a finite number in the range."""
    number = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    if not number or not least <= value <= most or value > below or value == below:
        bounds = [f'at least {least}'] * (least > -math.inf) + [f'at most {most}'] * (most < math.inf)
        bounds += [f'below {below}'] * (below < math.inf)
        raise ValueError(f'{name}={value!r}: expected a number{" " if bounds else ""}{" and ".join(bounds)}')
    return float(value)
