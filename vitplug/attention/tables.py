"""Tables that depend on shapes alone: made once, and used by later forwards."""

from collections.abc import Callable
from functools import lru_cache, wraps
from typing import ParamSpec, TypeVar

import torch
from torch import Tensor

from vitplug.compat import is_compiling

Key = ParamSpec('Key')
Table = TypeVar('Table')


def cached(maxsize: int) -> Callable[[Callable[Key, Table]], Callable[Key, Table]]:
    """Decorates a function that makes tensors of sizes, dtype and device: the last ``maxsize`` results are kept.

    Nothing is kept or taken while a graph is compiled or exported, which must not depend on state that Python changes
    between calls, nor among fake tensors, which have no values.
    """

    def keep(build: Callable[Key, Table]) -> Callable[Key, Table]:
        kept = lru_cache(maxsize=maxsize)(build)

        @wraps(kept)
        def table(*key: Key.args) -> Table:
            return build(*key) if is_compiling() or type(torch.empty(0)) is not Tensor else kept(*key)

        return table

    return keep
