"""Edits of heads and tokens and their control."""

import pytest
import torch
from torch.testing import assert_close

from vitplug.attention import GlobalLayout, Site
from vitplug.lab.study.edits import random_control, zero

SITE = Site(GlobalLayout(2, 3, 1))


def heads():
    return torch.randn(2, 7, 3, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0))


def test_values_of_chosen_heads_and_tokens():
    x = heads()
    of_head, of_tokens = x.clone(), x.clone()
    of_head[:, :, 1], of_tokens[:, [0, 6]] = 0, 0
    assert_close(zero(heads=[1])(x, SITE), of_head)
    assert_close(zero(tokens=[0, 6])(x, SITE), of_tokens)


def test_control_is_as_large_and_elsewhere():
    x, edit = heads(), zero(heads=[1])
    change = random_control(edit, 5)(x, SITE) - x
    assert_close(change.norm(dim=-1), (edit(x, SITE) - x).norm(dim=-1))
    assert change[:, :, [0, 2]].eq(0).all()
    cosine = torch.cosine_similarity(change[:, :, 1].flatten(), -x[:, :, 1].flatten(), dim=0)
    assert abs(cosine) < 0.5
    assert torch.equal(change, random_control(edit, 5)(x, SITE) - x)
    assert not torch.equal(change, random_control(edit, 6)(x, SITE) - x)


@pytest.mark.parametrize(
    ('chosen', 'tensor'), [(dict(heads=[3]), heads()), (dict(tokens=[-1]), heads()), (dict(heads=[0]), heads()[..., 0])]
)
def test_heads_and_tokens_that_are_not_there_are_refused(chosen, tensor):
    with pytest.raises(ValueError, match=r'=\[-?\d\]: not in an intermediate \(2, 7, 3'):
        zero(**chosen)(tensor, SITE)
