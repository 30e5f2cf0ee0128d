"""The contract of a plugged backbone: every plug x every host x every clause."""

import copy
import io
import itertools
import re

import pytest
import torch
from cases import HOSTS as ATTENDING_HOSTS
from cases import PLUGS as PLUGS_OF_ALL_HOSTS
from cases import PREFIX_HOSTS, PREFIX_PLUGS, REFUSED, TOKEN_HOSTS, enlarge_scores, images, randomize

from vitplug.attention import fused_attention
from vitplug.attention.intermediates import MAPS
from vitplug.hosting import mark_padding
from vitplug.plugs.plug_set import CHANGES

SIZE = (32, 48)

HOSTS = ATTENDING_HOSTS | TOKEN_HOSTS
PLUGS = PLUGS_OF_ALL_HOSTS | PREFIX_PLUGS
ALL = [*itertools.product(HOSTS, PLUGS_OF_ALL_HOSTS), *itertools.product(PREFIX_HOSTS, PREFIX_PLUGS)]
PAIRS = [(host, plugs) for host, plugs in ALL if plugs not in REFUSED.get(host, ())]

pytestmark = pytest.mark.parametrize(('host', 'plugs'), PAIRS, ids=map('-'.join, PAIRS))


def build(host, plugs, **settings):
    model = HOSTS[host](plugs=copy.deepcopy(PLUGS[plugs]), **settings)
    return randomize(model).double().eval()


def images_for(model, height, width):
    """Images of a size, or of the only one that the host takes."""
    return images(*(model.fixed_size or (height, width)))


def with_maps(model):
    """Indices of the blocks that have attention maps."""
    return [index for index, block in enumerate(model.plugged_blocks()) if 'map' in block.sockets]


def loss_of(outs):
    """A scalar that every output element moves by another amount."""
    weights = [torch.linspace(-1, 2, out.numel(), dtype=out.dtype, device=out.device).view_as(out) for out in outs]
    return sum((out * weight).sum() for out, weight in zip(outs, weights, strict=True))


def gradients(model):
    found = {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}
    model.zero_grad()
    return found


def run_both_ways(model, x):
    outs = model(x)
    loss_of(outs).backward()
    return outs, gradients(model)


