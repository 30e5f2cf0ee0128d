"""tools/predict.py: the numbers of tools/test.py, pictures, and what becomes of inputs that cannot be used."""

import json
import os
import pickle
import re
import signal
from collections import Counter
from pathlib import Path

import bad_inputs
import cv2
import mmcv
import numpy as np
import pytest
from mmengine.config import Config
from PIL import Image
from pycocotools.coco import COCO
from pycocotools.cocoeval import COCOeval
from small_models import DETECTION, SEGMENTATION, save_untrained

from vitplug.config.reading import read_config
from vitplug.files.picture_sources import Unreadable, find_sources, read_pictures
from vitplug.files.record_list import RecordList
from vitplug.runs.prediction import Predictor
from vitplug.tasks.predictions import known_ids

IN_THIS_PROCESS = 'test_dataloader.num_workers=0 test_dataloader.persistent_workers=False'


@pytest.fixture(autouse=True)
def _digits(digits, monkeypatch):
    monkeypatch.setenv('VITPLUG_DIGITS', str(digits))


def done(command, folder, status=0):
    return bad_inputs.run_to(status, command, folder)


def pictures_in(folder):
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob('*') if path.is_file())


@pytest.mark.integration
@pytest.mark.slow
def test_detection_has_the_map_of_a_test(tmp_path, digits):
    """The truth is made of the model's own objects, moved a little, since that of an untrained model has a mAP of 0."""
    save_untrained(DETECTION, tmp_path / 'a.pth')
    done(f'predict.py {DETECTION} a.pth {digits}/coco/val --out out --batch-size 2', tmp_path)
    found = {kind: json.loads((tmp_path / f'out/{kind}.json').read_text()) for kind in ('bbox', 'segm')}
    truth = json.loads((digits / 'coco/annotations/instances_val.json').read_text())
    truth['annotations'] = []
    for box, mask in list(zip(found['bbox'], found['segm'], strict=True))[::5]:
        left, top, width, height = box['bbox']
        truth['annotations'].append(
            dict(mask, id=len(truth['annotations']) + 1, bbox=[left + 1, top, width, height], area=width * height)
            | dict(iscrowd=0)
        )
    (tmp_path / 'truth.json').write_text(json.dumps(truth))
    # Batches as in the prediction: their padding reaches the numbers.
    options = f'{IN_THIS_PROCESS} test_dataloader.batch_size=2 test_dataloader.dataset.ann_file={tmp_path}/truth.json'
    done(
        f'test.py {DETECTION} a.pth --work-dir work --cfg-options {options} test_evaluator.ann_file=truth.json',
        tmp_path,
    )
    [metrics] = [json.loads(path.read_text()) for path in (tmp_path / 'work').glob('*/*.json')]
    for kind in ('bbox', 'segm'):
        coco = COCO(str(tmp_path / 'truth.json'))
        evaluation = COCOeval(coco, coco.loadRes(str(tmp_path / f'out/{kind}.json')), kind)
        evaluation.evaluate()
        evaluation.accumulate()
        evaluation.summarize()
        names = ('mAP', 'mAP_50', 'mAP_75', 'mAP_s', 'mAP_m')
        assert metrics['coco/bbox_mAP'] > 0.01
        for name, value in zip(names, evaluation.stats, strict=False):
            assert metrics[f'coco/{kind}_{name}'] == pytest.approx(round(value, 3), abs=1e-9), (kind, name)
    files = {image['id']: Path(image['file_name']).name for image in truth['images']}
    listed = json.loads((tmp_path / 'out/images.json').read_text())
    assert {image['id']: Path(image['file_name']).name for image in listed['images']} == files
    assert listed['categories'] == [dict(id=c['id'], name=c['name']) for c in truth['categories']]
    assert pictures_in(tmp_path / 'out/pictures') == sorted(files.values())


