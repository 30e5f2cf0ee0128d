"""One description for each library, and nothing that tells libraries apart elsewhere."""

import subprocess
import sys
from pathlib import Path

import pytest
from mmengine.registry import METRICS, MODELS, init_default_scope

from vitplug.config.parts import registered
from vitplug.tasks import TASKS

VITPLUG = Path(__file__).parents[2] / 'vitplug'


@pytest.mark.integration
def test_descriptions_import_no_library():
    """Nor what only pictures need."""
    code = (
        'import sys, vitplug.tasks\n'
        'print(*({"mmcv", "mmdet", "mmseg", "mmpretrain", "matplotlib"} & sys.modules.keys()), "none")'
    )
    done = subprocess.run([sys.executable, '-c', code], capture_output=True, text=True, check=True)
    assert done.stdout == 'none\n'


@pytest.mark.parametrize('library', TASKS)
def test_types_are_registered(library):
    init_default_scope(library)
    task = TASKS[library]
    assert registered(METRICS, task.result_dump, library)
    assert registered(MODELS, task.tta_model['type'], library)
