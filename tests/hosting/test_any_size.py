"""A model that torch exports once takes images and batches of sizes that were not traced: every host, with plugs."""

import pytest
import torch
from cases import HOSTS, PLUGS, images, randomize
from torch.export import Dim, export
from torch.testing import assert_close

pytestmark = pytest.mark.integration

if not hasattr(torch.compiler, 'is_exporting'):
    pytest.skip('this torch cannot say that it exports', allow_module_level=True)

# Each takes about ten seconds; --quick takes the first.
TOGETHER = ['swin', *sorted(HOSTS.keys() - {'swin', 'swin-pad-small', 'pit-distilled', 'mvit-cls'})]
OTHERS = ((2, 96, 64), (1, 128, 224), (3, 64, 200))


def check(host: str, plugs, traced=(3, 64, 96), **settings) -> None:
    """Outputs at other sizes and batches are those of the model itself.

    Raises:
        AssertionError: If they are others, or the exported model refuses a size.
    """
    model, (batch, *size) = randomize(HOSTS[host](plugs=plugs, **settings)).double().eval(), traced
    any_size = {0: Dim.DYNAMIC, 2: Dim.DYNAMIC, 3: Dim.DYNAMIC}
    with torch.no_grad():
        exported = export(model, (images(*size, batch),), dynamic_shapes=({**any_size},), strict=False)
        exported = exported.module()
        for batch, height, width in OTHERS:
            x = images(height, width, batch)
            assert_close(exported(x), model(x))


@pytest.mark.sampled(len(TOGETHER))
@pytest.mark.parametrize('host', TOGETHER)
def test_plugs_together(host):
    layers = '(layers=[1, 2, 3])' if host == 'lvt' else ''
    check(host, f'cb(scaled=True)+gab{layers}+residual{layers}')


@pytest.mark.sampled(12)
@pytest.mark.parametrize('host', ['vit', 'swin', 'mvit', 'pit'])
@pytest.mark.parametrize('plugs', ['broad', 'refiner', 'talking-heads'])
def test_maps_and_values_of_all_blocks(host, plugs):
    check(host, PLUGS[plugs])


@pytest.mark.sampled(4)
@pytest.mark.parametrize('plugs', ['cb', 'refiner', 'residual', 'broad'])
def test_patches_of_whole_strides(plugs):
    """Of their sides torch knows no bounds, and some maps have whole multiples of the rows of others."""
    arch = dict(embed_dims=[12, 24], depths=[2, 1], num_heads=[2, 4], patch_size=16, stride=8)
    check('pit', plugs, (2, 96, 128), arch=arch, img_size=(96, 128), out_indices=-1)
