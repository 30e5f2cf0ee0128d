"""Tensors that depend on shapes and a device alone, built once."""

from collections.abc import Callable
from functools import lru_cache, wraps
from typing import TypeVar

import torch
from torch._guards import detect_fake_mode

Built = TypeVar('Built')


def cached(maxsize: int) -> Callable[[Callable[..., Built]], Callable[..., Built]]:
    """Keeps what a function has built for its last ``maxsize`` arguments.

    It is built outside of inference mode, whose tensors a later training could not use. Nothing is kept while torch
    compiles or exports, which records the operations, or under fake tensors, which belong to one mode and would be met
    again in the next.

    Args:
        maxsize: How many results are kept.
    """

    def decorate(build: Callable[..., Built]) -> Callable[..., Built]:
        kept = lru_cache(maxsize)(build)

        @wraps(build)
        def build_or_find(*args: object) -> Built:
            if torch.compiler.is_compiling() or detect_fake_mode() is not None:
                return build(*args)
            with torch.inference_mode(False):
                return kept(*args)

        return build_or_find

    return decorate