def video_of(path, colours, size=(24, 16), fourcc='mp4v'):
    writer = cv2.VideoWriter(str(path), cv2.VideoWriter_fourcc(*fourcc), 5, size)
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
    records = json.loads((tmp_path / 'out/predictions.json').read_text())
    expected = pickle.loads((tmp_path / 'a.pkl').read_bytes())
    assert len(expected) == 3 and len(records) == 6
    for sample, record in zip(expected, records, strict=False):
        assert sample['img_path'] == record['file']
        labels = np.asarray(Image.open(tmp_path / 'out' / record['label_map']))
        assert np.array_equal(labels, sample['pred_sem_seg']['data'][0].numpy())
        assert len(np.unique(labels)) == len(record['shares']) and sum(record['shares'].values()) == pytest.approx(1)
    assert [(Path(r['file']).name, r['frame'], r['label_map']) for r in records[3:]] == [
        ('clip.mp4', i, f'labels/clip/{i:06}.png') for i in range(3)
    ]
    drawn = mmcv.VideoReader(str(tmp_path / 'out/pictures/clip.mp4'))
    frames = [drawn.read() for _ in range(3)]
    assert drawn.read() is None and drawn.fps == 5 and frames[0].shape == (384, 512, 3)
    # The second is green under its labels, the third red; OpenCV has blue first.
    assert (frames[1] - frames[0].astype(int)).mean((0, 1)).argmax() == 1
    assert (frames[2] - frames[0].astype(int)).mean((0, 1)).argmax() == 2


@pytest.mark.integration
def test_classification_has_the_scores_of_a_test(tmp_path):
    folder = bad_inputs.prepare(tmp_path / 'run')
    for i, name in enumerate(('cat/0', 'cat/1', 'dog/0', 'dog/1')):
        Image.new('RGB', (20, 16), (60 * i, 0, 250 - 60 * i)).save(folder / f'data/val/{name}.png')
    done('predict.py tiny.py good.pth data/val --out out --batch-size 3', folder)
    done('test.py tiny.py good.pth --out a.pkl', folder)
    records = json.loads((folder / 'out/predictions.json').read_text())
    expected = pickle.loads((folder / 'a.pkl').read_bytes())
    assert [record['file'] for record in records] == [sample['img_path'] for sample in expected]
    for record, sample in zip(records, expected, strict=True):
        scores = {one['label']: one['score'] for one in record['top']}
        assert [scores[label] for label in (0, 1)] == pytest.approx(sample['pred_score'].tolist(), abs=1e-6)
        assert [one['name'] for one in record['top']] == [('cat', 'dog')[one['label']] for one in record['top']]
        assert record['top'][0]['score'] >= record['top'][1]['score']
    drawn = mmcv.imread(folder / 'out/pictures/dog/1.png', channel_order='rgb')
    assert drawn.shape == (384, 480, 3) and np.abs(drawn[-1, -1] - np.array([180, 0, 70])).max() < 3


@pytest.mark.integration
def test_the_rest_goes_on(tmp_path):
    """A broken image and a broken video are named; of a batch, too, only what cannot be used is left out."""
    folder = bad_inputs.prepare(tmp_path / 'run')
    (folder / 'data/val/cat/0.png').write_bytes(b'no image')
    (folder / 'clip.mp4').write_bytes(b'\0no video')
    (folder / 'data/val/dog/0.PNG').write_bytes((folder / 'data/val/dog/1.png').read_bytes())
    command = 'predict.py tiny.py good.pth data/val clip.mp4 data/train/cat/0.png data/train/dog/0.png'
    outcome = done(f'{command} --out out --batch-size 4', folder, status=65)
    told = [line for line in outcome.err.splitlines() if line.startswith('cannot use')]
    assert len(told) == 2 and 'data/val/cat/0.png: failed to load' in told[0] and 'clip.mp4: is no video' in told[1]
    assert '6 of 8 inputs done' in outcome.out
    files = [record['file'] for record in json.loads((folder / 'out/predictions.json').read_text())]
    assert files == [
        *(f'data/val/{name}' for name in ('cat/1.png', 'dog/0.PNG', 'dog/0.png', 'dog/1.png')),
        *(f'data/train/{kind}/0.png' for kind in ('cat', 'dog')),
    ]
    names = ['0.png', '0_2.png', 'cat/1.png', 'dog/0.png', 'dog/0_2.png', 'dog/1.png']
    assert pictures_in(folder / 'out/pictures') == names


