"""LocAt against its equations pair by pair, against the authors' numbers for its constants, and timm's pooling."""

import math

import pytest
import torch
from attention_oracle import assert_same, gradients, places
from cases import images, pit, randomize, swin, vit
from timm.layers import AttentionPoolPrr
from torch.testing import assert_close

from vitplug.attention import fused_attention
from vitplug.plugs.locat import ChosenGaussian

HOSTS = {'vit': vit, 'swin': swin, 'pit': pit}


def gaussian(part, q, queries, keys, added=0.0, farthest=math.inf):
    """The bias ``(B, W, H, Nq, Nk)``, pair by pair, in tokens of the finer grid."""
    finest = [max(sides) for sides in zip((queries.height, queries.width), (keys.height, keys.width), strict=True)]
    c = max(part.grid) ** 2
    rows = []
    for i, query in enumerate(places(queries)):
        x = q[..., i, :] @ part.variance.weight.T + part.variance.bias - (math.log(c - 1) if c > 2 else 0)
        var = c / (1 + (-x).exp()) * min(finest) / min(part.grid)
        alpha = (1 + (q[..., i, :] @ part.height.weight[0] + part.height.bias).exp()).log()
        row = []
        for key in places(keys):
            if query is None or key is None:
                row.append(torch.zeros_like(alpha))
                continue
            exponent = 0
            for axis, (of_q, of_k) in enumerate(((queries.height, keys.height), (queries.width, keys.width))):
                side = finest[axis]
                d = (query[axis] + 0.5) * side / of_q - (key[axis] + 0.5) * side / of_k
                exponent = exponent + min(d * d, farthest) / (var[..., axis] + added)
            row.append(alpha * (-exponent / 2).exp())
        rows.append(torch.stack(row, -1))
    return torch.stack(rows, -2)


@pytest.mark.parametrize('size', [(32, 32), (48, 40)], ids=str)
@pytest.mark.parametrize('host', HOSTS)
def test_bias_is_its_equation(host, size):
    """With class and pooled tokens, in shifted windows, at another grid than the configured one."""
    model = randomize(HOSTS[host](plugs='gaug')).double()
    _, found = model.forward_intermediates(images(*size, batch=1), ('q', 'bias', 'site'), with_grad=True)
    for index, block in enumerate(model.plugged_blocks()):
        part, site = block.plugs['gaussian_augment']['bias'], found['site'][index]
        expected = gaussian(part, found['q'][index], site.pairs.queries, site.pairs.keys)
        own = [bias.expand() for bias in getattr(block.attn, 'w_msa', block.attn).biases(site)]
        assert_same([found['bias'][index]], [expected + sum(own)], [found['q'][index], *part.parameters()])


@pytest.mark.parametrize(('side', 'added'), [(1, 0.1), (14, 0.1), (26, 0.1), (27, 0.2), (32, 0.2), (53, 0.4)])
def test_official_scheme(side, added):
    """Against the loop of the authors' code over its constant, and distances beyond the configured grid."""
    part = ChosenGaussian(4, (side, side), True)
    assert part.added == pytest.approx(added) and part.farthest == min((side - 1) ** 2, 13100)
    model = randomize(vit(plugs="gaug(scheme='official')", img_size=(16, 16))).double()
    _, found = model.forward_intermediates(images(40, 32, batch=1), ('q', 'bias', 'site'), layers=[1])
    part, site = model.layers[1].plugs['gaussian_augment']['bias'], found['site'][1]
    assert part.farthest == 1
    expected = gaussian(part, found['q'][1], site.pairs.queries, site.pairs.keys, 0.1, 1)
    assert_close(found['bias'][1], expected)


@pytest.mark.parametrize(('build', 'settings'), [(vit, dict(out_type='raw')), (swin, {})], ids=['vit', 'swin'])
def test_refinement_is_timms(build, settings):
    """Of the normed tokens of the last output; earlier ones are as they were."""
    plain, model = randomize(build(**settings)).double(), build(**settings, plugs='prr').double()
    model.load_state_dict(plain.state_dict())
    *_, tokens = plain(images(32, 40))
    tokens = tokens if tokens.ndim == 3 else tokens.flatten(2).mT
    pool = AttentionPoolPrr(tokens.shape[-1], plain.plugged_blocks()[-1].shape.map_heads)
    pool.pool = ''
    weights = [network.plugged_blocks()[-1].ffn.layers[1].weight for network in (model, plain)]
    for fused in (True, False):
        with fused_attention(fused):
            (*others, got), (*before, _) = model(images(32, 40)), plain(images(32, 40))
        got, expected = got if got.ndim == 3 else got.flatten(2).mT, pool(tokens)
        assert_close(got, expected)
        assert_close(gradients([got], weights[:1]), gradients([expected], weights[1:]))
        assert_close(others, before, rtol=0, atol=0)
