"""The microscope on models of timm: what the page holds, against the plain models of the library."""

import base64
import io
import os
import subprocess
import sys
import zlib
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from adapters.foreign import images, plugged, timm_model
from analysis.written_page import Page
from PIL import Image
from torch import Tensor, nn

import vitplug
from vitplug.lab.microscope.adapted import Adapted
from vitplug.lab.microscope.effects import seed_of
from vitplug.lab.study.adapted import in_inference

pytest.importorskip('timm')

VIT, SWIN, MIXER = 'vit_tiny_patch16_224', 'swin_tiny_patch4_window7_224', 'mixer_s16_224'
ROOT = Path(__file__).parents[2]


def written(tmp_path: Path, model: nn.Module, x: Tensor, **settings) -> Page:
    return Page(vitplug.microscope(model, x, tmp_path / 'a.html', **settings))


def observed(model: nn.Module, x: Tensor) -> Adapted:
    return Adapted('model', vitplug.plug_in(model, []), {Path('image 0'): x})


@torch.no_grad()
def softmax_maps(model: nn.Module, x: Tensor) -> list[Tensor]:
    """The maps ``(windows, H, N, N)`` of all blocks of a plain model, as timm's unfused attention drops them out."""
    found = []
    for module in model.modules():
        if hasattr(module, 'attn_drop'):
            module.fused_attn = False
            module.attn_drop.register_forward_hook(lambda drop, args, out: found.append(args[0]))
    model(x)
    return found


@pytest.mark.parametrize('name', [VIT, SWIN, 'pit_ti_distilled_224'])
def test_the_page_holds_the_maps_of_the_library(name, tmp_path):
    x = images()
    page = written(tmp_path, vitplug.plug_in(timm_model(name), []), x)
    for image in range(2):
        for block, maps in enumerate(softmax_maps(timm_model(name), x[image : image + 1])):
            found, expected = page.maps('probs', block, image), maps[0].numpy()
            if len(maps) > 1:  # in unshifted windows, the first query of the map is that of the first window
                found, expected = found[:, :1], expected[:, :1]
            if name != SWIN or block != 1:  # shifted
                assert np.abs(found - expected).max() <= 0.5 / 255 * expected.max() + 1e-6


def test_measures_predictions_and_learned_values(tmp_path):
    model, x = plugged(timm_model(VIT), 'gab+residual'), images()
    with torch.no_grad():
        scores = model(x).softmax(-1)
    classes = ['ant', 'bee', 'cat', 'dog', 'eel']
    page = written(tmp_path, model, x, classes=classes)
    found = vitplug.measure(model, x)
    for measure, name in zip(page.data['measures'], ('entropy', 'distance'), strict=False):
        expected = [heads.tolist() for heads in found[f'attention_{name}'].values()]
        np.testing.assert_allclose(measure['values'][0], expected, rtol=1e-4)
    for of_image, outcome in zip(scores, page.data['predictions'][0], strict=True):
        best = int(of_image.argmax())
        assert outcome['text'].startswith(f'{classes[best]}: {of_image[best]:.1%}, ')
    assert {'gab.sigma', 'residual_attention.alpha'} <= {one['name'] for one in page.data['learned']}
    assert page.modes() == dict.fromkeys(('attention', 'rollout', 'gradcam', 'norms', 'prediction'), '') | {
        'edits': 'written with edits=True, which runs the model without each head'
    }


def test_a_baseline_is_compared(tmp_path):
    plain, model, x = timm_model(VIT), timm_model(VIT), images()
    page = written(tmp_path, plugged(model, 'gab'), x, baseline=vitplug.plug_in(plain, []))
    assert [one['name'] for one in page.data['models']] == ['Baseline', 'This model']
    assert [one['title'] for one in page.data['cka']] == ['Baseline', 'This model', 'Baseline and this model']
    assert 'Attention entropy' in page.text and 'against the baseline VisionTransformer' in page.text
    np.testing.assert_allclose(page.maps('probs', 2)[:, 0], softmax_maps(timm_model(VIT), x[:1])[2][0, :, 0], atol=2e-3)
    assert np.abs(page.maps('probs', 2, model=1) - page.maps('probs', 2)).max() > 0.01


