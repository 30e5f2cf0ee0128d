"""The ground truth of images that the data of a config list, placed as predictions are."""

import json

import mmcv
import numpy as np
import pytest
import torch
from mmengine.registry import MODELS, DefaultScope
from PIL import Image
from small_models import DETECTION, DIGITS, SEGMENTATION

from vitplug.config.reading import read_config
from vitplug.lab.microscope.truths import find_listed
from vitplug.runs.prediction import Predictor

pytestmark = pytest.mark.integration

CLASSIFICATION = DIGITS / 'vit-mini-p4_1xb32-14e_digits-32x32.py'


@pytest.fixture
def truth_of(digits, tmp_path, monkeypatch):
    """The truth of an image by the data of a config, and its size as the model gets it."""
    monkeypatch.setenv('VITPLUG_DIGITS', str(digits))

    def of(name, path):
        cfg = read_config(str(name))
        with DefaultScope.overwrite_default_scope(cfg.default_scope):
            model = MODELS.build(cfg.model)
        torch.save(dict(meta=dict(cfg=cfg.pretty_text), state_dict=model.state_dict()), tmp_path / 'model.pth')
        predictor = Predictor(cfg, tmp_path / 'model.pth', 'cpu')
        listed = find_listed(cfg, [path, tmp_path / 'elsewhere.png'])
        assert list(listed) == [path]
        pixels = predictor.read(path)
        [sample] = predictor([pixels])
        size = tuple(predictor.images([pixels]).shape[-2:])
        return predictor.task.truth(*listed[path], sample, size), size

    return of


def test_class(digits, truth_of):
    path = sorted((digits / 'imagenet/val').rglob('*.png'))[3]
    outcome, _ = truth_of(CLASSIFICATION, path)
    assert outcome.text and path.parent.name.endswith(outcome.text) and outcome.labels is None


def test_label_map(digits, truth_of):
    path = sorted((digits / 'ade/images/validation').iterdir())[1]
    outcome, size = truth_of(SEGMENTATION, path)
    labels = np.asarray(Image.open(digits / 'ade/annotations/validation' / f'{path.stem}.png'))
    placed = outcome.labels[outcome.labels[:, 0] != 255] if (outcome.labels == 255).all(1).any() else outcome.labels
    assert outcome.labels.shape == size
    expected = mmcv.imresize(labels, placed.shape[::-1], interpolation='nearest')
    assert (placed == expected).mean() == 1 and set(outcome.colours) == set(np.unique(labels).tolist())


def test_boxes_and_masks(digits, truth_of):
    content = json.loads((digits / 'coco/annotations/instances_val.json').read_text())
    image = content['images'][1]
    path = digits / 'coco/val' / image['file_name']
    outcome, size = truth_of(DETECTION, path)
    own = [annotation for annotation in content['annotations'] if annotation['image_id'] == image['id']]
    names = {category['id']: category['name'] for category in content['categories']}
    scale = min(128 / image['width'], 128 / image['height'])
    assert outcome.text.startswith(f'{len(own)} object') and outcome.labels.shape == size
    for (box, text, label), annotation in zip(outcome.boxes, own, strict=True):
        left, top, width, height = annotation['bbox']
        expected = np.array([left, top, left + width, top + height]) * scale
        assert box == pytest.approx(expected, abs=1.5) and text == names[annotation['category_id']]
        inside = outcome.labels[int(box[1]) : int(box[3]) + 1, int(box[0]) : int(box[2]) + 1]
        assert (inside == label).any()
