"""A model without OpenMMLab takes every plug, gives intermediates and maps, and loads stock weights."""

import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch_vit import DIMS, HEADS, TorchViT

from vitplug.plugs import PLUG_TYPES

TOGETHER = 'gab+cb+residual+uniform'
BLOCKED = """
import sys

class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.split('.')[0] in ('mmengine', 'mmcv', 'mmpretrain', 'mmdet', 'mmseg'):
            raise ImportError(f'{name} is blocked')

sys.meta_path.insert(0, Blocked())
from test_torch_only import TorchViT, run
from vitplug.plugs.text import SHORT_NAMES
for plugs in ('none', 'gab+cb+residual+uniform'):
    run(plugs)
for plugs in SHORT_NAMES:
    TorchViT(plugs)
"""


def run(plugs: str) -> None:
    """Outputs, gradients of everything, intermediates and maps, at two sizes."""
    torch.manual_seed(0)
    plugs = f'{plugs}(mode="append")' if plugs in ('uniform', 'UniformHead') else plugs
    model = TorchViT(plugs).eval()
    for height, width in ((32, 32), (24, 40)):
        images = torch.rand(2, 3, height, width)
        outs, found = model.forward_intermediates(images, names=('probs', 'maps', 'block'))
        torch.testing.assert_close(outs, model(images), rtol=1e-4, atol=1e-5)
        assert outs[0].shape == (2, DIMS, height // 4, width // 4)
        assert sorted(found['block']) == [0, 1, 2, 3]
        maps = model.maps_to_image(found, 3, (height, width), name='maps')
        assert maps.shape[0] == 2 and maps.shape[2:] == (height, width)
    model.train()(images)[0].square().sum().backward()
    without = [name for name, p in model.named_parameters() if p.grad is None]
    assert not without, without


@pytest.mark.parametrize('plug', [*(plug.__name__ for plug in PLUG_TYPES), TOGETHER])
def test_every_plug(plug):
    run(plug)


@pytest.mark.integration
def test_openmmlab_is_not_needed():
    tests = Path(__file__).parents[1]
    paths = (Path(__file__).parent, tests / 'helpers', tests.parent)
    code = f'import sys; sys.path[:0] = {[*map(str, paths)]}\n{BLOCKED}'
    done = subprocess.run([sys.executable, '-c', code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_stock_weights_fit_heads_that_plugs_have_changed():
    plain, changed = TorchViT('none'), TorchViT('uniform(mode="append")')
    missing, unexpected = changed.load_state_dict(plain.state_dict(), strict=False)
    assert not unexpected and not [name for name in missing if 'plugs' not in name]
    kept = changed.blocks[0].attn.proj.weight[:, : plain.blocks[0].attn.proj.in_features]
    assert torch.equal(kept, plain.blocks[0].attn.proj.weight) and changed.blocks[0].shape.value_heads == HEADS + 1
