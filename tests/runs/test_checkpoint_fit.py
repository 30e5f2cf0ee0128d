"""What of a checkpoint's settings and weights stops a training or a test, what is listed, and what is all right."""

import logging
from types import SimpleNamespace

import pytest
import torch
from cases import randomize, vit
from mmengine.config import Config
from mmengine.logging import MMLogger
from mmengine.registry import DefaultScope
from torch import nn

from vitplug.errors.stops import CheckpointNotRead
from vitplug.runs.saving.checkpoint_checks import check_checkpoint

CONFIG = dict(
    model=dict(
        type='ImageClassifier',
        backbone=dict(type='vitplug.VisionTransformer', arch='deit-tiny', img_size=32, drop_path_rate=0.1),
        head=dict(type='LinearClsHead', num_classes=2, loss=dict(type='CrossEntropyLoss')),
    ),
    optim_wrapper=dict(optimizer=dict(type='AdamW', lr=0.01)),
    train_dataloader=dict(batch_size=2, num_workers=2, dataset=dict(type='CustomDataset', data_root='a', pipeline=[])),
    test_dataloader=dict(batch_size=2, dataset=dict(pipeline=[])),
    param_scheduler=[dict(type='CosineAnnealingLR', T_max=10)],
    data_preprocessor=dict(num_classes=2, mean=[0.0, 0.0, 0.0], std=[1.0, 1.0, 1.0], to_rgb=True),
    train_cfg=dict(by_epoch=True, max_epochs=1),
    custom_hooks=[dict(type='EMAHook', momentum=0.1)],
    work_dir='a',
)
REFUSED, LISTED, IGNORED = 'refused', 'listed', 'ignored'
CHANGES = {
    # setting: another value, what a training that goes on makes of it, and what a test
    'model.backbone.arch': ('deit-small', REFUSED, REFUSED),
    'model.backbone.plugs': ([dict(type='ContextBroadcast')], REFUSED, REFUSED),
    'model.backbone.img_size': (64, REFUSED, LISTED),
    'model.backbone.drop_path_rate': (0.2, REFUSED, LISTED),
    'model.backbone.qkv_bias': (True, IGNORED, IGNORED),  # its default
    'model.backbone.with_cp': (True, IGNORED, IGNORED),
    'model.backbone.init_cfg': (dict(type='Pretrained', checkpoint='a.pth'), IGNORED, IGNORED),
    'model.head.type': ('VisionTransformerClsHead', REFUSED, REFUSED),
    'model.head.loss.type': ('LabelSmoothLoss', REFUSED, LISTED),
    'model.test_cfg': (dict(mode='slide'), LISTED, LISTED),
    'model.data_preprocessor': (dict(mean=[1, 2, 3]), REFUSED, REFUSED),
    'data_preprocessor.mean': ([1.0, 2.0, 3.0], REFUSED, REFUSED),
    'data_preprocessor.to_rgb': (False, REFUSED, REFUSED),
    'data_preprocessor.num_classes': (3, REFUSED, LISTED),
    'data_preprocessor.size_divisor': (32, REFUSED, LISTED),
    'data_preprocessor.pad_size_divisor': (32, REFUSED, LISTED),
    'data_preprocessor.batch_augments': (dict(augments=dict(type='Mixup')), REFUSED, LISTED),
    'optim_wrapper.optimizer.lr': (0.1, REFUSED, IGNORED),
    'optim_wrapper.clip_grad': (dict(max_norm=1), REFUSED, IGNORED),
    'train_dataloader.batch_size': (4, REFUSED, IGNORED),
    'train_dataloader.num_workers': (4, IGNORED, IGNORED),
    'train_dataloader.dataset.data_root': ('b', LISTED, IGNORED),
    'train_dataloader.dataset.pipeline': ([dict(type='RandomFlip')], REFUSED, IGNORED),
    'test_dataloader.dataset.pipeline': ([dict(type='Resize')], IGNORED, IGNORED),
    'param_scheduler': ([dict(type='CosineAnnealingLR', T_max=20)], LISTED, IGNORED),
    'train_cfg.max_epochs': (2, LISTED, IGNORED),
    'custom_hooks': ([], REFUSED, IGNORED),
    'work_dir': ('b', IGNORED, IGNORED),
}


