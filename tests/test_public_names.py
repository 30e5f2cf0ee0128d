"""`import vitplug` gives what models of others need, and imports none of it before it is used."""

import ast
import inspect
import subprocess
import sys
from importlib import import_module

import pytest

import vitplug


@pytest.mark.integration
def test_import_alone_imports_nothing():
    """Nor does a look at the names, as an interactive Python takes it to complete one."""
    code = (
        'import sys; before = {*sys.modules}\n'
        'import vitplug; names = dir(vitplug)\n'
        'import importlib, typing\n'
        'print("plug_in" in names, sorted(m for m in {*sys.modules} - before if "." not in m))'
    )
    done = subprocess.run([sys.executable, '-c', code], capture_output=True, text=True, check=True)
    in_names, _, imported = done.stdout.partition(' ')
    assert in_names == 'True' and {*ast.literal_eval(imported)} - {*sys.stdlib_module_names} == {'vitplug'}


def test_every_name_is_what_editors_see():
    """They read the source, where the imports stand under TYPE_CHECKING."""
    tree = ast.parse(inspect.getsource(vitplug))
    [block] = [node for node in tree.body if isinstance(node, ast.If) and 'TYPE_CHECKING' in ast.unparse(node.test)]
    homes = {alias.name: f'vitplug.{node.module}' for node in block.body for alias in node.names}
    assert sorted(homes) == sorted(vitplug.__all__)
    assert all(getattr(vitplug, name) is getattr(import_module(home), name) for name, home in homes.items())
