"""The README's configs parse and build, and give the plugged model they promise."""

import re
from pathlib import Path

import mmseg
import pytest
from mmengine.config import Config
from mmengine.registry import MODELS, init_default_scope

ROOT = Path(__file__).parent.parent
MMSEG_CONFIGS = Path(mmseg.__file__).parent / '.mim' / 'configs'
CONFIGS = [
    block for block in re.findall(r'```python\n(.*?)```', (ROOT / 'README.md').read_text(), re.S) if '_base_' in block
]


def test_there_is_one_for_each_task():
    assert len(CONFIGS) == 3


@pytest.mark.parametrize('text', CONFIGS, ids=['imagenet', 'coco', 'ade20k'])
def test_config_builds(text, tmp_path):
    path = tmp_path / 'config.py'
    path.write_text(text.replace('MMSEG/', f'{MMSEG_CONFIGS}/'))
    cfg = Config.fromfile(path)
    init_default_scope(cfg.default_scope)
    model = MODELS.build(cfg.model)
    assert type(model.backbone).__module__.startswith('vitplug.')
    assert any(block.plugs or model.backbone.plugs for block in model.backbone.plugged_blocks())


def test_linked_files_exist():
    for target in re.findall(r'\]\(([^)#]+)\)', (ROOT / 'README.md').read_text()):
        assert (ROOT / target).exists(), target
