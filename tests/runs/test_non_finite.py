"""A loss that is not finite spoils no weights, is recorded, and ends a training only when it stays."""

import json
import os
import signal
from pathlib import Path

import pytest
import torch
from mmengine.registry import MODELS
from mmengine.runner import Runner
from mmengine.structures import BaseDataElement, InstanceData, PixelData
from toy_training import ToyModel, final_state, toy_config

from vitplug.compat import register_step_pre_hook
from vitplug.errors.stops import Interrupted, NonFiniteLoss
from vitplug.runs.hooks import NonFiniteLossHook
from vitplug.runs.hooks.non_finite import describe_samples

pytestmark = pytest.mark.integration

ANY_SETTINGS = dict(type='vitplug.CheckpointFitHook', allow_changes=True)


def train(work_dir, nan_at, max_consecutive=3, **settings):
    cfg = toy_config(work_dir, 'iterations')
    cfg.merge_from_dict(
        {
            'train_dataloader.num_workers': 0,
            'train_dataloader.persistent_workers': False,
            'model.nan_at': nan_at,
            'default_hooks.non_finite.max_consecutive': max_consecutive,
            'val_cfg': None,
            'val_dataloader': None,
            'val_evaluator': None,
            'default_hooks.checkpoint.save_best': None,
            **settings,
        }
    )
    return Runner.from_cfg(cfg).train()


def records(work_dir):
    return [json.loads(line) for line in (work_dir / 'non_finite.jsonl').read_text().splitlines()]


def test_single_ones_are_skipped_and_recorded(tmp_path):
    model = train(tmp_path, nan_at=[3, 4, 8])
    assert all(parameter.isfinite().all() for parameter in model.parameters())
    assert [record['iteration'] for record in records(tmp_path)] == [3, 4, 8]
    assert all(record['losses']['loss_ce'] != record['losses']['loss_ce'] for record in records(tmp_path))
    steps = {int(state['step']) for state in final_state(tmp_path)['optimizer']['state'].values()}
    assert steps == {22 - 3}


def test_several_in_a_row_stop_the_training(tmp_path):
    with pytest.raises(NonFiniteLoss, match=r'iteration 9 .*\(3 in a row\).*loss_ce = nan.*non_finite\.jsonl'):
        train(tmp_path, nan_at=[7, 8, 9])
    assert len(records(tmp_path)) == 3
    assert final_state(tmp_path)['position'][1] == 5


def test_one_is_enough_where_asked_for(tmp_path):
    with pytest.raises(NonFiniteLoss, match='iteration 2 '):
        train(tmp_path, nan_at=[2], max_consecutive=1)


def test_records_of_an_earlier_run_stay(tmp_path):
    (tmp_path / 'non_finite.jsonl').write_text('{"iteration": 1}\n')
    train(tmp_path, nan_at=[5])
    assert [record['iteration'] for record in records(tmp_path)] == [1, 5]


def test_count_survives_a_resume(tmp_path):
    with pytest.raises(NonFiniteLoss):
        train(tmp_path, nan_at=[4, 5, 6])
    with pytest.raises(NonFiniteLoss, match=r'iteration 6 .*\(3 in a row\)'):
        # Its first iteration is the sixth.
        train(tmp_path, nan_at=[1], resume=True, custom_hooks=[ANY_SETTINGS])


# --- checkpoints of a training that diverges ---


def checkpoints(work_dir):
    return sorted((path.name for path in work_dir.glob('*.pth')), key=lambda name: int(name[5:-4]))


def last(work_dir):
    return Path((work_dir / 'last_checkpoint').read_text()).name


DIVERGED = {'max_consecutive': 100, 'default_hooks.checkpoint.interval': 2}


@pytest.mark.parametrize('kept', [1, 2])
def test_checkpoints_before_the_first_bad_iteration_stay(tmp_path, kept):
    """Also in a training that is resumed, and diverges again."""
    settings = {**DIVERGED, 'default_hooks.checkpoint.max_keep_ckpts': kept, 'custom_hooks': [ANY_SETTINGS]}
    good = ['iter_6.pth', 'iter_8.pth'][-kept:]
    for resume, nan_at in [(False, range(9, 23)), (True, range(1, 23))]:
        with pytest.raises(NonFiniteLoss, match=r'the last 14 iterations .*--resume goes on from .*iter_8\.pth'):
            train(tmp_path, nan_at=list(nan_at), resume=resume, **settings)
        assert checkpoints(tmp_path) == [*good, 'iter_22.pth'] and last(tmp_path) == 'iter_8.pth'
    train(tmp_path, nan_at=[], resume=True, **settings)
    assert checkpoints(tmp_path) == ['iter_20.pth', 'iter_22.pth'][-kept:] and last(tmp_path) == 'iter_22.pth'


def test_weights_that_are_not_finite_replace_no_others(tmp_path, monkeypatch):
    """As in a config without the hook that would have skipped the steps."""
    for name in ('before_train', 'after_train_iter'):
        monkeypatch.setattr(NonFiniteLossHook, name, lambda *_, **__: None)
    train(tmp_path, nan_at=[9], **DIVERGED)
    assert checkpoints(tmp_path) == ['iter_6.pth', 'iter_8.pth', 'iter_22.pth'] and last(tmp_path) == 'iter_8.pth'
    weights = [torch.load(tmp_path / name, weights_only=False)['state_dict'] for name in checkpoints(tmp_path)]
    assert [all(value.isfinite().all() for value in state.values()) for state in weights] == [True, True, False]


