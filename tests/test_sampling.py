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


def numbers(items):
    return [item.params['number'] for item in items]


def test_every_nth_case_of_each_sampled_test():
    first, second, plain = cases('first', 7, sampled=[3]), cases('second', 4, sampled=[2]), cases('plain', 3)
    mixed = [first[0], *second, *first[1:], *plain]
    kept = quick(mixed)
    assert numbers(item for item in kept if item.originalname == 'first') == [0, 3, 6]
    assert numbers(item for item in kept if item.originalname == 'second') == [0, 2]
    assert numbers(item for item in kept if item.originalname == 'plain') == [0, 1, 2]


def test_slow_cases_are_left_out_and_take_no_turn():
    items = [Item('test', dict(number=-1), dict(slow=[], sampled=[2])), *cases('test', 4, sampled=[2])]
    assert numbers(quick(items)) == [0, 2]


def pairs(clause, plugs=PLUGS, **others):
    return [Item(clause, dict(host=host, plugs=plug, **others)) for host in HOSTS for plug in plugs]


def test_a_clause_runs_on_one_host_a_plug():
    items = [*pairs('first'), *pairs('second', size=(1, 2)), *pairs('second', size=(3, 4))]
    kept = quick(items)
    clauses = {(item.originalname, item.params.get('size'), item.params['plugs']) for item in kept}
    assert len(clauses) == len(kept) == 3 * len(PLUGS)


def test_clauses_and_plugs_go_round_the_hosts():
    clauses = [item for index in range(len(HOSTS)) for item in pairs(f'clause {index}')]
    met = {(item.params['host'], item.params['plugs']) for item in quick(clauses)}
    assert len(met) == len(HOSTS) * len(PLUGS)
    assert {item.params['host'] for item in quick(pairs('clause'))} == set(HOSTS)


def test_a_plug_that_most_hosts_refuse_runs_on_one_that_takes_it():
    items = [Item('clause', dict(host=host, plugs='cb')) for host in list(HOSTS)[:2]]
    assert len(quick([*pairs('another'), *items])) == len(PLUGS) + 1


def test_hosts_and_plugs_outside_of_the_tables_all_run():
    items = [Item('clause', dict(host=host, plugs=plug)) for host in ('mixer', *HOSTS) for plug in ('own', ['cb'])]
    assert quick(items) == items
