"""Sockets that plugs share, and those between blocks and around attention, against their equations written out."""

import pytest
import torch
from cases import images, mvit, randomize, swin, vit
from probe_plug import Probe
from torch import nn
from torch.testing import assert_close
from torch_vit import TorchViT

from vitplug.attention import DenseBias, ExtraKeys, fused_attention
from vitplug.attention.inputs import Attention
from vitplug.plugs import Plug, ResidualAttention, TalkingHeads


def sharpened(weight, maps, site, carry):
    """As AttnScale: the deviations from the mean over the keys are enlarged."""
    mean = 1 / maps.shape[-1]
    return mean + (1 + weight) * (maps - mean), carry


def doubled(weight, maps, site, carry):
    return maps * 2, carry


def shifted(weight, maps, site, carry):
    return maps + 0.1, carry


def test_maps_and_logits_are_changed_one_after_the_other():
    """Residual scores, then talking heads; maps are sharpened, doubled and shifted by rank, in whatever order given."""
    plugs = [Probe('a', 2, map=shifted), Probe('z', 1, map=doubled), TalkingHeads(), Probe('y', 1, map=sharpened)]
    model = randomize(vit(plugs=[*plugs, ResidualAttention()])).double()
    x = images(16, 24)
    _, found = model.forward_intermediates(x, ('scores', 'logits', 'probs', 'maps'))
    alpha = model.layers[1].plugs
    share = model.learned_values()['residual_attention.alpha'][None]
    blended = share * found['scores'][1] + (1 - share) * found['scores'][0]
    mix = alpha['talking_heads']['logits']
    assert_close(found['logits'][1], mix.mix(blended))
    mixed = alpha['talking_heads']['map'].mix(found['logits'][1].softmax(-1))
    weight, mean = alpha['y']['map'].weight, 1 / mixed.shape[-1]
    assert_close(found['maps'][1], (mean + (1 + weight) * (mixed - mean)) * 2 + 0.1)


class Sink(nn.Module):
    """Two keys of each head, with values, and what is added to their scores."""

    def __init__(self, heads, dims, with_logits):
        super().__init__()
        self.k, self.v = (nn.Parameter(torch.zeros(1, 1, heads, 2, dims)) for _ in 'kv')
        self.logits = nn.Parameter(torch.zeros(heads, 2)) if with_logits else None

    def forward(self, q, site):
        return self.k, self.v, self.logits


class Sinks(Plug):
    name = 'sinks'

    def __init__(self, with_logits=True):
        super().__init__()
        self.with_logits = with_logits

    def build_layer(self, plan):
        return {'extra_keys': Sink(plan.num_heads, plan.shape.head_dims, self.with_logits)}


@pytest.mark.parametrize('with_logits', [True, False])
@pytest.mark.parametrize('host', ['vit', 'swin', 'mvit'])
def test_keys_of_no_token(host, with_logits):
    """Against keys and biases set side by side, with the masks of shifted windows; maps are those of tokens."""
    build, bias = dict(vit=(vit, ['rel-pos-bias']), swin=(swin, []), mvit=(mvit, []))[host]
    model = randomize(build(plugs=[*bias, Sinks(with_logits)])).double()
    x = images(32, 32)
    names = ('q', 'k', 'v', 'bias', 'probs', 'attn', 'logits', 'site')
    with fused_attention(False):
        plain, found = model.forward_intermediates(x, names)
    fused, also = model.forward_intermediates(x, names)
    assert_close(fused, plain)
    assert_close(also['probs'], found['probs'])
    for index, block in enumerate(model.plugged_blocks()):
        sink, attention = block.plugs['sinks']['extra_keys'], getattr(block.attn, 'w_msa', block.attn)
        q, k = found['q'][index], found['k'][index]
        scores = q @ k.mT * attention.scale
        own = q @ sink.k.mT * attention.scale
        own = own if sink.logits is None else own + sink.logits[:, None]
        mask = found['logits'][index] - scores
        probs = torch.cat((scores + mask, own), -1).softmax(-1)
        assert_close(found['probs'][index], probs[..., : k.shape[-2]])
        assert (found['probs'][index].sum(-1) < 1).all()
        if host != 'mvit':  # which adds pooled queries to the output
            values = torch.cat((found['v'][index], sink.v.expand(*found['v'][index].shape[:2], -1, -1, -1)), -2)
            heads = found['site'][index].layout.from_windows((probs @ values).transpose(2, 3).flatten(3))
            assert_close(found['attn'][index], attention.proj(heads))
    sum(output.square().sum() for output in model(x)).backward()
    assert not [name for name, p in model.named_parameters() if 'sinks' in name and p.grad is None]


