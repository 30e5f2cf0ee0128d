"""Which cases --quick runs: every n-th of a sampled test, and each clause of the contract on one host a plug."""

from dataclasses import dataclass, field
from types import SimpleNamespace

from cases import HOSTS, PLUGS
from sampling import quick


@dataclass(frozen=True, eq=False)
class Item:
    """What the sample asks of pytest's items."""

    originalname: str
    params: dict = field(default_factory=dict)
    marks: dict = field(default_factory=dict)
    path: str = 'test_one.py'

    @property
    def parent(self):
        return SimpleNamespace(nodeid=self.path)

    @property
    def callspec(self):
        return SimpleNamespace(params=self.params)

    def get_closest_marker(self, name):
        return SimpleNamespace(args=self.marks[name]) if name in self.marks else None


def cases(test, number, **marks):
    return [Item(test, dict(number=index), marks) for index in range(number)]


def test_every_nth_case_of_each_sampled_test_that_is_not_slow():
    first, second, plain = cases('first', 7, sampled=[3]), cases('second', 4, sampled=[2]), cases('plain', 3)
    slow = cases('first', 1, sampled=[3], slow=[])
    kept = quick([*slow, first[0], *second, *first[1:], *plain])
    numbers = [(item.originalname, item.params['number']) for item in kept]
    assert sorted(numbers) == [
        *(('first', index) for index in (0, 3, 6)),
        *(('plain', index) for index in (0, 1, 2)),
        *(('second', index) for index in (0, 2)),
    ]


def test_a_clause_runs_on_one_host_a_plug_and_clauses_go_round_the_hosts():
    clauses = [f'clause {index}' for index in range(len(HOSTS))]
    items = [Item(clause, dict(host=host, plugs=plug)) for clause in clauses for host in HOSTS for plug in PLUGS]
    kept = quick(items)
    assert len({(item.originalname, item.params['plugs']) for item in kept}) == len(kept) == len(HOSTS) * len(PLUGS)
    assert len({(item.params['host'], item.params['plugs']) for item in kept}) == len(kept)
    others = [Item('own', dict(host='mixer', plugs='cb')), Item('own', dict(host='vit', plugs=['cb']))]
    assert quick(others) == others