def assert_same(got, expected, tolerance=1e-10):
    torch.testing.assert_close(got, expected, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize('size', [(32, 32), (40, 56), (37, 51)], ids=str)
def test_fused_and_plain_are_twins(host, plugs, size):
    model = build(host, plugs)
    x = images_for(model, *size)
    fused = run_both_ways(model, x)
    with fused_attention(False):
        plain = run_both_ways(model, x)
    assert_same(fused, plain)


AVERAGING = ('ContextBroadcast', 'SqueezeExcite', 'BroadAttention', 'AttentionScale', 'ConditionalPosition')


def test_a_padded_batch(host, plugs, request):
    """Fused and plain are twins there. Of vitplug's plugs, only those that average over tokens heed its sizes."""
    # A few of the first image's rows, so that padding is left on the coarsest map, too.
    model, x, sizes = build(host, plugs), images(*SIZE), [(9, 48), SIZE]
    expected = model(x)
    outs = model(mark_padding(x, sizes))
    averages = any(plug['type'] in AVERAGING for plug in PLUGS[plugs])
    # With a class token, that is the whole context of a gate.
    heeds = averages and not (plugs == 'cb-gate' and model.prefix_names)
    if not request.config.getoption('--plug'):
        assert torch.equal(outs[-1], expected[-1]) != heeds
    with fused_attention(False):
        assert_same(model(x), outs)  # marked it still is


def test_checkpointing_changes_nothing(host, plugs):
    model, x = build(host, plugs).train(), images(*SIZE)
    plain = run_both_ways(model, x)
    for block in model.plugged_blocks():
        block.with_cp = True
    assert_same(run_both_ways(model, x), plain)


def test_every_parameter_gets_a_gradient(host, plugs):
    """What DDP asks for without ``find_unused_parameters``."""
    model = build(host, plugs).train()
    _, grads = run_both_ways(model, images(*SIZE))
    missing = {name for name, p in model.named_parameters() if p.requires_grad} - set(grads)
    assert not missing
    assert all(grad.isfinite().all() for grad in grads.values())


@pytest.mark.parametrize('dtype', [torch.bfloat16, torch.float16], ids=str)
def test_autocast_to_rounding(host, plugs, dtype):
    model, x = build(host, plugs), images(*SIZE)
    exact = model(x)
    model = model.float()
    with torch.autocast('cpu', dtype):
        rounded = model(x.float())
    for got, expected in zip(rounded, exact, strict=True):
        assert got.isfinite().all()
        error = (got - expected).abs().mean() / expected.abs().mean()
        assert 1e-5 < error < 16 * torch.finfo(dtype).eps


def test_huge_scores_stay_finite_in_half_precision(host, plugs):
    model = build(host, plugs).float()
    for index in with_maps(model):
        enlarge_scores(model.plugged_blocks()[index].attn, 1e4)
    x = images(*SIZE, dtype=torch.float32)
    with torch.autocast('cpu', torch.float16):
        outs = model(x)
        loss = loss_of([out.float() for out in outs])
    loss.backward()
    assert all(out.isfinite().all() for out in outs)
    assert all(grad.isfinite().all() for grad in gradients(model).values())


def test_frozen_stages(host, plugs):
    model = HOSTS[host](plugs=copy.deepcopy(PLUGS[plugs]), frozen_stages=1, drop_rate=0.5)
    assert model.train() is model
    first, last = model.plugged_blocks()[0], model.plugged_blocks()[-1]
    # The second of a Swin's two stages; of three of other hosts.
    frozen_last = len(model.sections()) == 2
    assert not any(p.requires_grad for p in first.parameters()) and not first.training
    assert all(p.requires_grad != frozen_last for p in last.parameters()) and last.training != frozen_last
    names = [name for name, _ in model.named_parameters() if '.' in name]
    embedding = [name for name in names if model.get_layer_depth(name)[0] == 0]
    assert embedding and not any(model.get_parameter(name).requires_grad for name in embedding)
    assert not any(model.get_submodule(name.rpartition('.')[0]).training for name in embedding)


def test_frozen_host_trains_its_plugs_alone(host, plugs):
    """With the outputs of the same backbone that learns, and no drop of the host's own."""
    settings = dict(plugs=copy.deepcopy(PLUGS[plugs]), drop_rate=0.5)
    model = HOSTS[host](**copy.deepcopy(settings), frozen='host')
    free = HOSTS[host](**settings)
    randomize(free)
    model.load_state_dict(free.state_dict())
    for step in range(3):
        trained = {name for name, p in model.named_parameters() if p.requires_grad}
        assert trained == {name for name, _ in model.named_parameters() if 'plugs' in name.split('.')}
        of_host = [m for name, m in model.named_modules() if 'plugs' not in name.split('.')]
        assert not any(module.training for module in of_host)
        assert all(block.plugs.training == (step < 2) for block in model.plugged_blocks())
        model.train(step == 0)
    x = images_for(model, *SIZE).float()
    for ours, theirs in zip(model(x), free.eval()(x), strict=True):
        torch.testing.assert_close(ours, theirs)  # without gradients, torch may choose other kernels


def test_every_parameter_has_a_depth(host, plugs):
    model = build(host, plugs)
    depths = {name: model.get_layer_depth(f'backbone.{name}', 'backbone.') for name, _ in model.named_parameters()}
    blocks = model.plugged_blocks()
    assert {num for _, num in depths.values()} == {len(blocks) + 2}
    names = {id(p): name for name, p in model.named_parameters()}
    for index, block in enumerate(blocks):
        assert {depths[names[id(p)]][0] for p in block.parameters()} == {index + 1}


def test_two_forwards_in_flight(host, plugs):
    model = build(host, plugs)
    first, second = images(*SIZE), images(*SIZE, seed=3)
    expected = [run_both_ways(model, x) for x in (first, second)]
    outs = [model(first), model(second)]
    for out, (expected_outs, expected_grads) in zip(outs, expected, strict=True):
        loss_of(out).backward()
        assert_same((out, gradients(model)), (expected_outs, expected_grads))


def test_deepcopy_is_independent(host, plugs):
    model, x = build(host, plugs), images(*SIZE)
    twin = copy.deepcopy(model)
    expected = model(x)
    assert_same(twin(x), expected)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1)
    assert_same(twin(x), expected)


