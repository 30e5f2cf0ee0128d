"""No import runs up: the packages of vitplug in their order, and the imports between them.

Read from the source, without importing it: imports in functions and those for type checkers count as well.
"""

import ast
from collections.abc import Iterator
from importlib.util import resolve_name
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1] / 'vitplug'

# From low to high. A package imports lower rows alone: nothing beside it and nothing above it.
ROWS = (
    ('spelling',),
    ('commands', 'compat', 'files', 'statistics', 'tables'),
    ('attention', 'ops', 'registry'),
    ('plugs',),
    ('config', 'hosting', 'registered'),
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


def imported(path: Path) -> Iterator[tuple[int, str]]:
    """Lines and full names that a module imports, which may be modules or what is in them."""
    package = '.'.join(path.relative_to(ROOT.parent).parent.parts)
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            module = resolve_name('.' * node.level + (node.module or ''), package)
            yield from ((node.lineno, f'{module}.{alias.name}') for alias in node.names)


def test_imports_run_down():
    rank, upward = {name: height for height, row in enumerate(ROWS) for name in row}, []
    for path in ROOT.rglob('*.py'):
        source = path.relative_to(ROOT).parts[0].removesuffix('.py').replace('__init__', 'vitplug')
        for line, name in imported(path):
            package, _, rest = name.partition('.')
            target = rest.partition('.')[0]
            target = target if target in rank else 'vitplug'
            if package == 'vitplug' and target != source and rank[target] >= rank[source]:
                upward.append(f'{path}, line {line}: {name}')
    assert upward == []