def test_training_goes_on_counting_after_a_bad_iteration(tmp_path):
    train(tmp_path, nan_at=[8], **DIVERGED)
    assert checkpoints(tmp_path) == ['iter_20.pth', 'iter_22.pth'] and last(tmp_path) == 'iter_22.pth'


def test_signal_after_a_bad_iteration_resumes_before_it(tmp_path):
    """The state is saved, but only the one before is known to be good."""

    def train_until_signal():
        train(tmp_path, nan_at=[9], **DIVERGED, **{'model.signal_at': 9, 'model.type': 'SignallingModel'})

    with pytest.raises(Interrupted, match=r'after iteration 9 and saved: --resume goes on from .*iter_8\.pth'):
        train_until_signal()
    assert (tmp_path / 'interrupted.pth').is_file() and last(tmp_path) == 'iter_8.pth'


def test_last_iteration_must_be_finite(tmp_path):
    with pytest.raises(NonFiniteLoss, match=r'the last 1 iterations had no finite loss'):
        train(tmp_path, nan_at=[22])


@MODELS.register_module()
class SignallingModel(ToyModel):
    """Gets a signal in an iteration."""

    def __init__(self, signal_at, **settings):
        super().__init__(**settings)
        self.signal_at = signal_at

    def forward(self, *args, **kwargs):
        if self.iteration + 1 == self.signal_at:
            os.kill(os.getpid(), signal.SIGTERM)
        return super().forward(*args, **kwargs)


@MODELS.register_module()
class NanModel(ToyModel):
    """Computes nothing but NaN in the iterations of `nan_at`, running statistics included."""

    def forward(self, inputs, label, index, mode='tensor'):
        bad = mode == 'loss' and self.iteration + 1 in self.nan_at
        return super().forward(inputs * float('nan') if bad else inputs, label, index, mode)


def test_running_statistics_are_not_spoiled(tmp_path):
    model = train(tmp_path, nan_at=[4, 9], **{'model.type': 'NanModel'})
    norm = model.layers[1]
    assert norm.running_mean.isfinite().all() and norm.running_var.isfinite().all() and norm.running_mean.any()


CLIPS = {
    'none': lambda parameters: None,
    'norm': lambda parameters: torch.nn.utils.clip_grad_norm_(parameters, 1.0),
    'value': lambda parameters: torch.nn.utils.clip_grad_value_(parameters, 1.0),
}
NAN, INF, LARGEST = float('nan'), float('inf'), torch.finfo(torch.float32).max


# Clipping by norm turns an infinity into no number, and the largest number, whose norm is infinite, into zero.
@pytest.mark.parametrize(
    ('gradient', 'clip', 'skipped'),
    [
        (NAN, 'none', True), (INF, 'none', True), (-INF, 'none', True), (LARGEST, 'none', True),
        (NAN, 'norm', True), (INF, 'norm', True), (-INF, 'norm', True), (LARGEST, 'norm', False),
        (NAN, 'value', True), (INF, 'value', False), (-INF, 'value', False), (LARGEST, 'value', False),
    ],
)  # fmt: skip
def test_gradients_at_the_edges(gradient, clip, skipped):
    hook = NonFiniteLossHook()
    parameter = torch.nn.Parameter(torch.ones(4))
    optimizer = torch.optim.AdamW([parameter], lr=0.1)
    register_step_pre_hook(optimizer, hook._skip_unless_finite)
    parameter.grad = torch.tensor([1.0, gradient, 1.0, 1.0])
    CLIPS[clip]([parameter])
    optimizer.step()
    assert parameter.isfinite().all()
    assert hook.skipped == skipped
    assert torch.equal(parameter, torch.ones(4)) == skipped


@pytest.mark.parametrize('gradient', [1e-30, 1.0, 1e15])
def test_finite_gradients_step(gradient):
    hook = NonFiniteLossHook()
    parameter = torch.nn.Parameter(torch.ones(4))
    optimizer = torch.optim.SGD([parameter], lr=1.0)
    register_step_pre_hook(optimizer, hook._skip_unless_finite)
    parameter.grad = torch.full((4,), gradient)
    optimizer.step()
    assert not hook.skipped and torch.equal(parameter, torch.ones(4) - gradient)


def test_samples_are_described_for_every_task():
    meta = dict(img_path='a.png', ori_shape=(3, 4))
    classification = BaseDataElement(metainfo=meta, gt_label=torch.tensor([2]))
    segmentation = BaseDataElement(metainfo=meta, gt_sem_seg=PixelData(data=torch.tensor([[[0, 7], [7, 255]]])))
    detection = BaseDataElement(metainfo=meta, gt_instances=InstanceData(labels=torch.tensor([1, 1])))
    described = list(describe_samples(dict(data_samples=[classification, segmentation, detection])))
    assert [sample['img_path'] for sample in described] == ['a.png'] * 3
    assert described[0]['gt_label'] == [2]
    assert described[1]['gt_sem_seg'] == [0, 7, 255]
    assert described[2]['gt_instances'] == [1, 1]


def test_limit_must_be_positive():
    with pytest.raises(ValueError, match='max_consecutive = 0: must be at least 1'):
        NonFiniteLossHook(max_consecutive=0)
