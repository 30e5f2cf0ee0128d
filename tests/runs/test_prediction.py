"""tools/predict.py: the numbers of tools/test.py, pictures, and what becomes of inputs that cannot be used."""

import json
import pickle
from pathlib import Path

import bad_inputs
import cv2
import mmcv
import numpy as np
import pytest
from PIL import Image
from small_models import DETECTION, SEGMENTATION, save_untrained

from vitplug.runs.predict_command import find_files, predict

IN_THIS_PROCESS = 'test_dataloader.num_workers=0 test_dataloader.persistent_workers=False'


@pytest.fixture(autouse=True)
def _digits(digits, monkeypatch):
    monkeypatch.setenv('VITPLUG_DIGITS', str(digits))


def done(command, folder, status=0):
    return bad_inputs.run_to(status, command, folder)


def records_of(folder):
    return [json.loads(line) for line in (folder / 'predictions.jsonl').read_text().splitlines()]


def pictures_in(folder):
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob('*') if path.is_file())


@pytest.mark.integration
@pytest.mark.slow
def test_detection_has_the_objects_of_a_test(tmp_path, digits):
    save_untrained(DETECTION, tmp_path / 'a.pth')
    done(f'predict.py {DETECTION} a.pth {digits}/coco/val --out out', tmp_path)
    # The padding of a batch would reach the numbers.
    options = f'{IN_THIS_PROCESS} test_dataloader.batch_size=1'
    done(f'test.py {DETECTION} a.pth --work-dir work --out a.pkl --cfg-options {options}', tmp_path)
    expected = {
        sample['img_path']: sample['pred_instances'] for sample in pickle.loads((tmp_path / 'a.pkl').read_bytes())
    }
    records = records_of(tmp_path / 'out')
    assert {record['file'] for record in records} == set(expected)
    for record in records:
        wanted = expected[record['file']]
        assert record['labels'] == wanted['labels'].tolist() and len(record['labels']) > 0
        np.testing.assert_allclose(record['scores'], wanted['scores'], atol=1e-5)
        np.testing.assert_allclose(record['bboxes'], wanted['bboxes'], atol=1e-3)
        assert [mask['counts'] for mask in record['masks']] == [mask['counts'].decode() for mask in wanted['masks']]
    assert pictures_in(tmp_path / 'out/pictures') == sorted(Path(file).name for file in expected)


def video_of(path, colours, size=(24, 16)):
    writer = cv2.VideoWriter(str(path), cv2.VideoWriter_fourcc(*'mp4v'), 5, size)
    for colour in colours:
        writer.write(np.full((size[1], size[0], 3), colour, np.uint8))
    writer.release()


@pytest.mark.integration
@pytest.mark.slow
def test_segmentation_has_the_label_maps_of_a_test_and_takes_videos(tmp_path, digits):
    save_untrained(SEGMENTATION, tmp_path / 'a.pth')
    video_of(tmp_path / 'clip.mp4', [(0, 0, 0), (0, 250, 0), (0, 0, 250)], size=(64, 48))
    folder = digits / 'ade/images/validation'
    done(f'predict.py {SEGMENTATION} a.pth {folder} clip.mp4 --out out', tmp_path)
    done(f'test.py {SEGMENTATION} a.pth --work-dir work --out a.pkl --cfg-options {IN_THIS_PROCESS}', tmp_path)
    records = records_of(tmp_path / 'out')
    expected = pickle.loads((tmp_path / 'a.pkl').read_bytes())
    assert len(expected) == 3 and len(records) == 6
    for sample, record in zip(expected, records, strict=False):
        assert sample['img_path'] == record['file']
        labels = np.asarray(Image.open(tmp_path / 'out' / record['label_map']))
        assert np.array_equal(labels, sample['pred_sem_seg']['data'][0].numpy())
        assert len(np.unique(labels)) == len(record['shares']) and sum(record['shares'].values()) == pytest.approx(1)
    assert [(Path(r['file']).name, r['frame'], r['label_map']) for r in records[3:]] == [
        ('clip.mp4', i, f'labels/clip.mp4/{i:06}.png') for i in range(3)
    ]
    drawn = mmcv.VideoReader(str(tmp_path / 'out/pictures/clip.mp4'))
    frames = [drawn.read() for _ in range(3)]
    assert drawn.read() is None and drawn.fps == 5 and frames[0].shape == (48, 64, 3)
    # The second is green under its labels, the third red; OpenCV has blue first.
    assert (frames[1] - frames[0].astype(int)).mean((0, 1)).argmax() == 1
    assert (frames[2] - frames[0].astype(int)).mean((0, 1)).argmax() == 2