def test_state_dict_round_trip(host, plugs):
    model, x = build(host, plugs), images(*SIZE)
    file = io.BytesIO()
    torch.save(model.state_dict(), file)
    file.seek(0)
    fresh = HOSTS[host](plugs=copy.deepcopy(PLUGS[plugs])).double().eval()
    fresh.load_state_dict(torch.load(file, weights_only=True))
    assert_same(fresh(x), model(x), 0)


def test_stock_checkpoint_lacks_only_plug_keys(host, plugs):
    missing, unexpected = build(host, plugs).load_state_dict(HOSTS[host](plugs=[]).state_dict(), strict=False)
    assert not unexpected
    assert all('plugs' in key.split('.') for key in missing)


def test_a_start_that_is_called_the_identity_is_one(host, plugs):
    plain, model = randomize(HOSTS[host](plugs=[])).eval(), HOSTS[host](plugs=copy.deepcopy(PLUGS[plugs])).eval()
    if CHANGES not in model.plug_summary:
        model.load_state_dict(plain.state_dict(), strict=False)
        x = images_for(model, *SIZE)
        assert_same(model.double()(x), plain.double()(x), 1e-6)


def test_what_windows_hide_acts_on_no_logits_that_they_show(host, plugs):
    """A plug that mixes pairs would take something from hidden ones."""
    model = build(host, plugs)
    with fused_attention(False):
        _, found = model.forward_intermediates(images(*SIZE), ('scores', 'logits', 'site'))
    for index, logits in found.get('logits', {}).items():
        mask = found['site'][index].softmax_mask()
        if mask is not None:
            hidden = (mask != 0).expand_as(logits)
            [grad] = torch.autograd.grad(logits[~hidden].sum(), found['scores'][index], retain_graph=True)
            assert not grad[hidden].any()


def test_input_size_may_change(host, plugs):
    model = build(host, plugs)
    if model.fixed_size:
        with pytest.raises(ValueError, match=re.escape(f'to {model.fixed_size}')):
            model(images(40, 56))
        return
    sizes = [(32, 32), (40, 56), (37, 51), (64, 32)]
    expected = [copy.deepcopy(model)(images(*size)) for size in sizes]
    for size, outs in itertools.chain(zip(sizes, expected, strict=True), zip(sizes[::-1], expected[::-1], strict=True)):
        assert_same(model(images(*size)), outs, 0)


def test_training_after_inference_mode(host, plugs):
    """Cached masks must not be inference tensors."""
    model = build(host, plugs)
    x = images_for(model, 64, 88)
    with torch.inference_mode():
        model(x)
    for fused in (True, False):
        with fused_attention(fused):
            loss_of(model(x)).backward()


def test_intermediates(host, plugs):
    model, x = build(host, plugs), images(*SIZE)
    names = (*MAPS, 'block', 'site')
    expected = model(x)
    outs, found = model.forward_intermediates(x, names)
    sites = found.pop('site')
    assert_same(outs, expected)
    with fused_attention(False):
        plain_outs, plain = model.forward_intermediates(x, names)
    assert_same(plain_outs, expected)
    del plain['site']
    assert_same(found, plain)
    assert list(found['block']) == list(range(len(model.plugged_blocks())))
    for name in ('scores', 'logits', 'probs', 'maps'):
        assert list(found.get(name, ())) == with_maps(model)
    for index in with_maps(model):
        probs, pairs = found['probs'][index], sites[index].pairs
        assert probs.shape[3:] == (pairs.queries.num_tokens, pairs.keys.num_tokens)
        plugged = model.plugged_blocks()[index].plugs
        if not plugged.at('extra_keys') and not plugged.at('normalise'):  # other keys, and other than the softmax
            assert_same(probs.sum(-1), torch.ones(probs.shape[:-1], dtype=probs.dtype))
            assert_same(probs, found['logits'][index].softmax(-1))
