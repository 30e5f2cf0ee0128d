"""Reading a host's settings: architecture, indices of outputs, frozen stages, settings of single blocks."""

from collections.abc import Collection, Mapping, Sequence

import numpy as np

from vitplug.plugs.checks import check_choice, check_integer
from vitplug.spelling import hint

# Most blocks, heads and channels: typing errors beyond that would fill the memory or overflow.
MOST = 100_000


def named_archs(keys: Sequence[str], names: str, *values: int | list[int]) -> dict[str, dict]:
    """One architecture under each of its names, which spaces part; ``values`` are those of ``keys``."""
    return {name: dict(zip(keys, values, strict=True)) for name in names.split()}


def choose_arch(
    arch: str | Mapping, zoo: Mapping[str, Mapping], keys: set[str], may_be_0: Collection[str] = ()
) -> Mapping:
    """The settings of a named or given architecture, positive integers but for those in ``may_be_0``.

    Raises:
        ValueError: If the name is unknown, or keys are missing or unknown.
    """
    if isinstance(arch, str):
        if arch.lower() not in zoo:
            raise ValueError(
                f'arch={arch!r}: unknown; choose from {sorted(zoo)} or give a dict with keys {sorted(keys)}'
            )
        return zoo[arch.lower()]
    if not isinstance(arch, Mapping) or not keys <= set(arch):
        raise ValueError(f'arch={arch!r}: expected a name or a dict with the keys {sorted(keys)}')
    known = next(iter(zoo.values()))
    for name in arch:
        if name not in known and name not in keys:
            advice = hint(name, known) or f'; expected the keys {sorted(keys)}'
            raise ValueError(f'arch: nothing reads {name!r}{advice}')
    _check_arch(arch, known, may_be_0)
    return arch


def _check_arch(arch: Mapping, known: Mapping, may_be_0: Collection[str]) -> None:
    """Checks that settings are positive integers, or lists of one length, as in a known architecture."""
    lists = {key: arch[key] for key, value in known.items() if not isinstance(value, int)}
    for key, value in lists.items():
        if not isinstance(value, list | tuple) or not value:
            raise ValueError(f'arch: {key}={value!r}: expected a list with a positive integer for each stage')
    if len({len(value) for value in lists.values()}) > 1:
        raise ValueError(f'arch: {lists} differ in length: expected an entry for each stage')
    for key in known:
        for value in lists.get(key, [arch[key]]):
            check_integer(f'arch: {key}', value, least=0 if key in may_be_0 else 1, most=MOST)


def choose_indices(indices: int | Sequence[int], count: int, name: str = 'out_indices') -> list[int]:
    """Non-negative indices of blocks or stages.

    Raises:
        ValueError: If one is outside the backbone.
    """
    given = [indices] if isinstance(indices, int) else indices
    if not isinstance(given, Sequence) or not all(type(i) is int for i in given):
        raise ValueError(f'{name}={indices!r}: expected an index or a list of them, from 0 to {count - 1}')
    indices = list(given)
    outside = [i for i in indices if not -count <= i < count]
    if outside:
        raise ValueError(f'{name}={indices}: {outside} outside; this backbone has indices 0 to {count - 1}')
    return [i % count for i in indices]


def per_stage(name: str, value: int | Sequence[int], stages: int, least: int) -> list[int]:
    """One integer for each stage: those given, or one for all.

    Raises:
        ValueError: If one is less than ``least``, or the list is of another length.
    """
    values = value if isinstance(value, Sequence) and not isinstance(value, str) else [value] * stages
    if len(values) != stages:
        raise ValueError(f'{name}={value!r}: expected one integer, or a list of {stages}, one for each stage')
    return [check_integer(name, each, least=least) for each in values]


def per_item(cfgs: Mapping | Sequence[Mapping], count: int, name: str) -> Sequence[Mapping]:
    """One config for each item: those given, or one for all.

    Raises:
        ValueError: If the list is of another length.
    """
    if isinstance(cfgs, Mapping):
        return [cfgs] * count
    if len(cfgs) != count:
        raise ValueError(f'{name} has {len(cfgs)} entries: expected one dict, or a list of {count}')
    return cfgs


def choose_frozen(frozen_stages: int, frozen: str | None, most: int) -> int:
    """The last stage to freeze.

    Raises:
        ValueError: If there is no such stage, or the whole host is frozen without its plugs.
    """
    if isinstance(frozen_stages, bool) or not isinstance(frozen_stages, int) or not -1 <= frozen_stages <= most:
        raise ValueError(f'frozen_stages={frozen_stages!r}: expected an integer from -1 (none) to {most}')
    if frozen is not None and frozen_stages >= 0:
        raise ValueError(
            f'frozen_stages={frozen_stages} beside frozen={frozen!r}: the first freezes plugs, too; keep one of them'
        )
    return frozen_stages


def choose_out_type(out_type: str, allowed: Sequence[str], with_cls_token: bool) -> str:
    """The kind of output.

    Raises:
        ValueError: If it is unknown, or if it needs a class token and there is none.
    """
    check_choice('out_type', out_type, allowed)
    if 'cls_token' in out_type and not with_cls_token:
        others = ' or '.join(repr(name) for name in ('featmap', 'avg_featmap') if name in allowed)
        raise ValueError(f'out_type={out_type!r} needs with_cls_token=True; without one, choose {others}')
    return out_type


def rising_rates(last: float, count: int) -> list[float]:
    """Stochastic depth of the blocks: 0 in the first, growing linearly to ``last``."""
    return np.linspace(0, last, count).tolist()


def choose_window(
    window_size: int | None, with_cls_token: bool, out_types: str, num_storage_tokens: int = 0
) -> int | None:
    """Side of the windows in tokens.

    Args:
        window_size: None for global attention.
        with_cls_token: Whether there is a class token.
        out_types: Those that need none, as the error says it.
        num_storage_tokens: How many storage tokens there are.

    Raises:
        ValueError: If it is no positive integer, or there is a class token or a storage token.
    """
    is_size = isinstance(window_size, int) and not isinstance(window_size, bool) and window_size > 0
    if window_size is not None and not is_size:
        raise ValueError(f'window_size={window_size!r}: expected a positive integer, or None for global attention')
    if is_size and with_cls_token:
        raise ValueError(
            f'window_size={window_size}: a class token lies in no window; set with_cls_token=False and choose '
            f'out_type {out_types}'
        )
    if is_size and num_storage_tokens:
        raise ValueError(f'window_size={window_size}: storage tokens lie in no window; set num_storage_tokens=0')
    return window_size
