"""Scores of a test: mmseg's and mmdet's metrics, hand-made labels, and what intervals are made of."""

import contextlib
import io
import json
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from mmdet.evaluation import CocoMetric
from mmdet.structures import DetDataSample
from mmengine.config import Config
from mmengine.structures import InstanceData, PixelData
from mmpretrain.structures import DataSample
from mmseg.evaluation import IoUMetric
from mmseg.structures import SegDataSample

from vitplug.robustness.results import mean_corruption_error
from vitplug.robustness.scores import (
    BoxScorer,
    ClassScorer,
    MapScorer,
    Truth,
    check_metric,
    estimates,
    mean_of,
    over_repeats,
)
from vitplug.robustness.suites import ALEXNET
from vitplug.statistics.images import exact, paired, student


def sample(label, scores, path='a.jpg'):
    found = DataSample(metainfo=dict(img_path=path)).set_gt_label(label)
    return found.set_pred_score(torch.tensor(scores))


# --- what is right in classification ---


def test_class_of_the_label():
    assert Truth().right(sample(1, [0.1, 0.9])) == 1 and Truth().right(sample(0, [0.1, 0.9])) == 0
    # Folders sorted as text: '0', '1', '10', '2'.
    truth = Truth(class_of=[0, 1, 10, 2])
    assert truth.right(sample(3, np.eye(11)[2].tolist())) == 1
    assert truth.right(sample(2, np.eye(11)[10].tolist())) == 1


def test_classes_of_a_part_compete_among_themselves():
    truth = Truth(among=[1, 3])
    assert truth.right(sample(3, [0.7, 0.1, 0.0, 0.2])) == 1
    assert truth.right(sample(1, [0.7, 0.1, 0.0, 0.2])) == 0
    assert np.isnan(truth.right(sample(0, [0.7, 0.1, 0.0, 0.2])))
    assert Truth(class_of=[1, 3], among=[1, 3]).right(sample(1, [0.7, 0.1, 0.0, 0.2])) == 1


def test_sets_of_labels():
    truth = Truth(sets={'a.jpg': [0, 2], 'b.jpg': []})
    assert truth.right(sample(1, [0.1, 0.2, 0.7], 'x/a.jpg')) == 1
    assert truth.right(sample(1, [0.1, 0.7, 0.2], 'x/a.jpg')) == 0
    assert np.isnan(truth.right(sample(1, [0.1, 0.7, 0.2], 'b.jpg')))


def test_images_that_do_not_count_are_left_out_of_the_mean():
    scorer = ClassScorer(None, None, Truth(among=[1, 3]))
    scorer.add([sample(label, [0.7, 0.1, 0.0, 0.2]) for label in (3, 1, 0, 3)])
    found = estimates([scorer.arrays()])['top-1']
    assert found.mean == pytest.approx(200 / 3) and found.n == 3


# --- maps and boxes, against the libraries' metrics ---


def column(library, **evaluator):
    return SimpleNamespace(library=library, cfg=Config(dict(test_evaluator=evaluator), filename=None))


def map_samples(count=20):
    generator = torch.Generator().manual_seed(0)
    for _ in range(count):
        truth = torch.randint(0, 3, (1, 6, 7), generator=generator)  # class 3 is nowhere
        guess = torch.where(torch.rand(1, 6, 7, generator=generator) < 0.6, truth, torch.zeros_like(truth))
        truth[0, 0, 0] = 255
        found = SegDataSample()
        found.gt_sem_seg, found.pred_sem_seg = PixelData(data=truth), PixelData(data=guess)
        yield found


def test_mean_iou_is_mmsegs_and_its_interval_the_jackknifes():
    data = SimpleNamespace(metainfo=dict(classes=tuple('abcd')))
    samples = list(map_samples())

    def mmsegs(chosen):
        metric = IoUMetric()
        metric.dataset_meta = data.metainfo
        metric.process({}, [one.to_dict() for one in chosen])
        return metric.compute_metrics(metric.results)['mIoU']

    scorer = MapScorer(column('mmseg', type='mmseg.IoUMetric'), data, Truth())
    for place in range(0, 20, 4):
        scorer.add(samples[place : place + 4])
    arrays = scorer.arrays()
    assert arrays['whole/mIoU'] == pytest.approx(mmsegs(samples), abs=0.0051)
    groups = np.array_split(np.arange(20), 16)
    for left_out, group in zip(arrays['left_out/mIoU'], groups, strict=True):
        assert left_out == pytest.approx(mmsegs([samples[i] for i in range(20) if i not in group]), abs=0.0051)
    found = estimates([arrays])['mIoU']
    error = np.sqrt(15 / 16 * ((arrays['left_out/mIoU'] - arrays['left_out/mIoU'].mean()) ** 2).sum())
    assert (found.high - found.low) / 2 == pytest.approx(2.131 * error, rel=1e-3) and found.n == 20


