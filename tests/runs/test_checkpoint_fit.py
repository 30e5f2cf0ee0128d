"""What of a checkpoint's settings and weights stops a training or a test, what is listed, and what is all right."""

from types import SimpleNamespace

import pytest
import torch
from cases import randomize, vit
from mmengine.config import Config
from mmengine.registry import DefaultScope
from torch import nn
from toy_training import ToyLoop

from vitplug.runs.checkpoint_fit import CheckpointFitHook

CONFIG = dict(
    model=dict(
        type='ImageClassifier',
        backbone=dict(type='vitplug.VisionTransformer', arch='deit-tiny', img_size=32, drop_path_rate=0.1),
        head=dict(type='LinearClsHead', num_classes=2, loss=dict(type='CrossEntropyLoss')),
    ),
    data_preprocessor=dict(num_classes=2, mean=[0.0, 0.0, 0.0], std=[1.0, 1.0, 1.0], to_rgb=True),
    work_dir='a',
)
# Settings: another value, and whether it is listed.
CHANGES = {
    'model.backbone.plugs': ([dict(type='ContextBroadcast')], True),
    'model.backbone.drop_path_rate': (0.2, False),
    'model.backbone.with_cp': (True, False),
    'model.head.loss.type': ('LabelSmoothLoss', False),
    'data_preprocessor.mean': ([1.0, 2.0, 3.0], True),
    'data_preprocessor.pad_size_divisor': (32, False),
    'work_dir': ('b', False),
}


def check_checkpoint(runner, checkpoint):
    CheckpointFitHook().after_load_checkpoint(runner, checkpoint)


def runner_of(model, resume, cfg=CONFIG):
    settings = dict(_load_from='x.pth', model=model, _resume=resume, _train_loop=None, cfg=Config(cfg), hooks=[])
    return SimpleNamespace(**settings)


def checkpoint_of(model, cfg=CONFIG, **content):
    meta = dict(epoch=1, iter=2, cfg=Config(cfg).pretty_text)
    return dict(dict(meta=meta, optimizer={}, message_hub={}, state_dict=model.state_dict()), **content)


def changed(setting, value):
    cfg = Config(CONFIG)
    cfg.merge_from_dict({setting: value})
    return cfg.to_dict()


@pytest.fixture(autouse=True)
def _scope():
    with DefaultScope.overwrite_default_scope('mmpretrain'):
        yield


def loop_over(*classes):
    return ToyLoop(dataloader=SimpleNamespace(dataset=SimpleNamespace(metainfo=dict(classes=classes))))


def test_classes_in_another_order_are_refused():
    model = nn.Linear(1, 1)
    checkpoint = checkpoint_of(model)
    checkpoint['meta']['dataset_meta'] = dict(classes=('cat', 'dog'))
    for classes in (('cat', 'dog'), ('Katze', 'Hund')):
        check_checkpoint(SimpleNamespace(**vars(runner_of(model, False)), _test_loop=loop_over(*classes)), checkpoint)
    runner = SimpleNamespace(**vars(runner_of(model, False)), _test_loop=loop_over('dog', 'cat'))
    with pytest.raises(ValueError, match=r"label 0 is 'dog' here and 'cat' in the training of x\.pth"):
        check_checkpoint(runner, checkpoint)


@pytest.mark.parametrize('setting', CHANGES)
def test_setting(setting, mm_log):
    value, is_listed = CHANGES[setting]
    model = nn.Linear(1, 1)
    check_checkpoint(runner_of(model, False), checkpoint_of(model, changed(setting, value)))
    said = f'x.pth was trained with other settings of the model than the config has: {setting}'
    assert (said in mm_log.text.replace('model.data_preprocessor', 'data_preprocessor')) == is_listed


def test_a_training_that_goes_on_lists_what_only_it_uses(mm_log):
    model = nn.Linear(1, 1)
    for setting in ('model.backbone.drop_path_rate', 'model.head.loss.type', 'model.backbone.with_cp'):
        cfg = changed(setting, CHANGES[setting][0])
        check_checkpoint(runner_of(model, resume=True), checkpoint_of(model, cfg))
        assert (f'{setting} was' in mm_log.text) == (setting != 'model.backbone.with_cp')


@pytest.mark.parametrize('resume', [True, False], ids=['resume', 'test'])
def test_normalisation_counts_wherever_it_stands(resume, mm_log):
    """mmengine takes the outermost data_preprocessor for a model without its own, and for no other."""
    model, outermost = nn.Linear(1, 1), CONFIG['data_preprocessor']
    inside = dict(CONFIG, data_preprocessor=None, model=dict(CONFIG['model'], data_preprocessor=outermost))
    unused = dict(inside, data_preprocessor=dict(outermost, to_rgb=False))
    for before, after in ((CONFIG, inside), (inside, CONFIG), (inside, unused), (unused, CONFIG)):
        check_checkpoint(runner_of(model, resume, after), checkpoint_of(model, before))
    assert 'other settings' not in mm_log.text
    check_checkpoint(runner_of(model, resume, dict(unused, model=CONFIG['model'])), checkpoint_of(model, inside))
    assert 'data_preprocessor.to_rgb was True, is False' in mm_log.text


def test_stock_checkpoint_can_be_tested_and_not_resumed(mm_log):
    model = nn.Linear(1, 1)
    check_checkpoint(runner_of(model, resume=False), model.state_dict())
    assert 'holds no config' in mm_log.text
    with pytest.raises(ValueError, match=r'x\.pth has no meta, optimizer, message_hub, so no training can go on'):
        check_checkpoint(runner_of(model, resume=True), dict(state_dict=model.state_dict()))


class Model(nn.Module):
    def __init__(self, **settings):
        super().__init__()
        self.backbone = randomize(vit(**settings))


def test_plugs_that_only_the_checkpoint_or_the_model_has():
    plain, plugged = Model(img_size=32), Model(img_size=32, plugs=[dict(type='RelPosBias')])
    for model, other, said in ((plain, plugged, '4 weights for which'), (plugged, plain, r'4 of its \d+')):
        with pytest.raises(ValueError, match=rf'{said} .* backbone\.layers\.0\.plugs\.rel_pos_bias'):
            check_checkpoint(runner_of(model, resume=False), checkpoint_of(other))


def test_table_is_resized_for_a_test_but_not_for_a_training():
    """The optimizer's state would keep the old size."""
    checkpoint, model = checkpoint_of(Model(img_size=32)), Model(img_size=64)
    check_checkpoint(runner_of(model, resume=False), checkpoint)
    with pytest.raises(ValueError, match=r'1 of its .* another shape, e\.g\. backbone\.pos_embed'):
        check_checkpoint(runner_of(model, resume=True), checkpoint)


@pytest.mark.parametrize('key', ['state_dict', 'ema_state_dict'])
def test_numbers_that_are_not_finite(key):
    """Of both kinds of weights of a training that goes on with averages."""
    model = nn.Sequential(nn.Linear(2, 2))
    broken = dict(model.state_dict(), **{'0.bias': torch.tensor([1.0, float('nan')])})
    with pytest.raises(ValueError, match=r'x.pth has numbers that are not finite .* 0.bias'):
        check_checkpoint(runner_of(model, True), checkpoint_of(model, **{key: broken}))


def test_a_training_with_averages_goes_on_with_averages():
    """Before: it went on from the averages, in silence, for mmengine saves them as the weights."""
    model = nn.Linear(1, 1)
    with pytest.raises(ValueError, match=r'x\.pth holds averages .*: add the EMAHook'):
        check_checkpoint(runner_of(model, True), checkpoint_of(model, ema_state_dict=model.state_dict()))
