"""One description for each library."""

import subprocess
import sys

import pytest
from mmengine.config import ConfigDict
from mmengine.registry import METRICS, init_default_scope

from vitplug.config.parts import registered
from vitplug.tasks.libraries import TASKS, check_scope
from vitplug.tasks.networks import run_head


@pytest.mark.integration
def test_descriptions_import_no_library():
    """Nor what only pictures need."""
    code = (
        'import sys, vitplug.tasks.targets\n'
        'print(*({"mmcv", "mmdet", "mmseg", "mmpretrain", "matplotlib"} & sys.modules.keys()), "none")'
    )
    done = subprocess.run([sys.executable, '-c', code], capture_output=True, text=True, check=True)
    assert done.stdout == 'none\n'


@pytest.mark.parametrize('library', TASKS)
def test_types_are_registered(library):
    init_default_scope(library)
    assert registered(METRICS, TASKS[library].result_dump, library)


def test_a_head_that_takes_more_than_maps_is_named():
    with pytest.raises(ValueError, match=r"its bbox_head does not run on maps alone .* argument: 'references'"):
        run_head(ConfigDict(bbox_head=lambda maps, references: maps), 'bbox_head', [])


@pytest.mark.parametrize(
    ('scope', 'said'),
    [
        (None, 'default_scope = None: set .*mmpretrain.*mmseg.*mmdet'),
        ('mmnothing', "'mmnothing': set it to one of mmpretrain"),
        ([], r'default_scope = .*: set it to one of mmpretrain'),
    ],
)
def test_scopes_that_are_no_library(scope, said):
    with pytest.raises(ValueError, match=said):
        check_scope(ConfigDict(default_scope=scope))


def test_a_library_that_is_not_installed_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, 'mmdet', None)
    with pytest.raises(ImportError, match=r'mmdet cannot be imported.*see docs'):
        check_scope(ConfigDict(default_scope='mmdet'))
