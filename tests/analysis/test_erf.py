"""tools/analysis_tools/erf.py on tiny models, and models of timm, in one process."""

import json
from types import SimpleNamespace

import bad_inputs
import numpy as np
import pytest
import torch
from mmengine.config import Config
from PIL import Image
from small_models import save_noise, save_untrained
from torch import nn
from torch.testing import assert_close

from vitplug.analysis import timm_models
from vitplug.analysis.erf import fields
from vitplug.analysis.erf import run as erf_run
from vitplug.analysis.measures.gaussian_fit import fit_gaussian
from vitplug.analysis.measures.receptive_field import cancels, effective_receptive_field
from vitplug.analysis.measures.reset import reset_copy
from vitplug.analysis.study.images import find_images
from vitplug.config.reading import read_config
from vitplug.runs.prediction import Predictor

GAB = "model = dict(backbone=dict(patch_size=4, plugs=[dict(type='GaussianAttentionBias', sigma=0.6, layers=[1])]))"
IMAGES = 5


@pytest.fixture(scope='module')
def template(tmp_path_factory):
    """A plain classifier and one with GAB, both with random norms, and images of one size."""
    folder = bad_inputs.prepare(tmp_path_factory.mktemp('erf') / 'a')
    (folder / 'gab.py').write_text(f"_base_ = 'tiny.py'\n{GAB}\n")
    for name in ('tiny', 'gab'):
        save_untrained(folder / f'{name}.py', folder / f'{name}_random.pth', draw_norms)
    save_noise(folder / 'some', IMAGES)
    return folder


@pytest.fixture
def folder(template, monkeypatch):
    monkeypatch.chdir(template)
    return template


def draw_norms(module):
    """Norms that scale channels differently, as a trained model's do."""
    if isinstance(module, nn.LayerNorm):
        module.weight.normal_(1, 0.2)


def call(folder, arguments, status=0):
    return bad_inputs.run_to(status, f'erf.py {arguments} --device cpu', folder)


def results_in(folder):
    return json.loads((folder / 'erf.json').read_text())


@pytest.fixture(scope='module')
def done(template):
    arguments = 'gab.py gab_random.pth --images some --out done --reset ape table --baseline tiny.py tiny_random.pth'
    return call(template, arguments)


