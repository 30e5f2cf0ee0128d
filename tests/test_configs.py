"""Every config of a metafile builds its model, with as many parameters as the metafile says."""

from pathlib import Path

import pytest
import torch
import yaml
from mmengine.config import Config
from mmseg.structures import SegDataSample

import vitplug.registry  # noqa: F401 - bases are found by name from here on
from vitplug.lab.costs import build_model

ROOT = Path(__file__).resolve().parents[1]
FILES = yaml.safe_load((ROOT / 'model-index.yml').read_text())['Import']
MODELS = [model for name in FILES for model in yaml.safe_load((ROOT / name).read_text())['Models']]


def test_metafiles_list_every_config_once():
    listed = [model['Config'] for model in MODELS]
    folders = {str(Path(name).parent) for name in FILES}
    there = [str(path.relative_to(ROOT)) for name in folders for path in (ROOT / name).glob('*.py')]
    assert sorted(listed) == sorted(there)


@pytest.mark.sampled(12)
@pytest.mark.parametrize('model', MODELS, ids=lambda model: model['Name'])
def test_parameters_are_those_of_the_metafile(model):
    cfg = Config.fromfile(ROOT / model['Config'])
    assert Path(model['Config']).stem == model['Name']
    with torch.device('meta'):
        built = build_model(cfg)
    assert sum(p.numel() for p in built.parameters()) == model['Metadata']['Parameters']


def test_maps_of_padded_images_lie_where_the_image_does():
    """240 rows are 17 patches of 14 and a seventh of one; the head tells the row of its token."""
    cfg = Config.fromfile(ROOT / 'configs/foundation/dinov2-s-p14_linear_1xb4-200i_camvid-224x224.py')
    model = build_model(cfg).to_empty(device='cpu')
    sample = SegDataSample(metainfo=dict(img_shape=(240, 320), ori_shape=(240, 320)))
    batch = dict(inputs=[torch.zeros(3, 240, 320, dtype=torch.uint8)], data_samples=[sample])
    model.decode_head.forward = lambda maps: torch.arange(18.0).view(18, 1).expand(1, 11, 18, 23)
    [found] = model.test_step(batch)
    assert found.seg_logits.data[0, 200, 0] == pytest.approx(200.5 / 14 - 0.5)
