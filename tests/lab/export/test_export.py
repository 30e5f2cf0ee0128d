"""Exported files: the same outputs and predictions as PyTorch's, or no file; folded plugs; refused requests."""

import copy
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from cases import HOSTS, PLUGS, images, randomize
from mmengine.config import Config
from mmengine.registry import MODELS, DefaultScope
from torch import nn
from torch.testing import assert_close

from vitplug.plugs.broad_attention import _pool_along
from vitplug.runs.prediction import Predictor

if not hasattr(torch.compiler, 'is_exporting'):
    pytest.skip('this torch cannot say that it exports', allow_module_level=True)

from vitplug.lab.export.command import check_request, main
from vitplug.lab.export.file import FORMATS, ExportedFile, RunExportedHook
from vitplug.lab.export.operators import mean_of_bins, repeat_entries
from vitplug.lab.export.trace import folded, open_sizes, trace
from vitplug.lab.export.verify import COMPARED, TRACED, WrongFile, compare, shape_of

CONFIGS = Path(__file__).parents[3] / 'configs' / 'digits'
CLASSIFIER = CONFIGS / 'vit-mini-p4-gab_1xb32-14e_digits-32x32.py'
ONE_BLOCK = 'model.backbone.arch.num_layers=1'
CLASSES = tuple('0123456789')
PICTURE = np.random.default_rng(0).integers(0, 255, (32, 32, 3), dtype=np.uint8)


def checkpoint(cfg: Config, path: Path, seed: int = 0, classes: tuple[str, ...] = CLASSES) -> Path:
    """A checkpoint of a model with its initial weights, as a training writes it."""
    torch.manual_seed(seed)
    with DefaultScope.overwrite_default_scope(cfg.default_scope):
        model = MODELS.build(copy.deepcopy(cfg.model))
    model.init_weights()
    meta = dict(cfg=cfg.pretty_text, dataset_meta=dict(classes=classes))
    torch.save(dict(meta=meta, state_dict=model.state_dict()), path)
    return path


@pytest.fixture(scope='module')
def classifier(tmp_path_factory) -> tuple[Config, Path]:
    """A ViT of one block with Gaussian Attention Bias, and a checkpoint of it."""
    cfg = Config.fromfile(CLASSIFIER)
    cfg.model.backbone.arch.num_layers = 1
    return cfg, checkpoint(cfg, tmp_path_factory.mktemp('model') / 'a.pth')


def export(weights: Path, out: Path) -> None:
    """Runs the command on the checkpoint of a classifier."""
    main([str(CLASSIFIER), str(weights), '--out', str(out), '--dynamic', 'batch', '--cfg-options', ONE_BLOCK])


@pytest.fixture(scope='module')
def exported(classifier, tmp_path_factory) -> Path:
    """The classifier as a file of torch.export."""
    out = tmp_path_factory.mktemp('file') / 'a.pt2'
    export(classifier[1], out)
    return out


@pytest.mark.integration
@pytest.mark.parametrize('name', ['a.pt2', 'a.onnx'])
def test_file_describes_itself(classifier, name, tmp_path, capsys):
    cfg, weights = classifier
    export(weights, tmp_path / name)
    lines = capsys.readouterr().out.splitlines()
    notes = ExportedFile(tmp_path / name).notes
    normalised = cfg.model.get('data_preprocessor') or cfg.data_preprocessor
    assert notes['preprocessing']['mean'] == [float(n) for n in normalised['mean']]
    assert notes['classes'] == list(CLASSES) and 'GaussianAttentionBias' in notes['config']
    assert notes['part'] == 'scores' and notes['outputs'] == ['scores'] and notes['traced'][1:] == [32, 32]
    assert any(line.startswith('(5, 1, 32, 32): largest difference') for line in lines)
    assert any('folded' in line for line in lines) and [*tmp_path.iterdir()] == [tmp_path / name]


def test_other_batches_and_sizes_are_refused_where_axes_are_not_open(exported):
    file = ExportedFile(exported)
    channels = 1
    assert file(torch.zeros(4, channels, 32, 32))[0].shape == (4, 10)
    with pytest.raises(ValueError, match='takes a height of 32 only, not 64: export it with --dynamic height'):
        file(torch.zeros(1, channels, 64, 32))


def test_predictions_are_those_of_pytorch(classifier, exported):
    """And a file of another checkpoint is refused."""
    cfg, weights = classifier
    plain, by_file = (Predictor(copy.deepcopy(cfg), weights, 'cpu') for _ in range(2))
    hook = RunExportedHook(str(exported))
    hook.replace(by_file.model, str(weights))
    by_file.model.backbone.forward = None  # it is not run
    scores = [predictor([PICTURE, PICTURE[::-1]])[1].pred_score for predictor in (plain, by_file)]
    assert_close(*scores)
    other = checkpoint(cfg, exported.with_name('b.pth'), seed=1)
    with pytest.raises(ValueError, match='exported from another checkpoint'):
        hook.replace(by_file.model, str(other))


