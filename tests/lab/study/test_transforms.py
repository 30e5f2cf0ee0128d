"""Changes of images: hand-made images, torchvision, timm and SciPy as oracles; draws depend on seed and image alone."""

import numpy as np
import pytest
import torch
from mmengine.dataset import BaseDataset
from mmengine.registry import TRANSFORMS
from PIL import Image
from scipy import ndimage
from torch.utils.data import DataLoader

from vitplug.lab.study import transforms
from vitplug.lab.study.transforms import corruption_names

PHOTO = np.random.default_rng(0).integers(0, 256, (48, 56, 3), np.uint8)


def change(kind, image, index=0, about=None, **settings):
    results = dict(img=image, sample_idx=index, **({'img_path': 'a.png'} if about is None else about))
    return TRANSFORMS.build(dict(type=f'vitplug.{kind}', **settings))(results)['img']


# --- geometry ---


@pytest.mark.parametrize(('percent', 'step', 'side'), [(15, 34, 190), (30, 67, 157), (45, 101, 123), (60, 134, 90)])
def test_strengths_of_revit_in_pixels_of_224(percent, step, side):
    dot = np.zeros((224, 224), np.uint8)
    dot[0, 0] = 200
    for direction, place in (('right', (0, step)), ('down', (step, 0))):
        assert np.argwhere(change('Shift', dot, fraction=percent / 100, direction=direction)[..., 0]).tolist() == [
            [*place]
        ]
    white = change('Shrink', np.full((224, 224), 255, np.uint8), fraction=percent / 100)[..., 0] == 255
    for axis in (0, 1):
        [inside] = np.nonzero(white.any(axis))
        assert len(inside) == side
        # The centre of the smaller image is that of the larger one, to half a pixel.
        assert abs((inside[0] + inside[-1]) / 2 - 223 / 2) <= 0.5


def test_shifts_in_four_directions():
    image = np.arange(1, 21, dtype=np.uint8).reshape(4, 5)
    moved = {
        way: change('Shift', image, fraction=0.5, direction=way, fill=-1.0)[..., 0] for way in transforms.DIRECTIONS
    }
    assert (moved['right'][:, :3] == -1).all() and (moved['right'][:, 3:] == image[:, :2]).all()
    assert (moved['left'][:, 2:] == -1).all() and (moved['left'][:, :2] == image[:, 3:]).all()
    assert (moved['down'][:2] == -1).all() and (moved['down'][2:] == image[:2]).all()
    assert (moved['up'][2:] == -1).all() and (moved['up'][:2] == image[2:]).all()


def test_fill_of_each_channel_is_exact():
    mean = (123.675, 116.28, 103.53)
    moved = change('Shift', PHOTO, fraction=1.0, fill=mean)
    assert (moved == np.float32(mean)).all() and moved.shape == PHOTO.shape


def test_occlusion_of_112_pixels_of_224():
    image = np.full((224, 224, 3), 9, np.uint8)
    hidden = change('OccludeCentre', image, fill=0.0) == 0
    expected = np.zeros((224, 224, 3), bool)
    expected[56:168, 56:168] = True
    assert (hidden == expected).all()


@pytest.mark.parametrize('side', [7, 8, 33])
def test_odd_occlusions_are_centred_to_half_a_pixel(side):
    hidden = change('OccludeCentre', np.ones((side, 12), np.uint8), fraction=0.5)[..., 0] == 0
    rows = np.nonzero(hidden.any(1))[0]
    assert abs(rows.mean() - (side - 1) / 2) <= 0.5
    assert (image := np.ones((side, 12))).sum() - hidden.sum() == image.sum() - len(rows) * 6


@pytest.mark.parametrize('ratio', [0.875, 1.0, 1.02, 1.12, 1.13])
@pytest.mark.parametrize('shape', [(48, 56), (61, 50)])
def test_calibrated_field_is_torchvisions(ratio, shape):
    from torchvision.transforms import InterpolationMode, functional

    image = np.random.default_rng(1).integers(0, 256, (*shape, 3), np.uint8)
    resized = functional.resize(Image.fromarray(image), int(44 / ratio), InterpolationMode.BICUBIC)
    expected = np.asarray(functional.center_crop(resized, 44))
    np.testing.assert_array_equal(change('CalibrateReceptiveField', image, ratio=ratio, size=44), expected)


