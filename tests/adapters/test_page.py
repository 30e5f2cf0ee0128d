"""The page docs/plug_in.md: its programs run, and its table is what the models do."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from adapters.foreign import scatter

import vitplug
from vitplug.adapters import host_of
from vitplug.adapters.maps import _MAPS

ROOT = Path(__file__).parents[2]
PAGE, README = (ROOT / 'docs' / 'plug_in.md').read_text(), (ROOT / 'README.md').read_text()
CODES = re.findall(r'```python\n(.*?)```', PAGE, re.DOTALL)
OF_README = [code for code in re.findall(r'```python\n(.*?)```', README, re.DOTALL) if 'plug_in(' in code]


@pytest.fixture(autouse=True)
def only_here():
    """Maps that a program registers are gone afterwards."""
    before = {kind: dict(found) for kind, found in _MAPS.items()}
    yield
    for kind, found in before.items():
        _MAPS[kind].clear()
        _MAPS[kind].update(found)


NAMES = ['timm', 'transformers', 'torch', 'measures', 'microscope', 'readme timm', 'readme transformers']


@pytest.mark.parametrize('code', [*CODES, *OF_README], ids=NAMES)
def test_program_runs(code, tmp_path, monkeypatch):
    if 'transformers' in code:
        pytest.importorskip('transformers')
    scope = {'__name__': 'my_model'}
    monkeypatch.chdir(tmp_path)
    exec(code, scope)
    assert ('report.html' in code) == (tmp_path / 'report.html').exists()
    assert 'GaussianAttentionBias' in scope['model'].plug_summary or scope['distances'].shape == (2, 3)


def test_a_model_of_ones_own_is_itself_without_plugs():
    scope = {'__name__': 'my_model'}
    exec(CODES[2], scope)
    model, x = scatter(vitplug.unplug(scope['model'])).double(), torch.randn(2, 3, 32, 32, dtype=torch.float64)
    expected = model(x)
    torch.testing.assert_close(vitplug.plug_in(model, [])(x), expected, atol=1e-12, rtol=0)
    (features,), found = host_of(model).forward_intermediates(x, names=('probs',))
    assert features.shape == (2, 32, 4, 4)
    assert host_of(model).maps_to_image(found, 0, (32, 32)).shape == (2, 2, 32, 32)
    vitplug.unplug(model)
    _MAPS[scope['MlpMap']].clear()
    with pytest.raises(ValueError, match='no map of names for mlp of Block, a Mlp'):
        vitplug.plug_in(model, 'gab')


@pytest.mark.integration
def test_neither_library_is_imported_for_its_maps():
    code = 'import sys, vitplug.adapters; print([m for m in ("timm", "transformers", "mmengine") if m in sys.modules])'
    found = subprocess.run([sys.executable, '-c', code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert found.stdout == '[]\n'
