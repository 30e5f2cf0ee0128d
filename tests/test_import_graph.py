"""No import runs up or in a circle: the packages of vitplug in their order, and the graph of their imports.

Read from the source, without importing it: imports in functions and those for type checkers count as well.
"""

import ast
import textwrap
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1] / 'vitplug'

# From low to high. A package imports lower rows alone: nothing beside it and nothing above it.
ROWS = (
    (
        'commands',
        'compat',
        'files',
        'process',
        'registry',
        'spelling',
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
    ('analysis',),
    ('lab',),
    ('benchmark', 'demo', 'doctor'),
    ('vitplug',),  # the names that `import vitplug` gives
    ('cli',),
    ('__main__',),  # `python -m vitplug`
)


@dataclass(frozen=True)
class Import:
    """One module imports another one.

    Attributes:
        source: The module that imports, such as ``'vitplug.runs.training_commands'``.
        target: The module that is imported.
        line: Number of the line.
        typing: True if the import is for type checkers alone.
    """

    source: str
    target: str
    line: int
    typing: bool

    def __str__(self) -> str:
        return f'{self.source} (line {self.line}) imports {self.target}'


def read_imports(root: Path) -> list[Import]:
    """All imports between the modules of a package.

    Args:
        root: Folder of the package.
    """
    paths = {_name(path, root): path for path in sorted(root.rglob('*.py'))}
    return [
        Import(source, _module(target, paths), line, typing)
        for source, path in paths.items()
        for target, line, typing in _targets(ast.parse(path.read_text()), source, path.name == '__init__.py')
        if target.split('.')[0] == root.name and _module(target, paths) != source
    ]


def _name(path: Path, root: Path) -> str:
    parts = path.relative_to(root.parent).with_suffix('').parts
    return '.'.join(parts[:-1] if parts[-1] == '__init__' else parts)


def _targets(tree: ast.AST, source: str, is_package: bool, typing: bool = False) -> Iterator[tuple[str, int, bool]]:
    """Full names that a module imports, which may be modules or what is in them; lines; whether for types alone."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.Import):
            yield from ((alias.name, node.lineno, typing) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            parents = source.split('.')[: None if is_package else -1]
            base = parents[: len(parents) - node.level + 1] if node.level else []
            module = '.'.join([*base, *([node.module] if node.module else [])])
            yield from ((f'{module}.{alias.name}', node.lineno, typing) for alias in node.names)
        else:
            is_typing = isinstance(node, ast.If) and ast.unparse(node.test).endswith('TYPE_CHECKING')
            yield from _targets(node, source, is_package, typing or is_typing)


def _module(name: str, known: Mapping[str, Path]) -> str:
    """The module that a full name is, or is in."""
    while name not in known:
        name = name.rpartition('.')[0]
    return name


def package_of(module: str) -> str:
    """The part of vitplug that a module belongs to, ``'vitplug'`` for its own names."""
    return module.split('.')[1] if '.' in module else module


# --- the rules ---


def upward(imports: Iterable[Import], rows: Iterable[Iterable[str]]) -> list[str]:
    """The imports between packages that do not run down."""
    rank = {name: height for height, row in enumerate(rows) for name in row}
    unknown = {package_of(module) for item in imports for module in (item.source, item.target)} - rank.keys()
    assert not unknown, f'{sorted(unknown)}: not in ROWS; put it above all that it imports'
    between = ((item, package_of(item.source), package_of(item.target)) for item in imports)
    return [str(item) for item, source, target in between if source != target and rank[source] <= rank[target]]


def circle(edges: Iterable[tuple[str, str]]) -> list[str]:
    """A circle in a graph, the first node again at its end; empty if there is none."""
    graph: dict[str, set[str]] = {}
    for source, target in edges:
        graph.setdefault(source, set()).add(target)
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return error.args[1]
    return []


def needed_at_run_time(item: Import) -> bool:
    """False where a part names its owner in the same folder, for a type checker alone."""
    return not item.typing or item.source.rpartition('.')[0] != item.target.rpartition('.')[0]


# --- vitplug ---


@pytest.fixture(scope='module')
def imports() -> list[Import]:
    return read_imports(ROOT)


def test_imports_run_down(imports):
    assert upward(imports, ROWS) == []


def test_packages_have_no_circle(imports):
    between = ((package_of(item.source), package_of(item.target)) for item in imports)
    assert circle((source, target) for source, target in between if source != target) == []


def test_modules_have_no_circle(imports):
    assert circle((item.source, item.target) for item in imports if needed_at_run_time(item)) == []


def test_every_package_is_in_one_row():
    listed = [name for row in ROWS for name in row]
    there = {path.stem for path in ROOT.iterdir() if path.suffix == '.py' or any(path.glob('*.py'))} - {'__init__'}
    assert sorted(listed) == sorted({*there, 'vitplug'})


# --- the rules on a small package, which breaks them ---


@pytest.fixture
def package(tmp_path):
    """Writes modules of a package by their paths, and reads their imports."""

    def write(**modules: str) -> list[Import]:
        for name, source in modules.items():
            path = tmp_path / 'house' / f'{name.replace("__", "/")}.py'
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(textwrap.dedent(source))
        for folder in (tmp_path / 'house', *(path.parent for path in (tmp_path / 'house').rglob('*.py'))):
            (folder / '__init__.py').touch()
        return read_imports(tmp_path / 'house')

    return write


HOUSE = (('cellar',), ('hall', 'kitchen'), ('attic',))


@pytest.mark.parametrize(
    'source',
    [
        'import house.attic.roof',
        'from ..attic.roof import tile',
        'def late():\n    from house.attic.roof import tile\n',
        'from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from ..attic.roof import tile\n',
        'from house.kitchen.stove import heat',
    ],
)
def test_import_that_does_not_run_down_is_found(package, source):
    imports = package(hall__door=source, attic__roof='', cellar__wall='', kitchen__stove='from ..cellar import wall')
    [complaint] = upward(imports, HOUSE)
    assert complaint.startswith('house.hall.door (line ')


def test_circles_are_found(package):
    types = 'from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from .a import A'
    imports = package(
        hall__a='def late():\n    from . import b', hall__b='from .c import C', hall__c='from .a import A'
    )
    found = circle((item.source, item.target) for item in imports)
    assert len(found) == 4 and set(found) == {'house.hall.a', 'house.hall.b', 'house.hall.c'}
    # For a type checker alone, a part may name its owner.
    imports = package(hall__c=types)
    assert not circle((item.source, item.target) for item in imports if needed_at_run_time(item))
    assert circle((item.source, item.target) for item in imports)