def test_calibrated_field_is_timms_evaluation():
    timm_data = pytest.importorskip('timm.data')
    transform = timm_data.create_transform(
        (3, 44, 44), crop_pct=1.13, interpolation='bicubic', mean=(0,) * 3, std=(1,) * 3
    )
    expected = transform(Image.fromarray(PHOTO)).permute(1, 2, 0) * 255
    found = change('CalibrateReceptiveField', PHOTO, ratio=1.13, size=44)
    np.testing.assert_allclose(found, expected, atol=1e-4)


def test_ratio_whose_quotient_is_just_below_a_whole_number():
    white = change('CalibrateReceptiveField', np.full((500, 500), 255, np.uint8), ratio=1.12, size=448)[..., 0] == 255
    assert white.any(0).sum() == 400


def test_shrunk_image_is_pillows():
    found = change('Shrink', PHOTO, fraction=0.25, interpolation='bilinear')
    smaller = np.asarray(Image.fromarray(PHOTO).resize((42, 36), Image.Resampling.BILINEAR))
    np.testing.assert_array_equal(found[6:42, 7:49], smaller)
    assert found.sum() == smaller.sum()


# --- noise and blur ---


def test_gaussian_noise_has_its_deviation_and_is_clipped():
    grey = np.full((200, 200), 128, np.uint8)
    noise = change('GaussianNoise', grey, sigma=10.0) - 128
    # Four standard errors of the mean and of the deviation of 40,000 draws.
    assert abs(noise.mean()) < 4 * 10 / 200 and abs(noise.std() - 10) < 4 * 10 / 283
    white = change('GaussianNoise', np.full((50, 50), 255, np.uint8), sigma=10.0)
    assert white.max() == 255 and white.min() < 250


@pytest.mark.parametrize('photons', [0.25, 1.0])
def test_shot_noise_has_poissons_variance(photons):
    noise = change('ShotNoise', np.full((200, 200), 100, np.uint8), photons=photons)
    assert abs(noise.mean() - 100) < 4 * np.sqrt(100 / photons) / 200
    assert abs(noise.var() / (100 / photons) - 1) < 4 * np.sqrt(2 / 40_000)


@pytest.mark.parametrize('sigma', [1.0, 2.0])
def test_blur_is_scipys(sigma):
    expected = ndimage.gaussian_filter(PHOTO.astype(np.float64), (sigma, sigma, 0), mode='mirror', truncate=4.0)
    np.testing.assert_allclose(change('GaussianBlur', PHOTO, sigma=sigma), expected, atol=1e-3)


def test_nothing_is_changed_at_strength_zero():
    for kind, settings in {
        'Shift': dict(fraction=0.0),
        'Shrink': dict(fraction=0.0),
        'OccludeCentre': dict(fraction=0.0),
        'GaussianNoise': dict(sigma=0.0),
        'GaussianBlur': dict(sigma=0.0),
        'Corruption': dict(name='fog', severity=0),
        'CalibrateReceptiveField': dict(ratio=1.0, size=48),
    }.items():
        square = PHOTO[:, :48]
        np.testing.assert_array_equal(change(kind, square, **settings), square)


# --- corruptions ---


@pytest.mark.parametrize('name', corruption_names('all'))
def test_corruption_depends_on_seed_and_image_alone(name):
    image = np.random.default_rng(2).integers(0, 256, (40, 44, 3), np.uint8)
    np.random.seed(5)
    first = change('Corruption', image, name=name, severity=3, index=7)
    np.random.seed(6)
    np.random.rand(3)
    before = np.random.get_state()[1].copy()
    np.testing.assert_array_equal(change('Corruption', image, name=name, severity=3, index=7), first)
    np.testing.assert_array_equal(np.random.get_state()[1], before)
    assert first.shape == image.shape and first.dtype == np.uint8 and (first != image).any()
    drawn = not (change('Corruption', image, name=name, severity=3, index=8) == first).all()
    assert drawn == (not (change('Corruption', image, name=name, severity=3, index=7, seed=1) == first).all())


