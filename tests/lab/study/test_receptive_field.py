"""The effective receptive field, against closed forms and against the definition written as a loop."""

from functools import partial

import pytest
import torch
from cases import HOSTS, TOKEN_HOSTS, lvt, mvit_with_class_token, randomize, t2t, vit
from torch.testing import assert_close

from vitplug.hosting import mark_padding
from vitplug.lab.study.measures.fields import centre_token, input_gradient, last_map


@pytest.fixture(autouse=True)
def _seed():
    torch.manual_seed(0)


def effective_receptive_field(model, images):
    """The mean over images."""
    features = partial(last_map, model)
    return torch.stack([input_gradient(features, image).mean(0).relu() for image in images]).mean(0)


def images(count, size=(32, 40), channels=3):
    return [torch.randn(1, channels, *size, dtype=torch.float64) for _ in range(count)]


def by_definition(features, batch, centre):
    """Steps 4 and 5 of the paper's recipe, channel by channel."""
    total = 0
    for image in batch:
        pixels = image.clone().requires_grad_()
        found = features(pixels)
        width = found.shape[1]
        value = sum(found[0, channel, centre[0], centre[1]] for channel in range(width)) / width
        value.backward()
        planes = [pixels.grad[0, channel] for channel in range(image.shape[1])]
        total = total + torch.clamp(sum(planes) / len(planes), min=0)
    return total / len(batch)


@pytest.mark.parametrize('side', [7, 14, 24, 32])
def test_central_token_is_that_of_the_papers_code(side):
    """Index ``n // 2 - (sqrt(n) // 2 + 1)`` where n is even, ``n // 2`` where it is odd."""
    tokens = side * side
    index = tokens // 2 if tokens % 2 else tokens // 2 - (side // 2 + 1)
    row, column = centre_token((side, side))
    assert row * side + column == index


@pytest.mark.parametrize('host', sorted({**HOSTS, **TOKEN_HOSTS}))
def test_every_host_against_the_definition(host):
    model = randomize({**HOSTS, **TOKEN_HOSTS}[host]()).double().eval()
    size = model.fixed_size or ((32, 48) if host == 'lvt' else (32, 40))
    batch, own = images(2, size), getattr(model, 'out_type', None)
    grid = last_map(model, batch[0]).shape[-2:]
    found = effective_receptive_field(model, batch)
    assert getattr(model, 'out_type', None) == own
    assert all(parameter.grad is None for parameter in model.parameters())
    expected = by_definition(lambda x: last_map(model, x), batch, ((grid[0] - 1) // 2, (grid[1] - 1) // 2))
    assert_close(found, expected, rtol=1e-9, atol=1e-14)
    assert found.max() > 1e-6


@pytest.mark.parametrize(
    ('build', 'own', 'other'),
    [
        (vit, 'featmap', 'cls_token'),
        (t2t, 'featmap', 'raw'),
        (lvt, 'featmap', 'avg_featmap'),
        (mvit_with_class_token, 'featmap', 'cls_token'),
    ],
)
def test_last_map_whatever_the_type_of_the_output(build, own, other):
    """The same weights give the same map, whichever output the model was built for."""
    last = dict(out_scales=[2]) if build is mvit_with_class_token else dict(out_indices=[len(build().sections()) - 1])
    maps = randomize(build(out_type=own, **last)).double().eval()
    pooled = build(out_type=other, **last).double().eval()
    state = maps.state_dict()
    if build is lvt:  # its norms have other names
        state = {key.replace('downstream_norms.2', 'norm'): value for key, value in state.items()}
    missing = pooled.load_state_dict(state, strict=False).missing_keys
    assert not [key for key in missing if not key.startswith(('ln2', 'cls_token', 'post_network'))]
    image = images(1, (32, 48))[0]
    assert_close(last_map(pooled, image), maps(image)[-1])
    assert pooled.out_type == other


def test_size_before_padding_counts():
    """The mask of padding reaches the plugs: a plug that averages over tokens leaves it out."""
    model = randomize(vit(plugs=[dict(type='ContextBroadcast')])).double().eval()
    whole = images(1)[0]
    padded = mark_padding(whole.clone(), [(16, 24)])
    expected = by_definition(lambda x: last_map(model, mark_padding(x, [(16, 24)])), [padded], (1, 2))
    assert_close(effective_receptive_field(model, [padded]), expected, rtol=1e-9, atol=1e-14)
    assert not torch.allclose(effective_receptive_field(model, [whole]), expected)
