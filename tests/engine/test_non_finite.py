"""A loss that is not finite spoils no weights, is recorded, and ends a training only when it stays."""

import json

import pytest
import torch
from mmengine.runner import Runner
from mmengine.structures import BaseDataElement, InstanceData, PixelData
from toy_training import final_state, toy_config

from vitplug.engine.hooks import NonFiniteLossHook
from vitplug.engine.hooks.non_finite import describe_samples
from vitplug.engine.stops import NonFiniteLoss

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
    optimizer.register_step_pre_hook(hook._skip_unless_finite)
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
    optimizer.register_step_pre_hook(hook._skip_unless_finite)
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
