"""Changes of images: hand-made images, torchvision, timm and SciPy as oracles; draws depend on seed and image alone."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from PIL import Image
from scipy import ndimage

from vitplug.lab.study import conditions
from vitplug.lab.study.command import CONDITIONS, conditions_of
from vitplug.lab.study.runs import Run

PHOTO = np.random.default_rng(0).integers(0, 256, (48, 56, 3), np.uint8)


def change(text, image, index=0, is_bgr=True, fill=0.0, seed=None):
    """What a condition makes of an image."""
    name, *values = text.split(':')
    condition = CONDITIONS[name](*values, **({} if seed is None else dict(seed=seed)))
    preprocessor = SimpleNamespace(mean=torch.tensor([fill]), to_rgb=is_bgr)
    run = Run('m', None, SimpleNamespace(data_preprocessor=preprocessor), '', {}, [dict(type='PackInputs')])
    *_, step, _ = condition.change(run).pipeline
    return step(dict(img=image, sample_idx=index))['img']


# --- geometry ---


@pytest.mark.parametrize(('percent', 'step', 'side'), [(15, 34, 190), (30, 67, 157), (45, 101, 123), (60, 134, 90)])
def test_strengths_of_revit_in_pixels_of_224(percent, step, side):
    dot = np.zeros((224, 224), np.uint8)
    dot[0, 0] = 200
    for direction, place in (('right', [0, step]), ('down', [step, 0])):
        assert np.argwhere(change(f'shift:{direction}:{percent}', dot)[..., 0]).tolist() == [place]
    white = change(f'shrink:{percent}', np.full((224, 224), 255, np.uint8))[..., 0] == 255
    for axis in (0, 1):
        [inside] = np.nonzero(white.any(axis))
        assert len(inside) == side
        # The centre of the smaller image is that of the larger one, to half a pixel.
        assert abs((inside[0] + inside[-1]) / 2 - 223 / 2) <= 0.5


def test_shifts_in_four_directions():
    image = np.arange(1, 21, dtype=np.uint8).reshape(4, 5)
    moved = {way: change(f'shift:{way}:50', image, fill=-1.0)[..., 0] for way in conditions.DIRECTIONS}
    assert (moved['right'][:, :3] == -1).all() and (moved['right'][:, 3:] == image[:, :2]).all()
    assert (moved['left'][:, 2:] == -1).all() and (moved['left'][:, :2] == image[:, 3:]).all()
    assert (moved['down'][:2] == -1).all() and (moved['down'][2:] == image[:2]).all()
    assert (moved['up'][2:] == -1).all() and (moved['up'][:2] == image[2:]).all()


def test_occlusion_of_112_pixels_of_224():
    image = np.full((224, 224, 3), 9, np.uint8)
    hidden = change('occlude:50', image) == 0
    expected = np.zeros((224, 224, 3), bool)
    expected[56:168, 56:168] = True
    assert (hidden == expected).all()


@pytest.mark.parametrize('ratio', [0.875, 1.0, 1.02, 1.12, 1.13])
@pytest.mark.parametrize('shape', [(48, 56), (61, 50)])
def test_calibrated_field_is_torchvisions(ratio, shape):
    from torchvision.transforms import InterpolationMode, functional

    image = np.random.default_rng(1).integers(0, 256, (*shape, 3), np.uint8)
    resized = functional.resize(Image.fromarray(image), int(44 / ratio), InterpolationMode.BICUBIC)
    expected = np.asarray(functional.center_crop(resized, 44))
    np.testing.assert_array_equal(conditions.calibrated_field(image, ratio, 44), expected)


def test_shrunk_image_is_pillows():
    found = change('shrink:25', PHOTO)
    smaller = np.asarray(Image.fromarray(PHOTO).resize((42, 36), Image.Resampling.BILINEAR))
    np.testing.assert_array_equal(found[6:42, 7:49], smaller)
    assert found.sum() == smaller.sum()


# --- noise and blur ---


def test_gaussian_noise_has_its_deviation_and_is_clipped():
    grey = np.full((200, 200), 128, np.uint8)
    noise = change('noise:10', grey) - 128
    # Four standard errors of the mean and of the deviation of 40,000 draws.
    assert abs(noise.mean()) < 4 * 10 / 200 and abs(noise.std() - 10) < 4 * 10 / 283
    white = change('noise:10', np.full((50, 50), 255, np.uint8))
    assert white.max() == 255 and white.min() < 250


@pytest.mark.parametrize('photons', [0.25, 1.0])
def test_shot_noise_has_poissons_variance(photons):
    noise = change(f'shot:{photons}', np.full((200, 200), 100, np.uint8))
    assert abs(noise.mean() - 100) < 4 * np.sqrt(100 / photons) / 200
    assert abs(noise.var() / (100 / photons) - 1) < 4 * np.sqrt(2 / 40_000)


@pytest.mark.parametrize('sigma', [1.0, 2.0])
def test_blur_is_scipys(sigma):
    expected = ndimage.gaussian_filter(PHOTO.astype(np.float64), (sigma, sigma, 0), mode='mirror', truncate=4.0)
    np.testing.assert_allclose(change(f'blur:{sigma}', PHOTO), expected, atol=1e-3)


def test_nothing_is_changed_at_strength_zero():
    square = PHOTO[:, :48]
    for text in ('shift:left:0', 'shrink:0', 'occlude:0', 'noise:0', 'blur:0', 'corruption:fog:0'):
        np.testing.assert_array_equal(change(text, square), square)


# --- corruptions ---


@pytest.mark.parametrize('name', ['fog', 'gaussian_noise', 'impulse_noise', 'glass_blur', 'elastic_transform'])
def test_corruption_depends_on_seed_and_image_alone(name):
    image = np.random.default_rng(2).integers(0, 256, (40, 44, 3), np.uint8)
    np.random.seed(5)
    first = change(f'corruption:{name}:3', image, 7)
    np.random.seed(6)
    np.random.rand(3)
    before = np.random.get_state()[1].copy()
    np.testing.assert_array_equal(change(f'corruption:{name}:3', image, 7), first)
    np.testing.assert_array_equal(np.random.get_state()[1], before)
    assert first.shape == image.shape and first.dtype == np.uint8 and (first != image).any()
    drawn = not (change(f'corruption:{name}:3', image, 8) == first).all()
    assert drawn == (not (change(f'corruption:{name}:3', image, 7, seed=1) == first).all())


def test_corruption_sees_red_first():
    from imagecorruptions import corrupt

    expected = corrupt(np.ascontiguousarray(PHOTO[..., ::-1]), 4, 'saturate')[..., ::-1]
    np.testing.assert_array_equal(change('corruption:saturate:4', PHOTO), expected)
    red_first = Image.fromarray(PHOTO[..., ::-1])
    np.testing.assert_array_equal(change('corruption:saturate:4', red_first, is_bgr=False), expected[..., ::-1])


# --- bad input ---


@pytest.mark.parametrize(
    ('text', 'words'),
    [
        ('shift:right:150', '150: expected a number from 0 to 100'),
        ('shift:north:50', "direction 'north': expected one of right, left, down, up"),
        ('field:0', '0: expected a number from 0.01'),
        ('noise:-1', '-1: expected a number from 0'),
        ('shot:0', '0: expected a number from'),
        ('corruption:rain:1', 'rain: expected one of gaussian_noise'),
        ('corruption:fog:6', '6: expected a number from 0 to 5'),
    ],
)
def test_wrong_settings_are_named(text, words):
    with pytest.raises(ValueError, match=words):
        conditions_of([text])