@pytest.mark.integration
def test_a_picture_that_the_model_cannot_take(tmp_path):
    folder = bad_inputs.prepare(tmp_path / 'run')
    Image.new('RGB', (16, 4)).save(folder / 'data/val/cat/0.png')
    pipeline = "[dict(type='LoadImageFromFile'), dict(type='CenterCrop', crop_size=(16, 12)), dict(type='PackInputs')]"
    backbone = 'backbone=dict(img_size=(12, 16), patch_cfg=dict(padding=0), patch_size=8)'
    settings = f'model = dict({backbone})\ntest_dataloader = dict(dataset=dict(pipeline={pipeline}))'
    bad_inputs.child(settings)(folder)
    outcome = done('predict.py child.py good.pth data/val --out out --batch-size 4 --allow-changes', folder, status=65)
    assert 'cannot use data/val/cat/0.png: ValueError: image size (4, 16) is smaller than the patch' in outcome.err
    assert len(json.loads((folder / 'out/predictions.json').read_text())) == 3


def test_batches_of_the_predictor_are_the_backbones(tmp_path):
    folder = bad_inputs.prepare(tmp_path / 'run')
    with bad_inputs.own_process(folder):
        predictor = Predictor(read_config('tiny.py'), 'good.pth', 'cpu')
        picture = predictor.read('data/val/cat/0.png')
        images = predictor.images([picture, picture])
    expected = mmcv.imresize(mmcv.imread(folder / 'data/val/cat/0.png'), (16, 16)).transpose(2, 0, 1)
    assert images.shape == (2, 3, 16, 16)
    np.testing.assert_allclose(images[1].numpy(), (expected - 127.5) / 64, atol=1e-6)


def test_sources(tmp_path):
    for name in ('b.jpg', 'a/x.png', 'a/x.JPG', 'a/notes.txt', 'a/deep/clip.mp4', 'c/x.png'):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    found = find_sources([str(tmp_path / name) for name in ('b.jpg', 'a', 'a/x.png', 'c/x.png')])
    assert [source.name for source in found] == ['b', 'deep/clip', 'x', 'x_2', 'x_3']
    assert [source.is_video for source in found] == [False, True, False, False, False]


@pytest.mark.parametrize('order', [('v.mp4', 'v'), ('v', 'v.mp4'), ('.',)])
def test_frames_of_a_video_do_not_lie_among_other_results(tmp_path, order):
    (tmp_path / 'v/v').mkdir(parents=True)
    for name in ('v.mp4', 'v/v/000000.png', 'v/000000.png'):
        (tmp_path / name).touch()
    sources = find_sources([str(tmp_path / name) for name in order])
    assert len(sources) == 3
    [video] = [source.name for source in sources if source.is_video]
    assert not any(source.name.startswith(f'{video}/') for source in sources)


def test_text_is_no_video(tmp_path):
    """A playlist of a pipe would wait for ever."""
    os.mkfifo(tmp_path / 'pipe.ts')
    (tmp_path / 'list.mp4').write_text('#EXTM3U\n#EXTINF:1,é\npipe.ts\n#EXT-X-ENDLIST\n')
    (tmp_path / 'pipe.mp4').symlink_to('pipe.ts')
    for name, why in (('list.mp4', 'is a text'), ('pipe.mp4', 'is a pipe')):
        [source] = find_sources([str(tmp_path / name)])
        assert source.count() == 1
        with pytest.raises(Unreadable, match=why):
            list(read_pictures(source, None, 10**6))


