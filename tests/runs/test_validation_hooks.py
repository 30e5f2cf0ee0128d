"""One batch of the validation before a training, and the loss of a classifier over its validation images."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from mmengine.config import Config
from mmengine.evaluator import Evaluator
from mmengine.logging import MessageHub
from mmengine.runner import LogProcessor
from mmpretrain.evaluation import Accuracy
from mmpretrain.structures import DataSample
from torch import nn
from torch.utils.data import DataLoader
from toy_training import ToyLoop

from vitplug.runs.hooks.validation import NAME, DryValidationHook, ValidationLossHook


class Model(nn.Module):
    """Notes the batches that it predicts."""

    def __init__(self, broken=False):
        super().__init__()
        self.batches, self.broken = [], broken

    def val_step(self, batch):
        if self.broken:
            raise RuntimeError('the head is broken')
        self.batches.append((batch['inputs'].shape, self.training, torch.is_grad_enabled()))


def dry_run(batch_size, iteration=0, broken=False):
    """The batches that are predicted of images of which the second half has other sizes."""
    images = [torch.zeros(3, 8, 8)] * 30 + [torch.zeros(3, 4, 16)] * 30
    loop = SimpleNamespace(dataloader=DataLoader([dict(inputs=image) for image in images], batch_size))
    runner = SimpleNamespace(model=Model(broken), iter=iteration, val_loop=loop)
    DryValidationHook().before_train(runner)
    return runner.model.batches


def test_batches_of_several_sizes_are_refused_before_the_training():
    """Before: the first validation crashed, after an epoch."""
    with pytest.raises(ValueError, match=r'val_dataloader\.batch_size = 4: .* several sizes .*: set it to 1'):
        dry_run(4)
    assert dry_run(1) == [((1, 3, 8, 8), False, False)]
    assert dry_run(4, iteration=1) == []  # a training that goes on


@pytest.mark.parametrize('batch_size', (1, 4))
def test_errors_of_a_head_are_no_matter_of_sizes(batch_size):
    with pytest.raises(RuntimeError, match='the head is broken'):
        dry_run(batch_size, broken=True)


def evaluated(samples, scope='mmpretrain'):
    evaluator = Evaluator([Accuracy(topk=(1,))])
    cfg = Config(dict(default_scope=scope))
    for _ in range(2):  # a training and a test
        ValidationLossHook().before_run(SimpleNamespace(cfg=cfg, _val_loop=ToyLoop(evaluator=evaluator), _test_loop={}))
    for batch in (samples[:3], samples[3:]):
        evaluator.process(batch)
    return evaluator.evaluate(len(samples))


def sample(scores, label):
    return DataSample().set_pred_score(torch.tensor(scores)).set_pred_label(int(np.argmax(scores))).set_gt_label(label)


def test_mean_over_images_not_batches():
    scores = np.random.default_rng(0).dirichlet(np.ones(4), 4).astype(np.float32)
    found = evaluated([sample(list(map(float, row)), i % 4) for i, row in enumerate(scores)])
    assert list(found) == ['accuracy/top1', NAME]
    assert found[NAME] == pytest.approx(-np.log(scores[np.arange(4), np.arange(4)].astype(float)).mean(), rel=1e-6)
    assert 80 < evaluated([sample([1.0, 0.0], 1)] * 4)[NAME] < 90


@pytest.mark.parametrize(
    ('scores', 'scope'), [([0.9, 0.8], 'mmpretrain'), ([2.0, -1.0], 'mmpretrain'), ([0.5, 0.5], 'mmdet')]
)
def test_scores_that_are_no_probabilities_and_other_tasks_have_none(scores, scope):
    assert list(evaluated([sample(scores, 0)] * 4, scope)) == ['accuracy/top1']


def test_the_log_has_the_loss_of_this_validation():
    """mmengine logs the mean of the last validations for names with "loss": 28.86, 26.45, 23.92 for these three."""
    hub, logged = MessageHub('logged_losses'), []
    loop = SimpleNamespace(dataloader=range(1))
    runner = SimpleNamespace(message_hub=hub, val_loop=loop, iter=1, epoch=1)
    runner._train_loop, runner.val_dataloader = {}, range(1)
    for value in (28.86, 24.04, 18.88):
        ValidationLossHook().before_val(runner)
        hub.update_scalar(f'val/{NAME}', value)
        tags, _ = LogProcessor(window_size=10).get_log_after_epoch(runner, 1, 'val')
        logged.append(tags[NAME])
    assert logged == [28.86, 24.04, 18.88]
