"""`import vitplug` gives hosts, plugs and what models of others need, and imports none of it before it is used."""

import ast
import subprocess
import sys

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


def test_every_name_has_its_home():
    for name in vitplug.__all__:
        assert getattr(vitplug, name).__name__ == name and name in dir(vitplug)
