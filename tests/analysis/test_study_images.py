"""The images of an analysis: which ones, and how they are read."""

from pathlib import Path

import bad_inputs
import numpy as np
import pytest
import torch
from mmengine.dataset import BaseDataset
from mmengine.registry import DATASETS
from PIL import Image
from torch.testing import assert_close

from vitplug.analysis.study.images import find_images, load_image
from vitplug.analysis.study.plan import identity
from vitplug.analysis.timm_models import TimmSubject
from vitplug.analysis.truths import find_listed
from vitplug.config.reading import read_config
from vitplug.files.picture_sources import Unreadable
from vitplug.runs.prediction import Predictor


@pytest.fixture(scope='module')
def folder(tmp_path_factory):
    return bad_inputs.prepare(tmp_path_factory.mktemp('images') / 'a')


@pytest.fixture
def cfg(folder, monkeypatch):
    monkeypatch.chdir(folder)
    return read_config('tiny.py')


def test_images_of_a_split_in_its_order(cfg):
    expected = [f'data/val/{kind}/{number}.png' for kind in ('cat', 'dog') for number in '01']
    assert [str(path) for path in find_images(cfg, 'val', 128)] == expected
    assert find_images(cfg, 'test', 4) == find_images(cfg, 'val', 4)


def test_evenly_spaced_and_the_same_every_time(cfg, tmp_path):
    for number in range(10):
        (tmp_path / f'deep/{number % 2}').mkdir(parents=True, exist_ok=True)
        (tmp_path / f'deep/{number % 2}/{number}.JPG').touch()
    (tmp_path / 'deep/notes.txt').touch()
    everything = find_images(cfg, tmp_path, 99)
    assert [path.stem for path in everything] == list('0246813579')
    assert find_images(cfg, tmp_path, 4) == [everything[index] for index in (0, 3, 6, 9)]
    assert find_images(cfg, tmp_path, 1) == everything[:1]
    assert find_images(cfg, everything[3], 5) == [everything[3]]


def test_refused_places(cfg, tmp_path):
    (tmp_path / 'notes.txt').touch()
    for where, num, error, reason in [
        ('val', 0, ValueError, '--num 0: expected at least 1'),
        (tmp_path, 5, FileNotFoundError, 'has no image in it'),
        (tmp_path / 'notes.txt', 5, ValueError, r'notes\.txt is no image'),
        (
            tmp_path / 'nowhere',
            5,
            FileNotFoundError,
            r'no such file or folder: .*nowhere; or .* val or test',
        ),
    ]:
        with pytest.raises(error, match=reason):
            find_images(cfg, where, num)
    cfg.val_dataloader = None
    with pytest.raises(ValueError, match=r'--images val: tiny\.py has no val_dataloader; .* one of test'):
        find_images(cfg, 'val', 5)


def test_an_image_is_read_as_a_test_reads_it(cfg, folder, tmp_path):
    predictor = Predictor(cfg, 'good.pth', device='cpu')
    path = Path('data/val/cat/0.png')
    image = load_image(predictor, path, max_pixels=10**6)
    assert_close(image.inputs, predictor.images([predictor.read(path)]))
    assert image.inputs.shape == (1, 3, *image.size) and image.path == path
    # Normalised by hand; the preprocessor of this config keeps blue first.
    back = (image.inputs[0] * 64 + 127.5).flip(0).permute(1, 2, 0)
    assert_close(back, torch.from_numpy(image.picture).float(), atol=1e-3, rtol=0)


def test_unreadable_images_are_named(cfg, folder, tmp_path):
    predictor = Predictor(cfg, 'good.pth', device='cpu')
    (tmp_path / 'a.png').write_text('no image')
    Image.fromarray(np.zeros((40, 40, 3), np.uint8)).save(tmp_path / 'b.png')
    for name, reason in (('a.png', ''), ('b.png', '1,600')):
        with pytest.raises(Unreadable, match=reason):
            load_image(predictor, tmp_path / name, 1000)


