"""Valid tokens and masks of each sequence, for every plug: a batch gives what its sequences give one by one.

On a text-like host, whose softmax sees no padding; image hosts, whose softmax does, are in `backbones/test_padding.py`.
"""

import copy

import pytest
import torch
from attention_oracle import gradients
from cases import PLUGS, randomize
from text_host import TextHost, words
from torch import Tensor
from torch.testing import assert_close

from vitplug.attention import fused_attention
from vitplug.attention.layouts import MASKED

LENGTH, LENGTHS = 7, (7, 4, 2)
CASES = PLUGS | {
    'uniform': [dict(type='UniformHead')],
    'uniform-appended': [dict(type='UniformHead', mode='append')],
    'refiner-shared': [dict(type='Refiner', share=1, expansion=2)],
    'refiner-spatial': [dict(type='Refiner', constraint='spatial')],
}
#: Plugs to which the length of the padded sequence matters, and why.
LENGTH_MATTERS = {
    'gab-per-head-relative': "sigma is a share of the grid's width",
    'rel-pos-bias': 'the table is resized to the grid',
    'residual-low-memory-carried': 'the table of RelPosBias is resized to the grid',
    'refiner-mbconv': 'batch norms count padded pairs, give them values other than 0, which the convolution carries to '
    'their neighbours, and see maps times the number of tokens',
}

pytestmark = pytest.mark.parametrize('plugs', CASES)


def build(plugs: str, num_prefix: int = 1) -> TextHost:
    return randomize(TextHost(LENGTH, num_prefix, copy.deepcopy(CASES[plugs]))).double()


def valid_of(lengths) -> Tensor:
    """True for the tokens of each sequence, ``(B, N)``."""
    return torch.arange(LENGTH) < torch.tensor(lengths)[:, None]


def with_gradients(outs: list[Tensor], model, x: Tensor):
    return outs, gradients(outs, [x, *model.parameters()])


@pytest.mark.sampled(2)
@pytest.mark.parametrize('num_prefix', [0, 1])
def test_padding_at_the_end_changes_nothing(plugs, num_prefix):
    """Values and gradients; it does change those of the listed plugs."""
    lengths = (7, 4, 1) if plugs == 'locality' and not num_prefix else LENGTHS  # a token alone sees itself
    model, x, valid = build(plugs, num_prefix), words(3, LENGTH).requires_grad_(), valid_of(lengths)
    alone = with_gradients([model(x[b : b + 1, :n])[0] for b, n in enumerate(lengths)], model, x)
    for fused in (True, False):
        with fused_attention(fused):
            outs = model(x, valid)
        together = with_gradients([out[:n] for out, n in zip(outs, lengths, strict=True)], model, x)
        if plugs not in LENGTH_MATTERS:
            assert_close(together, alone, rtol=1e-9, atol=1e-9)
        else:
            assert not torch.allclose(torch.cat(together[0]), torch.cat(alone[0]), rtol=1e-9)


def test_what_the_padding_holds_changes_nothing(plugs):
    """Not for any plug, in training too; and nothing is learned of it."""
    model, valid = build(plugs), valid_of(LENGTHS)
    x = words(3, LENGTH).requires_grad_()
    other = x.detach().where(valid.unsqueeze(-1), words(3, LENGTH, seed=1)).requires_grad_()
    for mode in (True, False):
        model.train(mode)
        expected, got = (with_gradients([model(batch, valid)[valid]], model, batch) for batch in (x, other))
        assert_close(got, expected, rtol=1e-9, atol=1e-9)
        assert not got[1][0][~valid].any() and got[1][0][valid].any()


def test_a_mask_of_each_sequence(plugs):
    """A mask ``(B, 1, N, N)`` does what each sequence's own does; batch norms by statistics that were collected."""
    model, x = build(plugs).eval(), words(3, LENGTH).requires_grad_()
    hidden = torch.rand(3, 1, LENGTH, LENGTH, generator=torch.Generator().manual_seed(2)) < 0.4
    mask = (hidden & ~torch.eye(LENGTH, dtype=torch.bool)) * MASKED
    for fused in (True, False):
        with fused_attention(fused):
            together = with_gradients([model(x, mask_B1NN=mask)], model, x)
            one_by_one = [model(x[b : b + 1], mask_B1NN=mask[b : b + 1]) for b in range(3)]
            unmasked = model(x)
        assert_close(together, with_gradients([torch.cat(one_by_one)], model, x), rtol=1e-9, atol=1e-9)
        assert not torch.allclose(together[0][0], unmasked)


@pytest.mark.parametrize('dtype', [torch.float32, torch.float16], ids=str)
def test_a_sequence_of_padding_alone(plugs, dtype):
    """Its output is finite, and so are all gradients; the other sequence does not feel it."""
    model, valid = build(plugs).to(dtype).eval(), valid_of((0, 7))
    x, eps = words(2, LENGTH, dtype=dtype).requires_grad_(), torch.finfo(dtype).eps
    for fused in (True, False):
        with fused_attention(fused):
            (out,), grads = with_gradients([model(x, valid)], model, x)
            (own,) = model(x[1:])
        assert out.isfinite().all() and all(grad.isfinite().all() for grad in grads)
        assert_close(out[1], own, rtol=64 * eps, atol=64 * eps)