def test_wrong_file_is_removed(classifier, tmp_path, monkeypatch):
    def write_wrong(program, path, notes):
        name = [name for name in program.state_dict if name.endswith('weight')][-1]
        with torch.no_grad():
            program.state_dict[name].mul_(1.01)
        return FORMATS['.pt2'].write(program, path, notes)

    wrong = FORMATS | {'.pt2': FORMATS['.pt2']._replace(write=write_wrong)}
    monkeypatch.setattr('vitplug.lab.export.command.FORMATS', wrong)
    with pytest.raises(WrongFile, match=r'differs from PyTorch: .* of the largest output\); at most 1e-04 is allowed'):
        export(classifier[1], tmp_path / 'a.pt2')
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize('factor', [float('nan'), float('inf'), 1.001])
def test_other_numbers_are_wrong(factor):
    with pytest.raises(WrongFile):
        compare(nn.Identity(), lambda x: x * factor, [torch.ones(1, 1, 2, 2)])


@pytest.mark.parametrize(
    ('settings', 'error', 'message'),
    [
        (dict(dynamic=['depth']), ValueError, '--dynamic depth: unknown; choose from batch, height, width'),
        (dict(part='boxes'), ValueError, '--part boxes: unknown; choose from scores, backbone'),
        (dict(out='a.pth'), ValueError, r'a\.pth must end in \.onnx or \.pt2'),
        (dict(out='there.pt2'), FileExistsError, 'exists and is not overwritten'),
        (dict(out='no/a.pt2'), FileNotFoundError, 'there is no folder'),
    ],
)
def test_bad_requests_are_refused_before_work(tmp_path, settings, error, message):
    (tmp_path / 'there.pt2').touch()
    settings = dict(out='a.pt2', part='scores', dynamic=[]) | settings
    with pytest.raises(error, match=message):
        check_request(tmp_path / settings['out'], settings['part'], ['scores', 'backbone'], settings['dynamic'])


@pytest.mark.parametrize('host', ['vit', 'swin', 'mvit'])
@pytest.mark.parametrize('plugs', ['gab', 'residual', 'residual-per-layer', 'refiner', 'refiner-rowcol', 'dla-spatial'])
def test_folded_plugs_give_the_same(host, plugs):
    model = randomize(HOSTS[host](plugs=copy.deepcopy(PLUGS[plugs]))).double().eval()
    before = [*dict(model.named_parameters())]
    constant, count = folded(model)
    x = images(64, 96)
    assert_close(constant(x), model(x))
    learned = {name for name, _ in constant.named_parameters() if 'plugs' in name}
    assert count and not learned and [*dict(model.named_parameters())] == before  # the model stays as it is


def test_operators_that_onnx_lacks_are_torchs():
    maps = torch.randn(2, 3, 9, 7, dtype=torch.float64)
    for bins in (4, 12, 1):
        largest = F.adaptive_max_pool2d(maps, (bins, 7))
        assert_close(_pool_along(maps, 2, 9, bins), largest, rtol=0, atol=0)
    for bins in ((3, 2), (9, 11)):
        assert_close(mean_of_bins(maps, bins), F.adaptive_avg_pool2d(maps, bins))
    for dim in (None, -1):
        assert_close(repeat_entries(maps, 3, dim), maps.repeat_interleave(3, dim), rtol=0, atol=0)


def test_compared_sizes_are_not_the_traced_one():
    axes = ('batch', 'height', 'width')
    traced = shape_of((224, 224), axes, TRACED, (1, 32))
    shapes = [shape_of((224, 224), axes, more, (100, 4)) for more in COMPARED]
    assert len({shape[1:] for shape in shapes}) == 3 and len({shape[0] for shape in shapes}) == 2
    assert not any(shape[0] == traced[0] or shape[1] == traced[1] or shape[2] == traced[2] for shape in shapes)
    assert {shape_of((224, 224), ('batch',), more, (1, 1)) for more in COMPARED} == {(1, 224, 224), (5, 224, 224)}
    assert {shape_of((30, 30), ('height',), more, (100, 8)) for more in COMPARED} == {(1, 104, 30), (1, 160, 30)}


@pytest.mark.parametrize(('host', 'sizes'), [('vit', 1), pytest.param('swin', 33, marks=pytest.mark.slow)])
def test_sizes_that_break_a_condition_are_found(host, sizes):
    """Swin's windows of 4 are shifted where the map of its last stage, strides of 8, is larger than one."""
    x = images(64, 96, 3)
    model = randomize(HOSTS[host](plugs=[])).double().eval()
    smallest, divisor = open_sizes(trace(model, x, ('batch', 'height', 'width')), x, ('batch', 'height', 'width'))
    assert divisor == 1 and smallest >= sizes
    assert host == 'vit' or smallest == sizes


class MoreFromThirtyTwoOn(nn.Module):
    """Has a condition on the height."""

    def forward(self, images):
        return (images.mean((2, 3)) if images.shape[2] >= 32 else images.amax((2, 3)),)


def test_one_open_side_has_its_conditions_and_the_other_none(exported):
    x = images(64, 30)
    program = trace(MoreFromThirtyTwoOn(), x, ('height',))
    assert open_sizes(program, x, ('height',)) == (32, 1)
    assert open_sizes(trace(MoreFromThirtyTwoOn(), x, ('width',)), x, ('width',)) == (1, 1)
    file = ExportedFile(exported)
    file.notes |= dict(dynamic=['batch', 'height'], traced=[1, 64, 30], sizes=[32, 1])
    file._run = lambda x: [x]
    assert file(x)[0].shape == x.shape
    with pytest.raises(ValueError, match='takes a height from 32 pixels on'):
        file(images(31, 30))
