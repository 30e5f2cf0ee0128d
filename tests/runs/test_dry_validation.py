"""A batch of the validation is predicted before the first step, of the images that differ most."""

from types import SimpleNamespace

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader

from vitplug.runs.hooks.dry_validation import DryValidationHook, different

SIZES = [(8, 8)] * 30 + [(4, 16)] + [(8, 8)] * 30


class Images:
    """Of several sizes."""

    def __len__(self):
        return len(SIZES)

    def get_data_info(self, index):
        return dict(zip(('width', 'height'), SIZES[index], strict=True))

    def __getitem__(self, index):
        return torch.zeros(3, *SIZES[index])


class Model(nn.Module):
    """Notes the batches that it predicts."""

    def __init__(self):
        super().__init__()
        self.batches = []

    def val_step(self, batch):
        self.batches.append((batch.shape, self.training, torch.is_grad_enabled()))


def runner(batch_size):
    loader = DataLoader(Images(), batch_size)
    return SimpleNamespace(model=Model(), iter=0, val_loop=SimpleNamespace(dataloader=loader))


def test_batches_of_several_sizes_are_refused_before_the_training():
    """Before: the first validation crashed, after an epoch."""
    with pytest.raises(ValueError, match=r'val_dataloader\.batch_size = 4: a batch of images of several .*set it to 1'):
        DryValidationHook().before_train(runner(4))
    remedied = runner(1)
    DryValidationHook().before_train(remedied)
    assert remedied.model.batches == [((1, 3, 8, 8), False, False)]


def test_images_that_differ_most_are_chosen():
    assert 30 in different(Images(), 2) and len(different(Images(), 8)) == 8
    assert different([1, 2, 3], 2) == [0, 1]


def test_a_training_that_goes_on_is_left_alone():
    resumed = runner(4)
    resumed.iter = 1
    DryValidationHook().before_train(resumed)
    assert resumed.model.batches == []
