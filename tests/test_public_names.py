"""`import vitplug` gives backbones, plugs, attention and checkpoints, and imports none of them before it is used."""

import ast
import inspect
import subprocess
import sys

import pytest

import vitplug
from vitplug import adapters, attention, backbones, checkpoints, plugs
from vitplug.lab.microscope import adapted as of_microscope
from vitplug.lab.study import adapted


@pytest.mark.integration
def test_import_alone_imports_nothing():
    """Nor does a look at the names, as an interactive Python takes it to complete one."""
    code = (
        'import sys; before = {*sys.modules}\n'
        'import vitplug; names = dir(vitplug)\n'
        'import importlib, typing\n'
        'print("VisionTransformer" in names, sorted(m for m in {*sys.modules} - before if "." not in m))'
    )
    done = subprocess.run([sys.executable, '-c', code], capture_output=True, text=True, check=True)
    in_names, _, imported = done.stdout.partition(' ')
    assert in_names == 'True' and {*ast.literal_eval(imported)} - {*sys.stdlib_module_names} == {'vitplug'}


def test_every_name_is_that_of_its_package():
    homes = {
        **{name: backbones for name in backbones.__all__},
        **{name: plugs for name in vitplug.__all__ if hasattr(plugs, name)},
        **dict.fromkeys(('attend', 'fused_attention'), attention),
        **dict.fromkeys(('host_of', 'intermediates', 'load_plugs', 'plug_in', 'unplug'), adapters),
        'load_pretrained': checkpoints,
        'measure': adapted,
        'microscope': of_microscope,
    }
    assert sorted(homes) == sorted(vitplug.__all__)
    assert all(getattr(vitplug, name) is getattr(home, name) for name, home in homes.items())
    assert {*vitplug.__all__, '__version__'} <= {*dir(vitplug)}


def test_editors_see_every_name():
    """They read the source, where the imports stand under TYPE_CHECKING."""
    tree = ast.parse(inspect.getsource(vitplug))
    [block] = [node for node in tree.body if isinstance(node, ast.If) and 'TYPE_CHECKING' in ast.unparse(node.test)]
    assert sorted(alias.name for node in block.body for alias in node.names) == sorted(vitplug.__all__)
