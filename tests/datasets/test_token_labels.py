"""Token labels follow what augmentation does to an image, and files that are none are refused by name."""

import numpy as np
import pytest
import torch
from mmengine.dataset import Compose
from mmengine.registry import init_default_scope
from mmpretrain.registry import TRANSFORMS

from vitplug.datasets.token_labels import INSIDE, LABELS, PLACES, SAMPLES, Followed, read_token_labels

HEIGHT, WIDTH = 60, 90


@pytest.fixture(autouse=True)
def _scope():
    init_default_scope('mmpretrain')


@pytest.fixture
def labelled(tmp_path):
    """An image whose colours say where a pixel lies, and its file of token labels."""
    folder = tmp_path / 'cat'
    folder.mkdir()
    torch.save(torch.stack((torch.randn(5, 4, 6), torch.arange(120).view(5, 4, 6).float())), folder / '1.pt')
    y, x = np.mgrid[:HEIGHT, :WIDTH]
    img = np.stack((np.zeros_like(x), 2 * y, 2 * x), axis=-1).astype(np.uint8)
    return dict(img=img, img_path='train/cat/1.JPEG', gt_label=3), tmp_path


def load(root):
    return dict(type='vitplug.LoadTokenLabels', root=root)


GEOMETRY = {
    'crop': dict(type='vitplug.RandomResizedCrop', scale=(48, 64), interpolation='bilinear'),
    'flip': dict(type='vitplug.RandomFlip', prob=1.0, direction='horizontal'),
    'rotate': dict(type='vitplug.Rotate', angle=20.0, prob=1.0, interpolation='bilinear'),
    'shear': dict(type='vitplug.Shear', magnitude=0.3, prob=1.0, direction='vertical', interpolation='bilinear'),
    'move': dict(type='vitplug.Translate', magnitude=0.3, prob=1.0, interpolation='bilinear'),
}


@pytest.mark.parametrize('steps', [[name] for name in GEOMETRY] + [['crop', 'flip', 'rotate', 'shear', 'move']])
@pytest.mark.parametrize('seed', range(3))
def test_places_are_where_the_pixels_come_from(labelled, steps, seed):
    image, root = labelled
    np.random.seed(seed)
    out = Compose([load(root), *(GEOMETRY[name] for name in steps)])(image)
    assert out[PLACES].shape[:2] == out['img'].shape[:2]
    inside = np.abs(out[PLACES][..., 2] - INSIDE) < 0.5
    found_x = out[PLACES][..., 0] * WIDTH - 0.5
    found_y = out[PLACES][..., 1] * HEIGHT - 0.5
    # Colours are whole numbers, rounded after every step, and count half pixels.
    assert np.abs(out['img'][..., 2] / 2 - found_x)[inside].max() < 1.0
    assert np.abs(out['img'][..., 1] / 2 - found_y)[inside].max() < 1.0
    assert inside.mean() > 0.3
    if steps in (['rotate'], ['move'], ['shear']):
        assert (~inside).any()


def test_images_are_those_of_mmpretrains_transforms(labelled):
    """The labels' own draws leave the image, and what is drawn after it, as they would be without labels."""
    image, root = labelled
    policies = dict(policies='timm_increasing', num_policies=2, magnitude_level=9, magnitude_std=0.5)
    steps = [
        dict(type='RandomResizedCrop', scale=48, backend='pillow'),
        dict(type='RandomFlip', prob=0.5, direction='horizontal'),
        dict(type='RandAugment', **policies),
    ]
    ours = [{**step, 'type': f'vitplug.{step["type"]}'} for step in steps]
    for seed in range(12):
        np.random.seed(seed)
        wanted, wanted_draw = Compose(steps)(dict(image))['img'], np.random.rand()
        np.random.seed(seed)
        found, draw = Compose([load(root), *ours])(dict(image))['img'], np.random.rand()
        assert np.array_equal(found, wanted) and draw == wanted_draw


def test_geometric_operations_of_rand_augment_are_followed():
    built = TRANSFORMS.build(
        dict(type='vitplug.RandAugment', policies='timm_increasing', num_policies=2, magnitude_level=9)
    )
    moving = [t for t in built.transforms if type(t).__name__ in ('Rotate', 'Shear', 'Translate')]
    assert len(moving) >= 5 and all(isinstance(t, Followed) for t in moving)


def test_places_of_tokens_are_centres_of_quarters(labelled):
    image, root = labelled
    out = Compose([load(root), dict(type='vitplug.SampleTokenPlaces', size=(3, 5))])(image)
    places = out[PLACES]
    assert places.shape == (3 * SAMPLES, 5 * SAMPLES, 2)
    x, y = (2 * (torch.arange(n * SAMPLES) + 0.5) / (n * SAMPLES) - 1 for n in (5, 3))
    torch.testing.assert_close(places[..., 0], x.expand(6, 10), atol=1e-5, rtol=0)
    torch.testing.assert_close(places[..., 1], y[:, None].expand(6, 10), atol=1e-5, rtol=0)
    assert out[LABELS].shape == (2, 5, 4, 6)


def test_places_outside_of_the_image_are_nan(labelled):
    image, root = labelled
    move = dict(type='vitplug.Translate', magnitude=0.5, prob=1.0, random_negative_prob=0.0)
    places = Compose([load(root), move, dict(type='vitplug.SampleTokenPlaces', size=4)])(image)[PLACES]
    outside = places.isnan().any(dim=-1)
    assert outside.any() and not outside.all() and bool((outside == outside[:1]).all())


def test_transforms_that_move_pixels_alone_are_refused(labelled):
    image, root = labelled
    crop, sample = dict(type='RandomResizedCrop', scale=48), dict(type='vitplug.SampleTokenPlaces', size=4)
    late, early = r'in an image of \(48, 48\): .*vitplug.RandomResizedCrop', r'read as \(60, 90\): put LoadTokenLabels'
    for steps, words in (([load(root), crop, sample], late), ([crop, load(root)], early)):
        with pytest.raises(ValueError, match=words):
            Compose(steps)(dict(image, ori_shape=(HEIGHT, WIDTH)))


@pytest.mark.parametrize(
    ('content', 'words'),
    [
        (None, 'No such file .*1.pt'),
        (torch.zeros(3, 5, 4, 6), r'\(2, k, h, w\), not \(3, 5, 4, 6\)'),
        (torch.full((2, 5, 4, 6), float('nan')), 'finite scores'),
        (torch.full((2, 5, 4, 6), 0.5), 'classes from 0'),
        (torch.full((2, 5, 4, 6), -1.0), 'classes from 0'),
    ],
)
def test_files_that_are_no_token_labels_are_refused(tmp_path, content, words):
    path = tmp_path / '1.pt'
    if content is not None:
        torch.save(content, path)
    with pytest.raises((FileNotFoundError, ValueError), match=words):
        read_token_labels(path)