@pytest.fixture
def boxes(tmp_path):
    """Annotations of ten images, and predictions near them."""
    random = np.random.default_rng(0)
    images = [dict(id=10 + i, width=64, height=64, file_name=f'{i}.jpg') for i in range(10)]
    annotations, samples = [], []
    for image in images:
        corners = random.uniform(0, 40, (4, 2))
        found = np.concatenate([corners, corners + random.uniform(8, 20, (4, 2))], 1)
        labels = random.integers(0, 2, 4)
        for (x0, y0, x1, y1), label in zip(found, labels, strict=True):
            annotations.append(
                dict(
                    id=len(annotations) + 1, image_id=image['id'], category_id=int(label) + 1, iscrowd=0,
                    bbox=[x0, y0, x1 - x0, y1 - y0], area=(x1 - x0) * (y1 - y0),
                    segmentation=[[x0, y0, x1, y0, x1, y1, x0, y1]],
                )
            )  # fmt: skip
        moved = torch.as_tensor(found + random.normal(0, 1.5, found.shape), dtype=torch.float32)
        one = DetDataSample(metainfo=dict(img_id=image['id'], ori_shape=(64, 64)))
        masks = torch.zeros(4, 64, 64, dtype=torch.bool)
        for mask, (x0, y0, x1, y1) in zip(masks, moved.round().int().clamp(0, 64).tolist(), strict=True):
            mask[y0:y1, x0:x1] = True
        one.pred_instances = InstanceData(
            bboxes=moved, labels=torch.as_tensor(labels), scores=torch.as_tensor(random.uniform(size=4)), masks=masks
        )
        samples.append(one)
    categories = [dict(id=1, name='a'), dict(id=2, name='b')]
    path = tmp_path / 'boxes.json'
    path.write_text(json.dumps(dict(images=images, annotations=annotations, categories=categories)))
    return dict(type='mmdet.CocoMetric', ann_file=str(path), metric=['bbox', 'segm']), samples


def test_average_precision_is_mmdets_also_without_a_group(boxes):
    settings, samples = boxes
    data = SimpleNamespace(metainfo=dict(classes=('a', 'b')))

    def mmdets(chosen):
        with contextlib.redirect_stdout(io.StringIO()):
            metric = CocoMetric(**{key: value for key, value in settings.items() if key != 'type'})
            metric.dataset_meta = data.metainfo
            metric.img_ids = [one.img_id for one in chosen]
            metric.cat_ids = metric._coco_api.get_cat_ids(cat_names=['a', 'b'])
            metric.process({}, [one.to_dict() for one in chosen])
            found = metric.compute_metrics(metric.results)
        return [100 * found['bbox_mAP'], 100 * found['segm_mAP']]

    scorer = BoxScorer(column('mmdet', **settings), data, Truth())
    scorer.add(samples[:7])
    scorer.add(samples[7:])
    arrays = scorer.arrays()
    assert 5 < arrays['whole/bbox AP'] < 95
    assert [arrays['whole/bbox AP'], arrays['whole/segm AP']] == pytest.approx(mmdets(samples), abs=0.051)
    for left_out in (0, 9):
        expected = mmdets([one for index, one in enumerate(samples) if index != left_out])
        found = [arrays['left_out/bbox AP'][left_out], arrays['left_out/segm AP'][left_out]]
        assert found == pytest.approx(expected, abs=0.051)


def test_detector_that_finds_nothing_has_no_precision(boxes):
    settings, samples = boxes
    scorer = BoxScorer(column('mmdet', **settings), SimpleNamespace(metainfo=dict(classes=('a', 'b'))), Truth())
    for one in samples:
        one.pred_instances = one.pred_instances[:0]
    scorer.add(samples)
    assert scorer.arrays()['whole/bbox AP'] == 0 and scorer.arrays()['whole/segm AP'] == 0


def test_missing_metric_is_named():
    with pytest.raises(ValueError, match=r"test_evaluator has \['Other'\]: expected a IoUMetric"):
        check_metric(column('mmseg', type='Other'))
    with pytest.raises(ValueError, match='has no ann_file'):
        check_metric(column('mmdet', type='CocoMetric'))


# --- repeats and means ---


def test_repeats_are_averaged_and_have_an_interval_of_their_own():
    random = np.random.default_rng(0)
    repeats = [{'images/top-1': 100.0 * (random.uniform(size=40) < 0.7)} for _ in range(5)]
    wholes = [one['images/top-1'].mean() for one in repeats]
    found = estimates(repeats)['top-1']
    assert found.mean == pytest.approx(np.mean(wholes)) and found.n == 40
    over = over_repeats(repeats)['top-1']
    # CB's Table 12: 2.776 s / sqrt(5).
    assert (over.high - over.low) / 2 == pytest.approx(2.776 * np.std(wholes, ddof=1) / np.sqrt(5), rel=1e-3)


def test_mean_of_conditions_pairs_their_images():
    random = np.random.default_rng(0)
    parts = [student(random.normal(size=12)) for _ in range(3)]
    mean = mean_of(parts)
    assert mean.mean == pytest.approx(np.mean([part.mean for part in parts]))
    np.testing.assert_allclose(paired(mean, parts[0]).images, mean.images - parts[0].images)


def test_mean_corruption_error_of_alexnet_is_100_and_needs_the_15():
    alexnet = {name: exact({'': 100 - 100 * error})[''] for name, error in ALEXNET.items()}
    assert mean_corruption_error({name: [one] * 5 for name, one in alexnet.items()}).mean == pytest.approx(100)
    halved = {name: [exact({'': 100 - 50 * ALEXNET[name]})['']] * 5 for name in ALEXNET}
    assert mean_corruption_error(halved).mean == pytest.approx(50)
    with pytest.raises(ValueError, match='mCE is of'):
        mean_corruption_error({**halved, 'speckle_noise': halved['fog']})