def runner_of(model, resume, cfg=CONFIG):
    logger = logging.getLogger('test_checkpoint_fit')
    return SimpleNamespace(
        _load_from='x.pth', model=model, _resume=resume, _train_loop=None, cfg=Config(cfg), logger=logger
    )


def checkpoint_of(model, cfg=CONFIG, **content):
    meta = dict(epoch=1, iter=2, cfg=Config(cfg).pretty_text)
    return dict(dict(meta=meta, optimizer={}, message_hub={}, state_dict=model.state_dict()), **content)


def changed(setting, value):
    cfg = Config(CONFIG)
    cfg.merge_from_dict({setting: value})
    if setting == 'custom_hooks':
        cfg.custom_hooks = value
    return cfg.to_dict()


@pytest.fixture(autouse=True)
def _scope():
    with DefaultScope.overwrite_default_scope('mmpretrain'):
        yield


@pytest.mark.parametrize('resume', [True, False], ids=['resume', 'test'])
@pytest.mark.parametrize('setting', CHANGES)
def test_setting(setting, resume, caplog):
    value, on_resume, in_test = CHANGES[setting]
    expected = on_resume if resume else in_test
    model = nn.Linear(1, 1)
    runner, checkpoint = runner_of(model, resume), checkpoint_of(model, changed(setting, value))
    if expected is REFUSED:
        with pytest.raises(CheckpointNotRead, match=r'x\.pth was trained with other settings .*--allow-changes'):
            check_checkpoint(runner, checkpoint)
        check_checkpoint(runner, checkpoint, allow_changes=True)
    else:
        check_checkpoint(runner, checkpoint)
    assert ('other settings' in caplog.text) is (expected is not IGNORED)


@pytest.mark.parametrize('resume', [True, False], ids=['resume', 'test'])
def test_normalisation_counts_wherever_it_stands(resume, caplog):
    """mmengine takes the outermost data_preprocessor for a model without its own, and for no other."""
    model, outermost = nn.Linear(1, 1), CONFIG['data_preprocessor']
    inside = dict(CONFIG, data_preprocessor=None, model=dict(CONFIG['model'], data_preprocessor=outermost))
    unused = dict(inside, data_preprocessor=dict(outermost, to_rgb=False))
    for before, after in ((CONFIG, inside), (inside, CONFIG), (inside, unused), (unused, CONFIG)):
        check_checkpoint(runner_of(model, resume, after), checkpoint_of(model, before))
    assert 'other settings' not in caplog.text
    with pytest.raises(CheckpointNotRead, match=r'data_preprocessor\.to_rgb was True, is False'):
        check_checkpoint(runner_of(model, resume, dict(unused, model=CONFIG['model'])), checkpoint_of(model, inside))


def test_a_config_that_is_too_long_to_be_compared_is_said(caplog, monkeypatch):
    monkeypatch.setattr(MMLogger.get_current_instance(), 'handlers', [caplog.handler])
    model, long = nn.Linear(1, 1), checkpoint_of(nn.Linear(1, 1))
    names = [f'a class of a large data set, number {number}' for number in range(21_000)]
    long['meta']['cfg'] += f'\nmetainfo = dict(classes={names})\nmodel = dict(type="Other")'
    with pytest.raises(CheckpointNotRead, match=r"model\.type was 'Other'"):
        check_checkpoint(runner_of(model, resume=True), long)
    long['meta']['cfg'] += f'\nothers = {names * 10}'
    check_checkpoint(runner_of(model, resume=True), long)
    assert 'too long to be read' in caplog.text


def test_stock_checkpoint_can_be_tested(caplog):
    model = nn.Linear(1, 1)
    check_checkpoint(runner_of(model, resume=False), model.state_dict())
    assert 'holds no config' in caplog.text