def test_random_corruptions_differ_between_images():
    for name in ('gaussian_noise', 'impulse_noise', 'glass_blur', 'snow', 'elastic_transform'):
        found = [change('Corruption', PHOTO, name=name, severity=3, index=index) for index in (0, 1)]
        assert (found[0] != found[1]).any(), name


def test_corruption_sees_red_first():
    from imagecorruptions import corrupt

    expected = corrupt(np.ascontiguousarray(PHOTO[..., ::-1]), 4, 'saturate')[..., ::-1]
    np.testing.assert_array_equal(change('Corruption', PHOTO, name='saturate', severity=4), expected)
    red_first = PHOTO[..., ::-1]
    for image, about in ((Image.fromarray(red_first), None), (red_first, {})):  # of Pillow, and in memory
        found = change('Corruption', image, about=about, name='saturate', severity=4)
        np.testing.assert_array_equal(found, expected[..., ::-1])


def test_grey_image_stays_grey():
    for image in (PHOTO[..., 0], Image.fromarray(PHOTO[..., 0])):
        assert change('Corruption', image, name='contrast', severity=2).shape == (48, 56, 1)


class Numbered(BaseDataset):
    """Twelve images that a pipeline changes."""

    def load_data_list(self):
        return [dict(img=PHOTO) for _ in range(12)]


@pytest.mark.parametrize(
    'step',
    [
        dict(type='vitplug.GaussianNoise', sigma=5.0, seed=3),
        dict(type='vitplug.ShotNoise'),
        dict(type='vitplug.Corruption', name='impulse_noise', severity=2),
        dict(type='vitplug.Corruption', name='motion_blur', severity=2),
    ],
    ids=lambda step: step.get('name', step['type']),
)
def test_images_are_equal_across_workers_orders_and_batches(step):
    data = Numbered(pipeline=[step], serialize_data=False)

    def images(order, **settings):
        loader = DataLoader(data, sampler=order, collate_fn=list, **settings)
        return {found['sample_idx']: torch.as_tensor(found['img']) for batch in loader for found in batch}

    one = images(range(12), batch_size=1)
    for other in (images(range(11, -1, -1), batch_size=5), images(range(12), batch_size=4, num_workers=2)):
        assert all(torch.equal(one[index], other[index]) for index in range(12))
    assert len({found.numpy().tobytes() for found in one.values()}) == 12


# --- bad input ---


@pytest.mark.parametrize(
    ('kind', 'settings', 'words'),
    [
        ('Shift', dict(fraction=1.5), 'fraction = 1.5: expected a part of the side, from 0 to 1'),
        ('Shift', dict(fraction=0.5, direction='north'), "direction = 'north': expected one of right, left, down, up"),
        ('Shrink', dict(fraction=-0.1), 'fraction = -0.1'),
        ('Shrink', dict(fraction=0.1, interpolation='cubist'), "interpolation = 'cubist': expected one of nearest"),
        ('CalibrateReceptiveField', dict(ratio=0.0, size=8), 'ratio = 0.0'),
        ('CalibrateReceptiveField', dict(ratio=9.0, size=8), 'a resized side of a pixel'),
        ('GaussianNoise', dict(sigma=-1.0), 'sigma = -1.0: expected a number, at least 0'),
        ('GaussianNoise', dict(sigma=1.0, seed=-1), 'seed = -1'),
        ('ShotNoise', dict(photons=0), 'photons = 0: expected a number above 0'),
        ('Corruption', dict(name='rain', severity=1), "name = 'rain': expected one of gaussian_noise"),
        ('Corruption', dict(name='fog', severity=6), r'severity = 6: expected 0 \(the image as it is\) to 5'),
    ],
)
def test_wrong_settings_are_named(kind, settings, words):
    with pytest.raises(ValueError, match=words):
        change(kind, PHOTO, **settings)


def test_images_that_do_not_fit_are_named():
    with pytest.raises(ValueError, match='expected one value, or one for each of 3 channels'):
        change('Shift', PHOTO, fraction=0.5, fill=(1.0, 2.0))
    with pytest.raises(ValueError, match='the image is 8 x 56: expected 32 pixels a side'):
        change('Corruption', PHOTO[:8], name='fog', severity=1)
    with pytest.raises(ValueError, match='no sample_idx'):
        TRANSFORMS.build(dict(type='vitplug.GaussianNoise', sigma=1.0))(dict(img=PHOTO))