def test_grad_cam_is_that_of_the_plain_model():
    x, tokens = images(1), {}
    found = observed(timm_model(VIT), x).grad_cams(x)
    plain = timm_model(VIT)
    for block, module in enumerate(plain.blocks):
        module.attn.register_forward_hook(lambda attn, args, out, block=block: tokens.update({block: out}))
    logits = plain(x)[0]
    grads = torch.autograd.grad(logits.max(), list(tokens.values()), allow_unused=True)
    for block, grad in enumerate(grads):
        patches, weights = tokens[block][0, 1:], grad[0, 1:].mean(0)
        if block == 2:  # the head reads the class token alone
            assert not grad[0, 1:].any() and block not in found
            continue
        torch.testing.assert_close(found[block].heat[0].flatten(), (patches @ weights).relu(), atol=1e-12, rtol=1e-9)
        assert found[block].targets == (f'logit of class {int(logits.argmax())}',)


@pytest.mark.parametrize('name', [VIT, SWIN])
def test_receptive_field_is_that_of_the_plain_model(name):
    x = images(1)
    found = observed(timm_model(name), x).receptive_field([x])
    pixels = x.clone().requires_grad_()
    tokens = timm_model(name).forward_features(pixels)
    # Row 1, column 1 of 4 x 4 patches after the class token; row 1, column 1 of a map of 4 x 4.
    centre = tokens[0, 1 + 4 + 1] if name == VIT else tokens[0, 1, 1]
    (grad,) = torch.autograd.grad(centre.mean(), pixels)
    torch.testing.assert_close(found, grad[0].mean(0).relu(), atol=1e-14, rtol=1e-9)


@pytest.mark.parametrize('key', [int, str])
def test_classes_of_a_config_are_in_the_order_of_their_numbers(key):
    model = timm_model(VIT)
    model.config = SimpleNamespace(id2label={key(number): f'class {number}' for number in (0, 1, 10, 11, 2, 3)})
    assert observed(model, images(1)).classes == [f'class {number}' for number in (0, 1, 2, 3, 10, 11)]


def test_names_that_are_no_text_are_escaped(tmp_path):
    names = [os.fsdecode(b'\xffant')] * 5
    page = written(tmp_path, vitplug.plug_in(timm_model(VIT), []), images(1), classes=names)
    assert '\\udcffant: ' in page.text
    of_file, of_text = (seed_of(Path(name), 1, 2) for name in (names[0], 'a.png'))
    assert of_file != of_text == zlib.crc32(b'a.png/1/2')


def test_without_a_head(tmp_path):
    x = images(1)
    page = written(tmp_path, vitplug.plug_in(timm_model(VIT), []), x, edits=True)

    def run(block=None, head=None):
        model, kept = timm_model(VIT), []
        if block is not None:
            with torch.no_grad():
                model.blocks[block].attn.proj.weight[:, 8 * head : 8 * head + 8] = 0
        model.blocks[-1].register_forward_hook(lambda module, args, out: kept.append(out))
        with torch.no_grad():
            return model(x).softmax(-1)[0], kept[0]

    (scores, before), best = run(), int(run()[0].argmax())
    for block in range(3):
        for head in range(4):
            left, after = run(block, head)
            found = page.data['edits'][0][0][block][head]
            change = float((after - before).norm() / before.norm())
            assert found['features'][0] == pytest.approx(change, rel=1e-4)
            assert found['score'][0] == pytest.approx(float(scores[best] - left[best]), abs=1e-5)


def test_pictures_are_red_first_and_batches_may_differ_in_size(tmp_path):
    model = vitplug.plug_in(timm_model(VIT, dynamic_img_size=True), [])
    red = torch.zeros(1, 3, 32, 32, dtype=torch.float64)
    red[:, 0] = 1
    page = written(tmp_path, model, [red, images(1, size=48)])
    assert [image['hw'] for image in page.data['images']] == [[32, 32], [48, 48]]
    png = base64.b64decode(page.data['images'][0]['src'].partition(',')[2])
    assert np.unique(np.asarray(Image.open(io.BytesIO(png))).reshape(-1, 3), axis=0).tolist() == [[255, 0, 0]]


def test_what_a_model_lacks_is_left_out_by_name(tmp_path):
    page = written(tmp_path, vitplug.plug_in(timm_model(VIT, num_classes=0), []), images(), edits=True)
    why = 'no prediction, as the model gives no logits of classes'
    assert page.modes() == dict(attention='', rollout='', gradcam=why, norms='', prediction=why, edits='')
    assert page.data['edits'][0][0][0][0]['features'][0] > 0
    assert page.data['edits'][0][0][0][0]['score'] == [None, None]
    mixer = written(tmp_path / 'mixer', vitplug.plug_in(timm_model(MIXER), []), images())
    assert mixer.modes()['attention'] == 'no block has attention maps' and not mixer.modes()['prediction']
    assert (
        'several grids'
        in written(tmp_path / 'swin', vitplug.plug_in(timm_model(SWIN), []), images()).modes()['rollout']
    )


