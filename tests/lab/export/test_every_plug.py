"""Hosts with plugs through ONNX: right at sizes and batches that were not traced, or refused by name."""

from pathlib import Path

import pytest
import torch
from cases import EVEN_HOSTS, HOSTS, PLUGS, TOKEN_HOSTS, images, randomize
from torch.testing import assert_close

from vitplug.backbones import VisionTransformer
from vitplug.lab.export import NotExported
from vitplug.lab.export.formats import FORMATS
from vitplug.lab.export.trace import folded, open_sizes, quiet, trace
from vitplug.lab.export.verify import check, compare, round_up

if not hasattr(torch.compiler, 'is_exporting'):
    pytest.skip('this torch cannot say that it exports', allow_module_level=True)
onnxruntime = pytest.importorskip('onnxruntime')
pytest.importorskip('onnxscript')

ALL_HOSTS = {**HOSTS, **EVEN_HOSTS, **TOKEN_HOSTS}
TRACED = (3, 64, 96)
# Three sizes, two batches; a host that does not take one gets the next larger size that it takes.
OTHERS = ((2, 96, 64), (5, 160, 128), (2, 32, 32))
AXES = ('batch', 'height', 'width')
# The Mixer takes one size.
FIXED = {'mixer': (32, 48)}


def export_case(host: str, plugs: str, folder: Path, dynamic=AXES) -> None:
    """Exports a host with plugs and compares the file.

    Raises:
        NotExported or WrongFile: If it cannot be exported, or is wrong.
    """
    model = randomize(ALL_HOSTS[host](plugs=PLUGS[plugs])).float().eval()
    network, _ = folded(model)
    batch, *size = TRACED if 'batch' in dynamic else (2, *TRACED[1:])
    size = FIXED.get(host, size)
    x, path = images(*size, batch).float(), folder / 'model.onnx'
    program = trace(network, x, dynamic)
    sizes = open_sizes(program, x, dynamic)
    names = [f'out{i}' for i in range(len(program.graph_signature.user_outputs))]
    try:
        with quiet():
            FORMATS['onnx'].write(program, path, names, {})
    except Exception as error:  # whatever torch's exporter raises
        raise NotExported(' '.join(str(error).split())[:300]) from error
    session = onnxruntime.InferenceSession(path, providers=['CPUExecutionProvider'])

    def run(x):
        return [torch.from_numpy(out) for out in session.run(None, {'images': x.numpy()})]

    least, divisor = sizes or (1, 1)
    others = [(b, *(round_up(max(side, least), divisor) for side in others)) for b, *others in OTHERS]
    shapes = [(b if 'batch' in dynamic else batch, *(other if sizes else size)) for b, *other in others]
    batches = [(str(shape), images(*shape[1:], shape[0], seed=5).float()) for shape in shapes]
    check(compare(model, run, batches))


@pytest.mark.slow
@pytest.mark.parametrize(('host', 'plugs'), [('vit', 'gab')])
def test_any_size(host, plugs, tmp_path):
    export_case(host, plugs, tmp_path)


@pytest.mark.integration
@pytest.mark.parametrize(('patch', 'own'), [(16, 512), (4, 96)])
def test_blended_scores_have_one_form_for_all_sizes(patch, own):
    """Above 2048 tokens the scores are written out as a sum elsewhere; a graph of that form refused the own size."""
    arch = dict(embed_dims=12, num_layers=2, num_heads=2, feedforward_channels=24)
    model = VisionTransformer(arch=arch, img_size=own, patch_size=patch, plugs='residual').eval()
    x = images(own * 3 // 2, own * 3 // 2 + 32, 3).float()
    assert open_sizes(trace(model, x, AXES), x, AXES) == (patch + 1, 1)


@pytest.mark.integration
def test_bins_of_any_size_are_pooled(tmp_path):
    class Pool(torch.nn.Module):
        def forward(self, images):
            return (torch.nn.functional.adaptive_avg_pool2d(images, (3, 2)),)

    path, pool = tmp_path / 'model.onnx', Pool()
    FORMATS['onnx'].write(trace(pool, images(16, 24, 3).float(), AXES), path, ['pooled'], {})
    session = onnxruntime.InferenceSession(path, providers=['CPUExecutionProvider'])
    for batch, height, width in ((2, 24, 16), (1, 17, 23)):
        x = images(height, width, batch).float()
        assert_close(torch.from_numpy(session.run(None, {'images': x.numpy()})[0]), *pool(x))


@pytest.mark.integration
def test_tiny_numbers_are_added(tmp_path):
    class Tiny(torch.nn.Module):
        def forward(self, images):
            small = images.abs() * 1e-9
            return small / (small + 1e-8), small - 1e-9, torch.add(small, 0.5, alpha=1e-8), small.sum() + 1e-8

    path, tiny, x = tmp_path / 'model.onnx', Tiny(), images(4, 4).float()
    FORMATS['onnx'].write(trace(tiny, x, ()), path, ['a', 'b', 'c', 'd'], {})
    given = onnxruntime.InferenceSession(path, providers=['CPUExecutionProvider']).run(None, {'images': x.numpy()})
    for one, other in zip(given, tiny(x), strict=True):
        assert_close(torch.from_numpy(one), other, atol=0, rtol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize('host', ['swin', 'mvit', 'lvt', 'pit', 'swin-v2', 't2t'])
def test_plugs_on_other_hosts(host, tmp_path):
    export_case(host, 'gab' if host != 'lvt' else 'cb', tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize('plugs', ['broad', 'residual', 'refiner', 'talking-heads'])
@pytest.mark.parametrize('host', ['vit', 'swin'])
def test_maps_and_values_of_all_blocks(host, plugs, tmp_path):
    export_case(host, plugs, tmp_path)


@pytest.mark.slow
def test_maps_that_are_no_multiples_are_pooled(tmp_path):
    export_case('pit', 'broad', tmp_path)


@pytest.mark.slow
def test_one_size_is_kept(tmp_path):
    export_case('mixer', 'cb', tmp_path, dynamic=('batch',))
    with pytest.raises(NotExported):
        export_case('mixer', 'cb', tmp_path)
