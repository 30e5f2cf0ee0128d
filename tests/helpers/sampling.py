"""The sample of the tests that --quick runs: a fault mostly fails many cases of one table, and CI has minutes."""

from collections.abc import Callable, Hashable, Iterable, Iterator

from cases import HOSTS, PLUGS


def quick(items: list) -> list:
    """pytest's items that are not slow, without the cases that the sample leaves out."""
    fast = [item for item in items if item.get_closest_marker('slow') is None]
    drawn = without(fast, _other_hosts(fast))
    return without(drawn, _other_cases(drawn))


def without(items: list, others: Iterable) -> list:
    others = set(others)
    return [item for item in items if item not in others]


def _other_cases(items: list) -> Iterator:
    """What a sampled test leaves out: all but every n-th case in the order of collection."""
    for cases in _grouped(items, _test_of).values():
        if sampled := cases[0].get_closest_marker('sampled'):
            yield from without(cases, cases[:: sampled.args[0]])


def _other_hosts(items: list) -> Iterator:
    """What a test over hosts and plugs leaves out: all but one host a plug, another one for each clause and plug."""
    for module in _grouped(filter(_is_paired, items), lambda item: item.path).values():
        for ordinal, clause in enumerate(_grouped(module, _clause_of).values()):
            plugs = _grouped(clause, lambda item: item.callspec.params['plugs']).values()
            for turn, hosts in enumerate(plugs, ordinal):
                yield from without(hosts, [hosts[turn % len(hosts)]])


def _grouped(items: Iterable, key: Callable[..., Hashable]) -> dict[Hashable, list]:
    groups = {}
    for item in items:
        groups.setdefault(key(item), []).append(item)
    return groups


def _test_of(item) -> tuple[str, ...]:
    return item.parent.nodeid, item.originalname


def _clause_of(item) -> tuple[str, ...]:
    """The test and its parameters besides host and plugs."""
    others = (f'{name}={value!r}' for name, value in item.callspec.params.items() if name not in ('host', 'plugs'))
    return *_test_of(item), *others


def _is_paired(item) -> bool:
    params = item.callspec.params if hasattr(item, 'callspec') else {}
    pair = params.get('host'), params.get('plugs')
    return all(isinstance(name, str) for name in pair) and pair[0] in HOSTS and pair[1] in PLUGS