def test_a_plug_without_need_of_tokens_changes_heads_where_queries_are_pooled():
    def gates(weight, heads, tokens, site, carry):
        return heads * (1 + weight * carry.get('seen', 0))

    def counts(weight, q, k, v, site, carry):
        return q, k, v, {**carry, 'seen': carry.get('seen', 0) + 1}

    gates.needs_tokens = False
    model, plain = randomize(mvit(plugs=[Probe('a', qkv=counts, heads=gates)])).double(), mvit().double()
    plain.load_state_dict(model.state_dict(), strict=False)
    for index, block in enumerate(model.plugged_blocks(), 1):
        factor = 1 + index * block.plugs['a']['heads'].weight.item()
        plain.blocks[index - 1].attn.proj.weight.data *= factor
    x = images(64, 64)
    assert_close(model(x), plain(x))


@pytest.mark.parametrize('host', [vit, swin, mvit, TorchViT])
def test_branches_as_they_are_added_and_tokens_between_blocks(host):
    """A model whose branches are emptied, and whose blocks add their index, adds up numbers."""
    empty = dict.fromkeys(('msa_residual', 'mlp_residual'), lambda weight, tokens, site: tokens * 0)
    stream = {
        'block_in': lambda weight, tokens, site, carry: (
            tokens + weight,
            {**carry, 'count': carry.get('count', 0) + 1},
        ),
        'block_out': lambda weight, tokens, site, carry: (tokens * carry['count'], carry),
    }
    settings = {} if host is TorchViT else dict(with_cp=True)
    model = host(plugs=[Probe('a', **empty, **stream)], **settings).double()
    x = images(64, 64).requires_grad_()
    _, found = model.forward_intermediates(x, ('attn', 'mlp', 'block'))
    assert all(not tensor.any() for name in ('attn', 'mlp') for tensor in found[name].values())
    tokens, _ = model.embed(x)
    assert_close(found['block'][0], expected_after_one(model, tokens))
    if host is not mvit:  # whose second block has another width
        second = model.plugged_blocks()[1].plugs['a']['block_in'].weight
        assert_close(found['block'][1], 2 * (found['block'][0] + second))
    (gradient,) = torch.autograd.grad(model(x)[0].sum(), x)
    for block in model.plugged_blocks():
        block.with_cp = False
    assert_close(gradient, torch.autograd.grad(model(x)[0].sum(), x)[0])


def expected_after_one(model, tokens):
    block = model.plugged_blocks()[0]
    tokens = tokens + block.plugs['a']['block_in'].weight
    return block._skip(tokens, block.norm2(tokens), in_attention=False) if hasattr(block, '_skip') else tokens


def test_extra_keys_of_one_head_bias_meet_biases_of_all():
    q, k, v = torch.randn(3, 2, 4, 7, 5, dtype=torch.float64)
    bias, own = torch.randn(4, 7, 7, dtype=torch.float64), torch.randn(1, 2, dtype=torch.float64)
    extra = ExtraKeys(torch.randn(1, 1, 4, 2, 5).double(), torch.randn(1, 1, 4, 2, 5).double(), own)
    found = Attention(q, k, v, 1.0, biases=(DenseBias(bias),)).with_extra(extra).biases[0].expand()
    assert torch.equal(found, torch.cat((bias, own.expand(4, 2)[:, None].expand(4, 7, 2)), -1))
