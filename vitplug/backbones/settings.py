"""Reading a host's settings: architecture, indices of outputs, settings of single blocks."""

from collections.abc import Mapping, Sequence
from typing import Any

from vitplug.spelling import hint


def named_archs(keys: Sequence[str], names: str, *values: int | list[int]) -> dict[str, dict]:
    """One architecture under each of its names, which spaces part; ``values`` are those of ``keys``."""
    return {name: dict(zip(keys, values, strict=True)) for name in names.split()}


def choose_arch(arch: str | Mapping, zoo: Mapping[str, Mapping]) -> Mapping:
    """The settings of a named or given architecture.

    Raises:
        ValueError: If the name is unknown, keys are missing or unknown, or lists differ in length.
    """
    keys = set(next(iter(zoo.values())))
    if isinstance(arch, str):
        if arch.lower() not in zoo:
            raise ValueError(
                f'arch={arch!r}: unknown; choose from {sorted(zoo)} or give a dict with keys {sorted(keys)}'
            )
        return zoo[arch.lower()]
    if not isinstance(arch, Mapping) or not keys <= set(arch):
        raise ValueError(f'arch={arch!r}: expected a name or a dict with the keys {sorted(keys)}')
    for name in set(arch) - keys:
        advice = hint(name, keys) or f'; expected the keys {sorted(keys)}'
        raise ValueError(f'arch: nothing reads {name!r}{advice}')
    lists = {key: value for key, value in arch.items() if isinstance(value, Sequence)}
    if 'depths' in lists and len({len(value) for value in lists.values()}) > 1:
        raise ValueError(f'arch: {lists} differ in length: expected an entry for each stage')
    return arch


def choose_indices(indices: int | Sequence[int], count: int, name: str = 'out_indices') -> list[int]:
    """Non-negative indices of blocks or stages.

    Raises:
        ValueError: If one is outside the backbone.
    """
    given = [indices] if isinstance(indices, int) else indices
    if not isinstance(given, Sequence) or not all(type(i) is int for i in given):
        raise ValueError(f'{name}={indices!r}: expected an index or a list of them, from 0 to {count - 1}')
    indices = list(given)
    if outside := [i for i in indices if not -count <= i < count]:
        raise ValueError(f'{name}={indices}: {outside} outside; this backbone has indices 0 to {count - 1}')
    return [i % count for i in indices]


def per_item(cfgs: Any, count: int, name: str) -> Sequence[Any]:
    """One setting for each block or stage: those given, or one for all.

    Raises:
        ValueError: If the list is of another length.
    """
    if not isinstance(cfgs, Sequence):
        return [cfgs] * count
    if len(cfgs) != count:
        raise ValueError(f'{name} has {len(cfgs)} entries: expected one for all, or a list of {count}')
    return cfgs