@pytest.mark.integration
def test_results_are_those_of_the_measures(folder, done):
    content = results_in(folder / 'done')
    predictor = Predictor(read_config('gab.py'), 'gab_random.pth', 'cpu')
    images = [predictor.images([predictor.read(path)]) for path in sorted((folder / 'some').iterdir())]
    assert len(images) == IMAGES == content['images']['number']
    maps = np.load(folder / 'done' / 'maps.npz')
    networks = {'model': predictor.model.backbone, 'model reset ape': reset_copy(predictor.model.backbone, 'ape')[0]}
    for label, network in networks.items():
        expected = effective_receptive_field(network, images).numpy()
        np.testing.assert_allclose(maps[label], expected / expected.sum(), rtol=1e-6)
        fit = fit_gaussian(maps[label])
        assert {**content['models'][label]['fit'], 'intervals': None} == {**fit.as_json(), 'intervals': None}
    assert list(maps) == list(content['models']) == ['model', 'model reset ape', 'baseline']
    assert not np.allclose(maps['model'], maps['baseline'])
    assert content['models']['model reset ape']['reset']['parameters'] == ['pos_embed']
    assert content['models']['model']['biases']['1']['sigma_x'] == pytest.approx(0.6, rel=1e-3)
    assert list(content['models']['model']['learned']['gab.sigma']) == ['1']
    assert content['models']['baseline']['biases'] == {}
    token = content['models']['model']['token']
    assert (token['row'], token['column']) == ((token['rows'] - 1) // 2, (token['columns'] - 1) // 2)
    assert content['command'].startswith('python tools/analysis_tools/erf.py gab.py gab_random.pth')
    assert all(content[key] for key in ('definition', 'source', 'fit', 'interval', 'versions'))
    for name in ('erf.png', 'biases.png'):
        assert Image.open(folder / 'done' / name).size[0] > 300
    assert 'ERF, model reset ape, pixels' in done.out
    assert 'position bias, model, tokens' in done.out


@pytest.mark.integration
def test_interval_is_that_of_the_jackknife(folder, done):
    """Each of five images is a group: standard error of the fits without one of them."""
    with np.load(folder / 'done/arrays/baseline.erf.npz') as arrays:
        totals = [arrays[f'{unit:05}/total'] for unit in range(IMAGES)]
        assert [int(arrays[f'{unit:05}/count']) for unit in range(IMAGES)] == [1] * IMAGES
    content = results_in(folder / 'done')['models']['baseline']['fit']
    left = np.array([fit_gaussian(sum(totals) - one).as_json()['r_squared'] for one in totals], dtype=float)
    if np.isfinite(left).all():
        half = 2.7764451 * np.sqrt(4 / 5 * ((left - left.mean()) ** 2).sum())
        expected = [content['r_squared'] - half, content['r_squared'] + half]
        assert content['intervals']['r_squared'] == pytest.approx(expected, rel=1e-5)
    else:
        assert content['intervals']['r_squared'] is None


@pytest.mark.integration
def test_an_interrupted_run_goes_on(folder, monkeypatch, done):
    whole, calls, real = folder / 'done', [], erf_run.input_gradient

    def counted(features, image):
        if len(calls) == 4 and stop:
            raise KeyboardInterrupt
        calls.append(features)
        return real(features, image)

    monkeypatch.setattr(erf_run, 'input_gradient', counted)
    monkeypatch.setattr(erf_run, 'GROUPS', 2)  # of three images and of two: the second one is interrupted
    arguments, stop = 'gab.py gab_random.pth --images some --out parts', True
    assert 'interrupted; the maps so far are kept' in call(folder, arguments, status=75).err
    stop = False
    call(folder, arguments)
    assert len(calls) == IMAGES
    call(folder, f'{arguments} --reset ape')  # a later reset computes itself alone
    assert len(calls) == 2 * IMAGES
    first, second = (np.load(out / 'maps.npz') for out in (whole, folder / 'parts'))
    for label in second:
        np.testing.assert_allclose(first[label], second[label], rtol=1e-12)
    other = call(folder, 'tiny.py tiny_random.pth --images some --out parts', status=2)
    assert 'parts is of another analysis' in other.err


@pytest.mark.integration
def test_images_of_several_sizes(folder):
    """The pipeline is made to keep the shape of images, as those of dense tasks do."""
    (folder / 'sizes').mkdir()
    for number, size in enumerate([(16, 16), (40, 20)]):
        Image.fromarray(np.random.default_rng(number).integers(0, 255, (*size, 3), np.uint8)).save(
            folder / f'sizes/{number}.png'
        )
    pipeline = "[dict(type='LoadImageFromFile'), dict(type='PackInputs')]"
    (folder / 'keeping.py').write_text(
        f"_base_ = 'tiny.py'\ntest_dataloader = dict(dataset=dict(pipeline={pipeline}))\n"
    )
    arguments = 'keeping.py tiny_random.pth --images sizes --allow-changes'
    assert 'gives images of 2 sizes (16x16, 40x20)' in call(folder, f'{arguments} --out a', status=2).err
    call(folder, f'{arguments} --out b --size 24 16')
    assert results_in(folder / 'b')['models']['model']['image_size'] == [24, 16]
    assert results_in(folder / 'b')['images']['size'] == [24, 16]


def test_cropping():
    predictor = SimpleNamespace(collate=lambda pictures: pictures)
    picture = np.arange(6 * 4, dtype=np.uint8).reshape(6, 4)[..., None].repeat(3, -1)
    [cropped] = fields.Cropping(predictor, (2, 4)).collate([picture])  # rows 2 and 3
    np.testing.assert_array_equal(cropped[..., 0], np.arange(8, 16).reshape(2, 4))


@pytest.mark.integration
def test_untrained_models_are_told(folder):
    """Their final norm makes the mean over channels constant."""
    save_untrained(folder / 'tiny.py', folder / 'fresh.pth', draw_norms)
    content = torch.load(folder / 'fresh.pth', weights_only=False)
    for key, value in content['state_dict'].items():
        if '.ln1.weight' in key:
            value.fill_(1)
    torch.save(content, folder / 'fresh.pth')
    outcome = call(folder, 'tiny.py fresh.pth --images some --num 1 --out fresh')
    assert 'warning: model: the final norm scales all channels alike' in outcome.out
    assert results_in(folder / 'fresh')['models']['model']['warning']
    assert not cancels(nn.Conv2d(3, 4, 3).eval(), torch.randn(1, 3, 8, 8))


# --- models of timm ---


@pytest.mark.integration
def test_model_of_timm(folder):
    pytest.importorskip('timm')
    model = timm_models.build('test_vit')
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    torch.save(model.state_dict() | {'head.weight': torch.zeros(3, 64)}, folder / 'timm.pth')
    call(folder, '--timm test_vit --checkpoint timm.pth --images some --num 2 --out timm --reset ape-random')
    subject = timm_models.TimmSubject.read('model', 'test_vit', str(folder / 'timm.pth'), 'cpu')
    images = [subject.load(path).inputs for path in find_images(Config(), folder / 'some', 2)]
    expected = by_hand(model, images)
    found = np.load(folder / 'timm' / 'maps.npz')['model']
    np.testing.assert_allclose(found, expected / expected.sum(), rtol=1e-4, atol=1e-9)
    about = results_in(folder / 'timm')['models']
    assert about['model']['timm'] == 'test_vit'
    assert about['model reset ape-random']['reset']['parameters'] == ['pos_embed']


def by_hand(model, images):
    """The definition, with timm's tokens in a list: 10 x 10 patches of 16 pixels after the class token."""
    total = 0
    for image in images:
        pixels = image.clone().requires_grad_()
        tokens = model.forward_features(pixels)
        (gradient,) = torch.autograd.grad(tokens[0, 1 + 4 * 10 + 4].mean(), pixels)
        total = total + gradient[0].mean(0).clamp(min=0).double()
    return (total / len(images)).numpy()


def test_maps_of_timm():
    timm = pytest.importorskip('timm')
    image = torch.randn(1, 3, 64, 64)
    convolutions = timm.create_model('test_resnet').eval()
    assert_close(timm_models.feature_map(convolutions)(image), convolutions.forward_features(image))

    class Channels(nn.Module):  # as timm's Swin has them
        output_fmt = 'NHWC'

        def forward_features(self, image):
            return image.permute(0, 2, 3, 1)

    assert_close(timm_models.feature_map(Channels())(image), image)
    rectangle = timm.create_model('test_vit', img_size=(32, 48)).eval()
    tokens = rectangle.forward_features(torch.zeros(1, 3, 32, 48))
    found = timm_models.feature_map(rectangle)(torch.zeros(1, 3, 32, 48))
    assert_close(found[0, :, 1, 2], tokens[0, 1 + 1 * 3 + 2])
    for name, grid, settings in (  # patches of 16 pixels, the rest left out or padded
        ('vit_tiny_patch16_224', (2, 3), dict(depth=1)),
        ('test_vit', (3, 4), dict(dynamic_img_size=True, dynamic_img_pad=True)),
    ):
        model = timm.create_model(name, img_size=(40, 56), **settings).eval()
        assert timm_models.feature_map(model)(torch.zeros(1, 3, 40, 56)).shape[2:] == grid
    assert 'its norm follows the pooling' in timm_models.describe_feature_map(
        timm_models.build('vit_relpos_small_patch16_224')
    )
    assert timm_models.describe_feature_map(rectangle) == "timm's forward_features"


def test_timm_models_of_every_kind():
    """Windows, a second prefix token, MLP-Mixer (whose embedding is its stem); models without a last map say so."""
    pytest.importorskip('timm')
    image = torch.randn(1, 3, 224, 224)
    tokens = {'deit_tiny_distilled_patch16_224': 2, 'mixer_s32_224': 0, 'swin_tiny_patch4_window7_224': 0}
    with torch.no_grad():
        for name, prefix in tokens.items():
            model = timm_models.build(name)
            found, expected = timm_models.feature_map(model)(image)[0], model.forward_features(image)[0]
            patches = expected.flatten(0, -2)[prefix:]
            assert_close(found.flatten(1).T, patches)
            assert found.shape[1] == found.shape[2]
        for name, message in [
            ('pit_ti_224', 'PoolingVisionTransformer: forward_features gives 1 tokens.* choose another'),
            ('twins_pcpvt_small', 'Twins: .* no patch_embed that tells their grid'),
        ]:
            with pytest.raises(ValueError, match=message):
                timm_models.feature_map(timm_models.build(name))(image)


@pytest.mark.parametrize(
    ('options', 'words'),
    [
        ('--cfg-options a=1', '--cfg-options and --plugs are for CONFIG, which --timm replaces'),
        ('--plugs cb --baseline tiny.py tiny_random.pth', '--cfg-options and --plugs are for CONFIG'),
        ('--allow-changes', '--allow-changes: is for checkpoints of configs'),
    ],
)
def test_options_of_configs_are_refused_for_timm(folder, options, words):
    assert words in call(folder, f'--timm test_vit --images some --out refused {options}', status=2).err


def test_random_weights_are_the_same_in_every_call():
    pytest.importorskip('timm')
    stream = torch.random.get_rng_state()
    first, second = (timm_models.build('test_vit').state_dict() for _ in range(2))
    assert_close(first, second, rtol=0, atol=0)
    assert torch.equal(stream, torch.random.get_rng_state())


def test_wrong_models_of_timm(tmp_path):
    pytest.importorskip('timm')
    with pytest.raises(ValueError, match=r"--timm test_vitt: timm has no such model; close: \['test_vit"):
        timm_models.build('test_vitt')
    model = timm_models.build('test_vit')
    state = model.state_dict()
    state.pop('norm.weight')
    state['pos_embed'] = state['pos_embed'][:, :5]
    torch.save(state, tmp_path / 'a.pth')
    with pytest.raises(ValueError, match=r'a\.pth does not fit the model: .*pos_embed.*norm\.weight'):
        timm_models.load(model, tmp_path / 'a.pth')