@pytest.mark.integration
def test_videos_that_are_cut_or_of_odd_speed_do_not_end_the_others(tmp_path):
    folder = bad_inputs.prepare(tmp_path / 'run')
    noise = np.random.default_rng(0).integers(0, 255, (30, 3))
    video_of(folder / 'whole.avi', noise, fourcc='MJPG')
    data = (folder / 'whole.avi').read_bytes()
    (folder / 'cut.avi').write_bytes(data[: len(data) // 2])
    # Microseconds a frame, in the main header.
    (folder / 'fast.avi').write_bytes(data.replace((200_000).to_bytes(4, 'little'), (10).to_bytes(4, 'little'), 1))
    outcome = done('predict.py tiny.py good.pth fast.avi cut.avi whole.avi --out out', folder, status=65)
    assert '2 of 3 inputs done' in outcome.out
    [told] = [line for line in outcome.err.splitlines() if line.startswith('cannot use')]
    assert re.search(r'cut.avi: only \d+ of its 30 frames can be read', told)
    frames = Counter(record['file'] for record in json.loads((folder / 'out/predictions.json').read_text()))
    assert frames['whole.avi'] == frames['fast.avi'] == 30 > frames['cut.avi'] > 0


def test_speed_that_no_camera_has_is_not_written(tmp_path, monkeypatch):
    video_of(tmp_path / 'clip.mp4', [(0, 0, 0)] * 3)
    monkeypatch.setattr(mmcv.VideoReader, 'fps', 100_000.0)
    [source] = find_sources([str(tmp_path / 'clip.mp4')])
    assert {picture.fps for picture in read_pictures(source, None, 10**6)} == {25.0}


@pytest.mark.integration
def test_ctrl_c_finishes_the_files_and_says_what_is_missing(tmp_path, monkeypatch):
    folder = bad_inputs.prepare(tmp_path / 'run')
    draw, drawn = Predictor.draw, []

    def interrupted(self, picture, sample):
        drawn.append(picture)
        if len(drawn) == 2:
            signal.raise_signal(signal.SIGINT)
        return draw(self, picture, sample)

    monkeypatch.setattr(Predictor, 'draw', interrupted)
    outcome = done('predict.py tiny.py good.pth data/val --out out', folder, status=75)
    assert 'interrupted before data/val/dog/0.png: 2 of 4 inputs are done' in outcome.err
    records = json.loads((folder / 'out/predictions.json').read_text())
    assert [record['file'] for record in records] == ['data/val/cat/0.png', 'data/val/cat/1.png']
    assert pictures_in(folder / 'out') == ['pictures/cat/0.png', 'pictures/cat/1.png', 'predictions.json']


def test_records_are_in_a_file_before_the_end(tmp_path):
    records = RecordList(tmp_path / 'a.json', dict(categories=[]), 'images')
    records.add(dict(id=1))
    assert (tmp_path / 'a.jsonl').read_text() == '{"id": 1}\n'
    records.add(dict(id='two'))
    records.close()
    RecordList(tmp_path / 'b.json', optional=True).close()
    RecordList(tmp_path / 'c.json').close()
    assert json.loads((tmp_path / 'a.json').read_text()) == dict(categories=[], images=[dict(id=1), dict(id='two')])
    assert pictures_in(tmp_path) == ['a.json', 'c.json'] and (tmp_path / 'c.json').read_text() == '[]'


@pytest.mark.parametrize(
    ('categories', 'expected'),
    [
        ([(7, 'dog'), (9, 'bird'), (3, 'cat')], [3, 7]),  # by the model's classes, not by the file
        ([(7, 'dog'), (8, 'dog'), (3, 'cat')], [1, 2]),
        ([(7, 'dog')], [1, 2]),
    ],
)
def test_categories_follow_the_classes_of_the_model(tmp_path, categories, expected):
    images = [dict(id='first', file_name='a.png'), dict(id=4, file_name='b.png')]
    content = dict(images=images, categories=[dict(id=id, name=name) for id, name in categories])
    (tmp_path / 'a.json').write_text(json.dumps(content))
    cfg = Config(dict(test_dataloader=dict(dataset=dict(data_root=str(tmp_path), ann_file='a.json'))))
    ids, found = known_ids(cfg, ['cat', 'dog'])
    assert [one['id'] for one in found] == expected and [one['name'] for one in found] == ['cat', 'dog']
    assert sorted(map(str, ids.values())) == (['4', 'first'] if expected == [3, 7] else [])