class Model(nn.Module):
    def __init__(self, **settings):
        super().__init__()
        self.backbone = randomize(vit(**settings))


def test_plugs_of_the_checkpoint_that_the_model_lacks():
    checkpoint = checkpoint_of(Model(plugs=[dict(type='RelPosBias')]))
    with pytest.raises(CheckpointNotRead, match=r'4 weights for which .* backbone\.layers\.0\.plugs\.rel_pos_bias'):
        check_checkpoint(runner_of(Model(), resume=False), checkpoint)
    check_checkpoint(runner_of(Model(), resume=False), checkpoint, allow_changes=True)


def test_table_is_resized_for_a_test_but_not_for_a_training():
    """The optimizer's state would keep the old size."""
    checkpoint, model = checkpoint_of(Model(img_size=32)), Model(img_size=64)
    check_checkpoint(runner_of(model, resume=False), checkpoint)
    with pytest.raises(CheckpointNotRead, match=r'1 of its .* another shape, e\.g\. backbone\.pos_embed'):
        check_checkpoint(runner_of(model, resume=True), checkpoint, allow_changes=True)


def test_averages_of_another_shape():
    model = Model()
    averages = {f'module.{name}': value for name, value in Model(img_size=64).state_dict().items()}
    with pytest.raises(CheckpointNotRead, match=r'another shape, e\.g\. backbone\.pos_embed'):
        check_checkpoint(runner_of(model, resume=True), checkpoint_of(model, ema_state_dict=averages))
    averages = {f'module.{name}': value * torch.nan for name, value in model.state_dict().items()}
    with pytest.raises(CheckpointNotRead, match=r'x\.pth has .* not finite .*pos_embed'):
        check_checkpoint(runner_of(model, resume=True), checkpoint_of(model, ema_state_dict=averages))


ADAM, PLAIN_SGD = dict(betas=(0.9, 0.999)), dict(momentum=0)


@pytest.mark.parametrize(
    ('group', 'more', 'is_lost'),
    [
        (ADAM, {}, True),
        (dict(momentum=0.9), {}, True),
        (PLAIN_SGD, {}, False),
        (ADAM, dict(gradients={'weight': torch.ones(1)}), False),  # accumulation has made no step yet
        (ADAM, dict(message_hub=dict(runtime_info=dict(non_finite_in_a_row=2))), False),  # all steps were skipped
    ],
)
def test_optimizer_without_its_averages(group, more, is_lost):
    model = nn.Linear(1, 1)
    content = dict(optimizer=dict(state={}, param_groups=[group]), message_hub=dict(runtime_info={}))
    checkpoint = checkpoint_of(model, **content | more)
    if is_lost:
        with pytest.raises(CheckpointNotRead, match=r'x\.pth has an empty optimizer\.state after 2 iterations'):
            check_checkpoint(runner_of(model, resume=True), checkpoint)
    else:
        check_checkpoint(runner_of(model, resume=True), checkpoint)


@pytest.mark.parametrize('value', [torch.zeros(3), torch.zeros(()), torch.zeros(1, 8, 24), 'text', None])
def test_table_of_no_grid(value):
    state = Model().state_dict() | {'backbone.pos_embed': value}
    with pytest.raises(CheckpointNotRead, match=r'x\.pth does not fit'):
        check_checkpoint(runner_of(Model(), resume=False), dict(state_dict=state))


def test_infinity_in_a_mask_is_all_right():
    model = nn.BatchNorm1d(2)
    model.register_buffer('mask', torch.tensor([0.0, -torch.inf]))
    check_checkpoint(runner_of(model, resume=False), checkpoint_of(model))
    broken = model.state_dict() | {'running_var': torch.tensor([1.0, torch.nan])}
    with pytest.raises(CheckpointNotRead, match=r'x\.pth has .* not finite .*running_var'):
        check_checkpoint(runner_of(model, resume=False), dict(state_dict=broken))