@pytest.mark.integration
def test_classification_has_the_scores_of_a_test(tmp_path):
    folder = bad_inputs.prepare(tmp_path / 'run')
    for i, name in enumerate(('cat/0', 'cat/1', 'dog/0', 'dog/1')):
        Image.new('RGB', (20, 16), (60 * i, 0, 250 - 60 * i)).save(folder / f'data/val/{name}.png')
    done('predict.py tiny.py good.pth data/val --out out', folder)
    done('test.py tiny.py good.pth --out a.pkl', folder)
    records = records_of(folder / 'out')
    expected = pickle.loads((folder / 'a.pkl').read_bytes())
    assert [record['file'] for record in records] == [sample['img_path'] for sample in expected]
    for record, sample in zip(records, expected, strict=True):
        scores = dict(zip(record['labels'], record['scores'], strict=True))
        assert [scores[label] for label in (0, 1)] == pytest.approx(sample['pred_score'].tolist(), abs=1e-6)
        assert record['names'] == [('cat', 'dog')[label] for label in record['labels']]
        assert record['scores'][0] >= record['scores'][1]
    again = done('predict.py tiny.py good.pth data/val --out out', folder, 2)
    assert 'holds the predictions.jsonl of another call' in again.err
    drawn = mmcv.imread(folder / 'out/pictures/dog/1.png', channel_order='rgb')
    assert drawn.shape == (384, 480, 3) and np.abs(drawn[-1, -1] - np.array([180, 0, 70])).max() < 3


@pytest.mark.integration
def test_the_rest_goes_on(tmp_path):
    """A broken image and a broken video are named."""
    folder = bad_inputs.prepare(tmp_path / 'run')
    (folder / 'data/val/cat/0.png').write_bytes(b'no image')
    (folder / 'clip.mp4').write_bytes(b'\0no video')
    (folder / 'data/val/dog/0.PNG').write_bytes((folder / 'data/val/dog/1.png').read_bytes())
    command = 'predict.py tiny.py good.pth data/val clip.mp4 data/train/cat/0.png data/train/dog/0.png'
    outcome = done(f'{command} --out out', folder, status=1)
    told = [line for line in outcome.err.splitlines() if line.startswith('cannot use')]
    assert len(told) == 2 and 'it is no video' in told[1]
    assert 'data/val/cat/0.png: AssertionError: failed to load' in told[0]
    assert '6 of 8 inputs done' in outcome.out
    files = [record['file'] for record in records_of(folder / 'out')]
    assert files == [
        *(f'data/val/{name}' for name in ('cat/1.png', 'dog/0.PNG', 'dog/0.png', 'dog/1.png')),
        *(f'data/train/{kind}/0.png' for kind in ('cat', 'dog')),
    ]
    names = ['0.png', '0_2.png', 'cat/1.png', 'dog/0.png', 'dog/0_2.png', 'dog/1.png']
    assert pictures_in(folder / 'out/pictures') == names


class Dots:
    """A predictor that cannot take dark pictures, and is interrupted at white ones."""

    def __call__(self, pictures):
        if pictures[0].max() < 9:
            raise RuntimeError('too dark')
        if pictures[0].min() > 240:
            raise KeyboardInterrupt
        return pictures

    def draw(self, pixels, result):
        return pixels

    def record(self, result, name, out):
        return {}

    def read(self, path):
        return mmcv.imread(path)


def test_what_cannot_be_predicted_is_named_and_videos_end_with_their_frames(tmp_path, capsys, monkeypatch):
    video_of(tmp_path / 'a.mp4', [(0, 250, 0), (0, 0, 0), (0, 0, 250)])
    Image.new('RGB', (20, 16)).save(tmp_path / 'b.png')
    video_of(tmp_path / 'c.mp4', [(0, 250, 0), (0, 0, 250), (255, 255, 255)])
    with pytest.raises(KeyboardInterrupt):
        predict(Dots(), find_files([str(tmp_path)]), tmp_path / 'out')
    for name, frames in dict(a=1, c=2).items():
        assert len(mmcv.VideoReader(str(tmp_path / f'out/pictures/{name}.mp4'))) == frames
    (tmp_path / 'c.mp4').unlink()
    monkeypatch.setattr(mmcv.VideoReader, 'frame_cnt', 9)  # of a file that was cut
    video_of(tmp_path / 'd.mp4', [(0, 250, 0)] * 2)
    assert predict(Dots(), find_files([str(tmp_path / 'd.mp4')]), tmp_path / 'cut') == 1
    assert 'only 2 of the 9 frames in its header can be read' in capsys.readouterr().err
    assert predict(Dots(), find_files([str(tmp_path / 'a.mp4'), str(tmp_path / 'b.png')]), tmp_path / 'again') == 2
    told = [line for line in capsys.readouterr().err.splitlines() if line.startswith('cannot use')]
    assert told[-2:] == [f'cannot use {tmp_path}/{name}: RuntimeError: too dark' for name in ('a.mp4', 'b.png')]


def test_files(tmp_path):
    for name in ('b.jpg', 'a/x.png', 'a/x.JPG', 'a/notes.txt', 'a/deep/clip.mp4', 'c/x.png'):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    found = find_files([str(tmp_path / name) for name in ('b.jpg', 'a', 'c/x.png')])
    assert {name: path.relative_to(tmp_path).as_posix() for name, path in found.items()} == {
        'b': 'b.jpg',
        'deep/clip': 'a/deep/clip.mp4',
        'x': 'a/x.JPG',
        'x_2': 'a/x.png',
        'x_3': 'c/x.png',
    }
