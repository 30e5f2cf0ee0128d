"""Labels that would be read as others stop a training, and are named by the check of the data."""

from types import SimpleNamespace

import bad_inputs
import numpy as np
import pytest
from PIL import Image

from vitplug.runs.data.label_files import SampleFiles, WrongLabels
from vitplug.runs.data.stream import SkippingDataset

STORED = 'train_dataloader.dataset.pipeline.0.color_type=color_ignore_orientation'


def store(path, size, orientation):
    """An image whose EXIF data say how to turn it."""
    exif = Image.Exif()
    exif[0x0112] = orientation
    Image.new('RGB', size, (90, 30, 200)).save(path, exif=exif)


@pytest.mark.integration
@pytest.mark.parametrize(
    ('size', 'orientation', 'options', 'status', 'said'),
    [
        ((16, 20), 6, '', 0, ''),  # annotated as it is shown
        ((20, 16), 6, '', 65, 'coco/train/0.png: annotations on other pixels than those that are loaded'),
        ((20, 16), 6, STORED, 0, ''),
        ((16, 20), 6, STORED, 65, "set color_type='color' in the LoadImageFromFile"),
        ((20, 16), 3, '', 0, "color_type='color_ignore_orientation'"),
    ],
)
def test_boxes_lie_on_the_pixels_that_are_loaded(tmp_path, size, orientation, options, status, said):
    folder = bad_inputs.prepare(tmp_path / 'run')
    for number in '01':
        store(folder / f'coco/train/{number}.png', size, orientation)
    options = f'--cfg-options {options}' if options else ''
    outcome = bad_inputs.run(f'train.py mask.py {options}', folder)
    assert outcome.status == status, outcome.text[-2000:]
    assert said in outcome.text and ('color_type' in outcome.text) == bool(said)
    checked = bad_inputs.run(f'check_dataset.py mask.py --splits train {options}', folder)
    assert checked.status == bool(status) and ('color_type' in checked.out) == bool(said)


@pytest.mark.integration
@pytest.mark.parametrize(('size', 'orientation', 'wrong'), [((16, 20), 6, False), ((20, 16), 6, True)])
def test_label_maps_lie_on_the_pixels_that_are_loaded(tmp_path, size, orientation, wrong):
    """The label maps of the folder are 20 x 16."""
    folder = bad_inputs.prepare(tmp_path / 'run')
    store(folder / 'ade/images/0.png', size, orientation)
    outcome = bad_inputs.run('check_dataset.py segment.py --splits train', folder)
    assert outcome.status == wrong, outcome.text
    assert ('annotations on other pixels' in outcome.out) == wrong


@pytest.mark.parametrize(('label', 'wrong'), [(255, False), (256, True)])
def test_labels_are_not_cut_to_8_bits(tmp_path, label, wrong):
    Image.fromarray(np.full((16, 20), label, np.uint16)).save(tmp_path / 'map.png')
    Image.new('RGB', (20, 16)).save(tmp_path / 'image.png')
    loader = type('LoadAnnotations', (), {})()
    info = dict(img_path=str(tmp_path / 'image.png'), seg_map_path=str(tmp_path / 'map.png'))
    dataset = SimpleNamespace(get_data_info=lambda index: info, pipeline=SimpleNamespace(transforms=[loader]))
    files = SampleFiles(dataset, max_pixels=10**6)
    if not wrong:
        files.check(0)
        return
    with pytest.raises(WrongLabels, match='256'):
        files.check(0)


def test_wrong_labels_end_an_evaluation_that_leaves_bad_samples_out():
    class Dataset(list):
        def __getitem__(self, index):
            raise WrongLabels('a.png')

    noted = SimpleNamespace(note=lambda *args: pytest.fail('left out'))
    with pytest.raises(WrongLabels):
        SkippingDataset(Dataset([0]), noted)[0]
