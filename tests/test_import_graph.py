"""No import runs up or in a circle: the packages of vitplug in their order, and the graph of their imports.

Read from the source, without importing it: imports in functions and those for type checkers count as well.
"""

import ast
from collections.abc import Iterable, Iterator
from graphlib import CycleError, TopologicalSorter
from importlib.util import resolve_name
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).resolve().parents[1] / 'vitplug'

# From low to high. A package imports lower rows alone: nothing beside it and nothing above it.
ROWS = (
    ('spelling',),
    (
        'commands',
        'compat',
        'files',
        'registry',
        'stacks',
        'statistics',
        'tables',
    ),
    ('attention', 'ops'),
    ('plugs',),
    ('config', 'hosting'),
    ('adapters', 'errors'),
    ('checkpoints',),
    ('backbones', 'datasets', 'models'),
    ('tasks',),
    ('runs',),
    ('lab',),
    ('demo', 'doctor'),
    ('vitplug',),  # the names that `import vitplug` gives
    ('cli',),
    ('__main__',),  # `python -m vitplug`
)


class Import(NamedTuple):
    """One module imports another one; ``typing`` is True if for type checkers alone."""

    source: str
    target: str
    line: int
    typing: bool

    def __str__(self) -> str:
        return f'{self.source} (line {self.line}) imports {self.target}'


def read_imports(root: Path) -> list[Import]:
    """All imports between the modules of a package, by the folder of the package."""
    paths = sorted(root.rglob('*.py'))
    modules = {
        '.'.join(path.relative_to(root.parent).with_suffix('').parts).removesuffix('.__init__') for path in paths
    }
    found = []
    for path in paths:
        full = '.'.join(path.relative_to(root.parent).with_suffix('').parts)
        source = full.removesuffix('.__init__')
        for name, line, typing in _imported(ast.parse(path.read_text()), full.rpartition('.')[0]):
            while name and name not in modules:  # the module that a full name is in
                name = name.rpartition('.')[0]
            if name and name != source:
                found.append(Import(source, name, line, typing))
    return found


def _imported(tree: ast.Module, package: str) -> Iterator[tuple[str, int, bool]]:
    """Full names that a module imports, which may be modules or what is in them; lines; whether for types alone."""
    guards = [node for node in ast.walk(tree) if isinstance(node, ast.If)]
    guards = [node for node in guards if ast.unparse(node.test).endswith('TYPE_CHECKING')]
    guarded = {inside for guard in guards for inside in ast.walk(guard)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((alias.name, node.lineno, node in guarded) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            module = resolve_name('.' * node.level + (node.module or ''), package)
            yield from ((f'{module}.{alias.name}', node.lineno, node in guarded) for alias in node.names)


def package_of(module: str) -> str:
    """The part of vitplug that a module belongs to, ``'vitplug'`` for its own names."""
    return module.split('.')[1] if '.' in module else module


# --- the rules ---


def upward(imports: Iterable[Import], rows: Iterable[Iterable[str]]) -> list[str]:
    """The imports between packages that do not run down; where all do, packages have no circle."""
    rank = {name: height for height, row in enumerate(rows) for name in row}
    between = ((item, package_of(item.source), package_of(item.target)) for item in imports)
    return [str(item) for item, source, target in between if source != target and rank[source] <= rank[target]]


def circle(imports: Iterable[Import]) -> list[str]:
    """A circle of modules, the first again at its end; a part may name its owner beside it for a type checker alone."""
    graph: dict[str, set[str]] = {}
    for item in imports:
        if not item.typing or item.source.rpartition('.')[0] != item.target.rpartition('.')[0]:
            graph.setdefault(item.source, set()).add(item.target)
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return error.args[1]
    return []


@pytest.fixture(scope='module')
def imports() -> list[Import]:
    return read_imports(ROOT)


def test_imports_run_down(imports):
    assert upward(imports, ROWS) == []


def test_modules_have_no_circle(imports):
    assert circle(imports) == []


def test_every_package_is_in_one_row():
    listed = [name for row in ROWS for name in row]
    there = {path.stem for path in ROOT.iterdir() if path.suffix == '.py' or any(path.glob('*.py'))} - {'__init__'}
    assert sorted(listed) == sorted({*there, 'vitplug'})
