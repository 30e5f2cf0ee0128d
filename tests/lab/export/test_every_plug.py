"""Hosts with plugs through ONNX: right at sizes and batches that were not traced, or refused by name."""

from pathlib import Path

import pytest
import torch
from cases import EVEN_HOSTS, HOSTS, PLUGS, TOKEN_HOSTS, images, randomize
from torch.testing import assert_close

from vitplug.attention.grids import ceil_div
from vitplug.backbones import VisionTransformer
from vitplug.lab.costs import quiet
from vitplug.lab.export.file import FORMATS, Run
from vitplug.lab.export.trace import NotExported, folded, open_sizes, trace
from vitplug.lab.export.verify import compare

if not hasattr(torch.compiler, 'is_exporting'):
    pytest.skip('this torch cannot say that it exports', allow_module_level=True)
pytest.importorskip('onnxruntime')
pytest.importorskip('onnxscript')

ALL_HOSTS = {**HOSTS, **EVEN_HOSTS, **TOKEN_HOSTS}
TRACED = (3, 64, 96)
# Three sizes, two batches; a host that does not take one gets the next larger size that it takes.
OTHERS = ((2, 96, 64), (5, 160, 128), (2, 32, 32))
AXES = ('batch', 'height', 'width')
# The Mixer takes one size.
FIXED = {'mixer': (32, 48)}


def write(program, path: Path) -> Run:
    """A graph as a file of ONNX, which runs without notes on its sizes."""
    names = [f'out{i}' for i in range(len(program.graph_signature.user_outputs))]
    with quiet():
        FORMATS['.onnx'].write(program, path, dict(outputs=names))
    run, _ = FORMATS['.onnx'].open(path)
    return lambda images: [torch.from_numpy(out) for out in run(images)]


def export_case(host: str, plugs: str, folder: Path, dynamic=AXES) -> None:
    """Exports a host with plugs and compares the file; raises NotExported or WrongFile."""
    model = randomize(ALL_HOSTS[host](plugs=PLUGS[plugs])).float().eval()
    batch, *size = TRACED if 'batch' in dynamic else (2, *TRACED[1:])
    size = FIXED.get(host, size)
    x = images(*size, batch).float()
    program = trace(folded(model)[0], x, dynamic)
    sizes = open_sizes(program, x, dynamic)
    run = write(program, folder / 'model.onnx')
    least, divisor = sizes or (1, 1)
    others = [(b, *(ceil_div(max(side, least), divisor) * divisor for side in others)) for b, *others in OTHERS]
    shapes = [(b if 'batch' in dynamic else batch, *(other if sizes else size)) for b, *other in others]
    compare(model, run, (images(*size, batch, seed=5).float() for batch, *size in shapes))


# Plugs on scores, maps and values of all blocks; in PiT, maps that are no multiples of the last one are pooled.
CASES = [(host, 'gab') for host in ('vit', 'swin', 'mvit', 'pit', 'swin-v2', 't2t')] + [('lvt', 'cb'), ('pit', 'broad')]
CASES += [(host, plugs) for host in ('vit', 'swin') for plugs in ('broad', 'residual', 'refiner', 'talking-heads')]


@pytest.mark.slow
@pytest.mark.parametrize(('host', 'plugs'), CASES)
def test_any_size(host, plugs, tmp_path):
    export_case(host, plugs, tmp_path)


@pytest.mark.integration
@pytest.mark.parametrize(
    ('patch', 'own', 'plugs', 'has_cls'),
    [(16, 512, 'residual', True), (4, 96, 'residual', True), (4, 32, 'gab', False)],
)
def test_what_is_chosen_for_speed_has_one_form_for_all_sizes(patch, own, plugs, has_cls):
    """Scores are written out as a sum above 2048 tokens, and rows of biases are multiples of 8, elsewhere."""
    arch = dict(embed_dims=12, num_layers=2, num_heads=2, feedforward_channels=24)
    settings = dict() if has_cls else dict(with_cls_token=False, out_type='featmap')
    model = VisionTransformer(arch=arch, img_size=own, patch_size=patch, plugs=plugs, **settings).eval()
    x = images(own * 3 // 2, own * 3 // 2 + 32, 3).float()
    assert open_sizes(trace(model, x, AXES), x, AXES) == (patch + 1, 1)


@pytest.mark.integration
def test_places_are_taken_modulo_an_open_size(tmp_path):
    """As shifted windows do; the writer's own remainder takes numbers alone."""

    class Shifted(torch.nn.Module):
        def forward(self, images):
            return ((torch.arange(images.shape[2]) + 3) % images.shape[3],)

    run = write(trace(Shifted(), images(16, 24).float(), ('height', 'width')), tmp_path / 'model.onnx')
    x = images(9, 5).float()
    assert_close(run(x), [*Shifted()(x)])


@pytest.mark.integration
def test_tiny_numbers_are_added(tmp_path):
    class Tiny(torch.nn.Module):
        def forward(self, images):
            small = images.abs() * 1e-9
            return small / (small + 1e-8), small - 1e-9, torch.add(small, 0.5, alpha=1e-8), small.sum() + 1e-8

    x = images(4, 4).float()
    assert_close(write(trace(Tiny(), x, ()), tmp_path / 'model.onnx')(x), [*Tiny()(x)], atol=0, rtol=1e-5)


@pytest.mark.slow
def test_one_size_is_kept(tmp_path):
    export_case('mixer', 'cb', tmp_path, dynamic=('batch',))
    with pytest.raises(NotExported):
        export_case('mixer', 'cb', tmp_path)