def test_a_model_is_as_it_was_afterwards(tmp_path):
    model = timm_model(VIT).train()
    model.blocks[0].eval()
    vitplug.plug_in(model, 'gab')
    before = [module.training for module in model.modules()]
    assert before[0] and not model.blocks[0].training and not model.blocks[0].plugs.training
    trained = [p.requires_grad_(index % 2 == 0).requires_grad for index, p in enumerate(model.parameters())]
    written(tmp_path, model, images())
    assert [module.training for module in model.modules()] == before
    assert [p.requires_grad for p in model.parameters()] == trained
    assert all(p.grad is None for p in model.parameters())
    with pytest.raises(KeyError), in_inference(model):
        raise KeyError
    assert [module.training for module in model.modules()] == before


@pytest.mark.slow
def test_a_compiled_model_is_read_as_its_own(tmp_path):
    model = vitplug.plug_in(timm_model(VIT), [])
    page = written(tmp_path, torch.compile(model), images())
    assert not page.modes()['prediction'] and 'VisionTransformer' in page.text


@pytest.mark.parametrize(
    ('model', 'settings', 'error', 'message'),
    [
        (VIT, dict(out='a.pdf'), ValueError, r'out: a\.pdf must end in \.html'),
        (VIT, dict(out=ROOT / 'docs' / 'no.html', max_mb=0), ValueError, 'max_mb 0: expected a number above 0'),
        (VIT, dict(max_mb=0.01), ValueError, r'max_mb 0\.01: 10,000 bytes are left for maps.*allow a larger file'),
        (VIT, dict(images=[]), ValueError, 'images: there are none'),
        (
            VIT,
            dict(images=torch.zeros(3, 32, 32)),
            ValueError,
            r'images: torch\.float32 \(3, 32, 32\): expected tensors \(B, C, H, W\), normalised',
        ),
        (VIT, dict(images=['a.png']), ValueError, 'images: str: expected tensors'),
        (
            VIT,
            dict(images=torch.zeros(1, 3, 40, 40)),
            ValueError,
            r'model: VisionTransformer does not run on an image \(1, 3, 40',
        ),
        (VIT, dict(images=None), ValueError, 'images: NoneType: expected tensors'),
        (
            VIT,
            dict(images=torch.zeros(1, 3, 32, 32, dtype=torch.uint8)),
            ValueError,
            r'images: torch\.uint8 \(1, 3, 32, 32\): expected',
        ),
        (VIT, dict(classes=['a', 'b']), ValueError, 'classes: 2 names, but the model has 5 classes'),
        (VIT, dict(baseline=lambda: timm_model(VIT)), ValueError, 'has no plugs; call vitplug.plug_in'),
        (
            VIT,
            dict(baseline=lambda: vitplug.plug_in(timm_model(VIT, num_classes=0), [])),
            ValueError,
            'baseline: the model gives no logits of classes, and the other does',
        ),
        (None, {}, ValueError, 'has no plugs; call vitplug.plug_in'),
    ],
)
def test_bad_inputs(model, settings, error, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    built = timm_model(VIT) if model is None else vitplug.plug_in(timm_model(model), [])
    settings = {key: value() if callable(value) else value for key, value in settings.items()}
    x = settings.pop('images', images())
    with pytest.raises(error, match=message):
        vitplug.microscope(built, x, **settings)
    assert not list(tmp_path.iterdir())


def test_a_page_is_not_overwritten(tmp_path):
    path = tmp_path / 'a.html'
    path.write_text('mine')
    with pytest.raises(FileExistsError, match='exists and is not overwritten'):
        vitplug.microscope(vitplug.plug_in(timm_model(VIT), []), images(), path)
    assert path.read_text() == 'mine'


@pytest.mark.integration
@pytest.mark.slow
def test_openmmlab_is_not_needed(tmp_path):
    code = f"""
import sys
for name in ('mmengine', 'mmcv', 'mmpretrain', 'cv2'):
    sys.modules[name] = None
import timm, torch, vitplug
model = vitplug.plug_in(timm.create_model('vit_tiny_patch16_224', img_size=32, depth=2), [])
vitplug.microscope(model, torch.randn(1, 3, 32, 32), {str(tmp_path / 'a.html')!r})
"""
    subprocess.run([sys.executable, '-c', code], check=True, cwd=ROOT)
    assert Page(tmp_path / 'a.html').data['num_blocks'] == 2
