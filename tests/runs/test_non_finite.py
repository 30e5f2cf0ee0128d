"""A loss that is not finite spoils no weights, is named, and ends a training only when it stays."""

import logging
from functools import partial
from types import SimpleNamespace

import pytest
import torch
from mmengine.optim import AmpOptimWrapper
from mmengine.optim.optimizer import amp_optimizer_wrapper
from mmengine.registry import MODELS
from mmengine.runner import Runner
from toy_training import ToyModel, final_state, toy_config

from vitplug.errors import TrainingStopped
from vitplug.runs.hooks import NonFiniteLossHook

pytestmark = pytest.mark.integration


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


def test_single_ones_are_skipped_and_named(tmp_path):
    model = train(tmp_path, nan_at=[3, 4, 8], log_level='WARNING')
    assert all(parameter.isfinite().all() for parameter in model.parameters())
    steps = {int(state['step']) for state in final_state(tmp_path)['optimizer']['state'].values()}
    assert steps == {22 - 3}
    log = next(tmp_path.glob('*/*.log')).read_text()
    assert 'Step skipped: the gradients of iteration 4 are not finite (2 in a row): loss = nan, loss_ce = nan' in log


def test_several_in_a_row_stop_the_training(tmp_path):
    with pytest.raises(TrainingStopped, match=r'iteration 9 .*\(3 in a row\).*loss_ce = nan'):
        train(tmp_path, nan_at=[7, 8, 9])
    assert final_state(tmp_path)['position'][1] == 5


def test_numbers_are_not_read_from_the_device_in_a_finite_step(monkeypatch):
    """One flag a step, whatever the number of parameters and losses."""
    hook, read = NonFiniteLossHook(), []
    parameters = [torch.nn.Parameter(torch.ones(2)) for _ in range(5)]
    optimizer = torch.optim.SGD(parameters, lr=1.0)
    optimizer.register_step_pre_hook(hook.skip_unless_finite)
    for parameter in parameters:
        parameter.grad = torch.ones(2)
    original = torch.Tensor.__bool__
    monkeypatch.setattr(torch.Tensor, '__bool__', lambda self: read.append('bool') or original(self))
    monkeypatch.setattr(torch.Tensor, 'item', lambda self: read.append('item'))
    optimizer.step()
    wrapper = SimpleNamespace(should_update=lambda: True)
    hook.after_train_iter(
        SimpleNamespace(optim_wrapper=wrapper), 0, outputs={f'loss_{number}': torch.ones(()) for number in range(9)}
    )
    assert read == ['bool']


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


@pytest.mark.parametrize(
    'scale, steps, fused',
    [(1.0, 5, False), (dict(init_scale=4.0), 2 + 5, False), (dict(init_scale=4.0), 3 + 5, True)],
    ids=['fixed', 'dynamic', 'fused'],
)
def test_steps_that_a_loss_scaler_skips(scale, steps, fused, monkeypatch):
    """It calls only a fused optimizer; a dynamic scale is halved down to one first."""
    model = torch.nn.Sequential(torch.nn.BatchNorm1d(2), torch.nn.Linear(2, 1))
    monkeypatch.setattr(amp_optimizer_wrapper, 'is_cuda_available', lambda: True)
    monkeypatch.setattr(amp_optimizer_wrapper, 'GradScaler', partial(torch.amp.GradScaler, 'cpu'))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, fused=fused)
    wrapper = AmpOptimWrapper(optimizer=optimizer, dtype='bfloat16', loss_scale=scale)

    hook = NonFiniteLossHook()
    runner = SimpleNamespace(optim_wrapper=wrapper, model=model, iter=0, logger=logging.getLogger())
    hook.before_train(runner)

    def step(value):
        wrapper.update_params(model(torch.full((4, 2), value)).sum())
        hook.after_train_iter(runner, 0, {}, {})

    step(1.0)
    for _ in range(steps - 1):
        step(float('nan'))
    with pytest.raises(TrainingStopped, match='5 in a row'):
        step(float('nan'))
    assert model[0].running_mean.isfinite().all() and model[0].running_mean.any()
