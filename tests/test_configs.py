"""Every config of a metafile builds its model, with as many parameters as the metafile says."""

from pathlib import Path

import pytest
import torch
import yaml
from mmengine.config import Config

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
