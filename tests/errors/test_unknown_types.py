"""A type that is not registered is named with its setting and what it may be meant to be."""

import pytest
from mmengine.config import ConfigDict
from mmengine.registry import HOOKS, MODELS, DefaultScope

from vitplug.errors.unknown_types import explain, explained_types


def test_the_setting_and_close_names_are_given():
    cfg = ConfigDict(model=dict(backbone=dict(type='vitplug.SwinTransfomer')), other=['vitplug.SwinTransfomer'])
    text = explain(cfg, 'vitplug.SwinTransfomer', 'mmpretrain', 'model')
    assert text.startswith("model.backbone.type = 'vitplug.SwinTransfomer' is not in the mmpretrain::model registry")
    assert "did you mean 'vitplug.SwinTransformer'" in text


def test_names_of_the_own_library_stand_without_it():
    assert "did you mean 'LinearClsHead'" in explain(ConfigDict(), 'LinearClsHed', 'mmpretrain', 'model')


def test_without_a_close_name_the_way_to_a_class_of_your_own_is_given():
    assert explain(ConfigDict(), '(', None, 'runner').endswith('custom_imports = dict(imports=[...])')


@pytest.mark.parametrize(('registry', 'kind'), [(MODELS, 'model'), (HOOKS, 'hook')])
def test_what_mmengine_says_is_understood(registry, kind):
    cfg = ConfigDict(part=dict(type='Nothing'))
    with (
        DefaultScope.overwrite_default_scope('mmpretrain'),
        pytest.raises(ValueError, match=rf"part\.type = 'Nothing' is not in the mmpretrain::{kind} registry"),
        explained_types(cfg),
    ):
        registry.build(cfg.part)


def test_other_errors_stay():
    with pytest.raises(KeyError, match='x'), explained_types(ConfigDict()):
        raise KeyError('x')
    with pytest.raises(KeyError), explained_types(ConfigDict()):
        raise KeyError