@DATASETS.register_module()
class InMemory(BaseDataset):
    """Images in memory, red first as mmpretrain's CIFAR10 has them, or grey as its MNIST."""

    def __init__(self, files, mode='RGB', key='img', **settings):
        self.files, self.mode, self.key = files, mode, key
        super().__init__(**settings)

    def load_data_list(self):
        return [
            {self.key: np.asarray(Image.open(file).convert(self.mode)), 'gt_label': number % 2}
            for number, file in enumerate(self.files)
        ]


def held(cfg, **settings):
    """The config with its validation images in memory."""
    files = [str(path) for path in find_images(cfg, 'val', 4)]
    pipeline = [step for step in cfg.val_dataloader.dataset.pipeline if step['type'] != 'LoadImageFromFile']
    cfg.val_dataloader.dataset = dict(type='InMemory', files=files, pipeline=pipeline, **settings)
    cfg.test_dataloader = cfg.val_dataloader
    return cfg


def test_images_in_memory_are_those_of_files(cfg):
    files = find_images(cfg, 'val', 4)
    of_files = Predictor(cfg, 'good.pth', device='cpu')
    cfg = held(cfg)
    images = find_images(cfg, 'val', 3)
    assert [str(image) for image in images] == ['val 00000', 'val 00002', 'val 00003']
    assert images == find_images(cfg, 'val', 3) and len(set(images)) == 3
    predictor = Predictor(cfg, 'good.pth', device='cpu')
    for image, file in zip(images, [files[index] for index in (0, 2, 3)], strict=True):
        loaded, expected = load_image(predictor, image, 10**6), load_image(of_files, file, 10**6)
        assert loaded.path == image and np.array_equal(loaded.picture, expected.picture)
        # The preprocessor keeps the order of the channels, which is that of the data.
        assert_close(loaded.inputs.flip(1), expected.inputs)
    assert [listed.info['gt_label'] for listed in find_listed(cfg, images).values()] == [0, 0, 1]
    assert identity([], images) == identity([], find_images(cfg, 'val', 3)) != identity([], images[:2])


def test_a_model_of_images_in_memory_reads_no_files(cfg):
    file = find_images(cfg, 'val', 1)[0]
    predictor = Predictor(held(cfg), 'good.pth', device='cpu')
    with pytest.raises(ValueError, match='pipeline: no LoadImageFromFile') as error:
        load_image(predictor, file, 10**6)
    assert not isinstance(error.value, Unreadable)  # of the config, not of this image


def test_grey_images_in_memory(cfg):
    [image] = find_images(held(cfg, mode='L'), 'val', 1)
    loaded = load_image(Predictor(cfg, 'good.pth', device='cpu'), image, 10**6)
    assert image.pixels.ndim == 2 and loaded.picture.shape == (*loaded.size, 3)
    # The preprocessor makes three channels of one.
    back = (loaded.inputs[0] * 64 + 127.5).permute(1, 2, 0)
    assert_close(back, torch.from_numpy(loaded.picture).float(), atol=1e-3, rtol=0)


@pytest.mark.parametrize('mode', ['RGB', 'L'])
def test_models_of_timm_take_images_in_memory(cfg, mode, tmp_path):
    pytest.importorskip('timm')
    subject = TimmSubject.read('baseline', 'test_vit', None, 'cpu')
    [image] = find_images(held(cfg, mode=mode), 'val', 1)
    Image.fromarray(image.pixels).save(tmp_path / 'same.png')
    loaded, expected = subject.load(image), subject.load(tmp_path / 'same.png')
    assert torch.equal(loaded.inputs, expected.inputs) and np.array_equal(loaded.picture, expected.picture)


def test_data_without_images_are_refused(cfg):
    with pytest.raises(ValueError, match=r'val_dataloader.dataset \(InMemory\) gives neither img_path nor img: name a'):
        find_images(held(cfg, key='pixels'), 'val', 1)
