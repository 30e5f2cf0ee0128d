"""Plugs of other papers: equal to timm's modules with the same weights, or to their equations written out."""

import math
from functools import partial

import pytest
import torch
import torch.nn.functional as F
from attention_oracle import assert_same, gradients
from cases import VIT_ARCH, images, randomize, swin, vit, vit_without_class_token
from timm.layers.attention import Attention as TimmAttention
from timm.layers.diff_attention import DiffAttention
from timm.models.cait import TalkingHeadAttn
from torch.testing import assert_close

from vitplug.attention import GlobalLayout, Site, fused_attention
from vitplug.backbones import DistilledVisionTransformer
from vitplug.hosting import SelfAttention, mark_padding
from vitplug.plugs import (
    BlockShape,
    DifferentialAttention,
    GatedAttention,
    LayerPlan,
    LayerPlugs,
    Plug,
    PlugSet,
    Registers,
    TalkingHeads,
    ValueResidual,
)

HW, DIMS, HEADS = (3, 4), 12, 3
SITE = Site(GlobalLayout(*HW))


def one_block(plug: Plug, heads: int = HEADS, depth: int = 0) -> tuple[SelfAttention, LayerPlugs]:
    """An attention branch and the plug's modules for it, the last of some blocks, with weights of noise."""
    shape = BlockShape.stock(DIMS, heads, 8)
    plans = [LayerPlan(index, depth + 1, DIMS, shape, SITE) for index in range(depth + 1)]
    _, (*_, plugs) = PlugSet([plug], depth + 1).build(plans)
    attention = SelfAttention(DIMS, shape)
    randomize(plugs, seed=5)
    return randomize(attention).double(), plugs.double()


def assert_alike(ours, theirs, pairs, **tolerance: float) -> None:
    """Outputs, and to ten times their tolerance gradients of the tokens and of pairs of parameters, in float64."""
    tokens = torch.randn(2, math.prod(HW), DIMS, dtype=torch.float64, requires_grad=True)
    got, expected = ours(tokens), theirs(tokens)
    assert_close(got, expected, **tolerance)
    leaves = [[tokens, *(pair[side] for pair in pairs)] for side in (0, 1)]
    assert_close(
        gradients([got], leaves[0]),
        gradients([expected], leaves[1]),
        **{name: 10 * value for name, value in tolerance.items()},
    )


def shared(pairs) -> list:
    """Pairs of parameters of pairs of modules, after the second took over the weights of the first."""
    for own, their in pairs:
        their.load_state_dict(own.state_dict())
    return [both for own, their in pairs for both in zip(own.parameters(), their.parameters(), strict=True)]


def test_talking_heads_are_timms():
    attention, plugs = one_block(TalkingHeads())
    theirs = TalkingHeadAttn(DIMS, HEADS, qkv_bias=True).double()
    part = plugs['talking_heads']
    pairs = shared([(attention.qkv, theirs.qkv), (attention.proj, theirs.proj)])
    pairs += shared([(part['logits'], theirs.proj_l), (part['map'], theirs.proj_w)])
    assert_alike(lambda x: attention(x, SITE, plugs, {})[0], theirs, pairs)
    assert plugs.bind().needs_maps(SITE)


def test_talking_heads_keep_apart_what_windows_keep_apart():
    model = randomize(swin(plugs=[dict(type=TalkingHeads)])).double()
    _, found = model.forward_intermediates(images(32, 32), ('maps', 'site'), layers=[1])
    hidden = found['site'][1].mask.unsqueeze(2).expand_as(found['maps'][1]) != 0
    assert hidden.any() and not found['maps'][1][hidden].any()


def test_gated_attention_is_timms_and_fused():
    attention, plugs = one_block(GatedAttention())
    theirs = TimmAttention(DIMS, HEADS, qkv_bias=True, gated=True).double()
    gates = (plugs['gated_attention']['heads'].gate, theirs.gate)
    pairs = shared([(attention.qkv, theirs.qkv), (attention.proj, theirs.proj), gates])
    assert_alike(lambda x: attention(x, SITE, plugs, {})[0], theirs, pairs)
    assert not plugs.bind().needs_maps(SITE)


@pytest.mark.parametrize('depth', [0, 3])
def test_differential_attention_is_timms(depth):
    attention, plugs = one_block(DifferentialAttention(), 4, depth)
    theirs, part = DiffAttention(DIMS, 2, qkv_bias=True, depth=depth).double(), plugs['differential_attention']['map']
    names = ('lambda_q1', 'lambda_k1', 'lambda_q2', 'lambda_k2')
    pairs = [(getattr(part, name), getattr(theirs, name)) for name in names]
    pairs.append((part.weight, theirs.sub_norm.weight))
    for own, their in pairs:
        their.data.copy_(own)
    pairs += shared([(attention.qkv, theirs.qkv), (attention.proj, theirs.proj)])
    for fused in (True, False):
        with fused_attention(fused):  # theirs takes the exponents of lambda in float32
            assert_alike(lambda x: attention(x, SITE, plugs, {})[0], theirs, pairs, rtol=1e-5, atol=1e-6)


# --- value residual, loop by loop ---


def value_residual_oracle(model, image, layers):
    x, hw = model.embed(image)
    first = None
    for index, block in enumerate(model.layers):
        q, k, v = block.attn.split_heads(block.attn.qkv(block.ln1(x)))
        if index in layers:
            first = v if first is None else first
            v = torch.stack([first, v]).mean(0)
        out = (q @ k.mT / q.shape[-1] ** 0.5).softmax(-1) @ v
        x = x + block.attn.proj(out.transpose(1, 2).flatten(2))
        x = x + block.ffn.layers[1](F.gelu(block.ffn.layers[0][0](block.ln2(x))))
    return model.format_output(len(model.layers) - 1, x, hw)


@pytest.mark.parametrize('layers', [(0, 1, 2, 3), (1, 3)], ids=str)
def test_value_residual_is_its_equation(layers):
    model = randomize(vit(plugs=[dict(type=ValueResidual, layers=layers)])).double()
    x = images(16, 24)
    (got,), expected = model(x), value_residual_oracle(model, x, layers)
    assert_same([got], [expected], list(model.parameters()))
    assert model.plug_summary.endswith('attention: fused')


def test_value_residual_follows_the_tokens_through_shifted_windows():
    """The values of a stage's two blocks as tokens of the image; the third block begins anew."""
    model = randomize(swin(plugs=[dict(type=ValueResidual)])).double()
    plain = swin().double()
    plain.load_state_dict(model.state_dict())
    x = images(32, 32)
    v, site = (model.forward_intermediates(x, (name,))[1][name] for name in ('v', 'site'))
    own = plain.forward_intermediates(x, 'v', layers=[0])[1]['v']
    assert_close(v[0], own[0])
    tokens = {i: site[i].layout.from_windows(v[i].transpose(2, 3).flatten(3)) for i in (0, 1)}
    second = model.stages[0].blocks[1]
    _, found = model.forward_intermediates(x, 'block', layers=[0])
    qkv = second.attn.w_msa.split_heads(second.attn.w_msa.qkv(second.norm1(found['block'][0])))
    assert_close(tokens[1], (tokens[0] + qkv[2].transpose(1, 2).flatten(2)) / 2)


# --- registers ---


def registers_of(model):
    return model.plugs['registers']['prefix'].register_tokens


def registers_oracle(model, image, keep):
    """The host's blocks, run on a sequence that is extended by hand, as if the host had that many prefix tokens."""
    x, hw = model.embed(image)
    own, registers = model.num_extra_tokens, registers_of(model)
    x = torch.stack([torch.cat((row[:own], registers[0], row[own:])) for row in x])
    carry = model.plugs.start()
    for index, block in enumerate(model.layers):
        layout = GlobalLayout(*hw, own + registers.shape[1])
        x, carry = block(x, Site(layout, index=index), carry)
    for part in model.plugs.values():
        if 'finish' in part:
            x = part['finish'](x, Site(layout, index=index), carry, None)
    kept = registers.shape[1] if keep else 0
    x = torch.stack([torch.cat((row[: own + kept], row[own + registers.shape[1] :])) for row in x])
    return model.format_output(len(model.layers) - 1, x, hw)


BESIDE = {
    'alone': [],
    'bias': [dict(type='RelPosBias')],
    'refiner': [dict(type='Refiner', constraint='spatial')],
    'broad': [dict(type='BroadAttention')],
    'cb': [dict(type='ContextBroadcast', mode='cls', cls_fallback='mean', position=['msa', 'mlp_end'])],
}
VITS = {
    'cls': vit,
    'no-cls': vit_without_class_token,
    'distilled': partial(DistilledVisionTransformer, arch=VIT_ARCH, img_size=(32, 40), patch_size=8),
}
CASES = [*((host, 'raw', 'alone') for host in VITS), *(('cls', 'featmap', beside) for beside in BESIDE)]
CASES += [('distilled', 'cls_token', 'alone'), ('cls', 'avg_featmap', 'alone')]


@pytest.mark.parametrize('keep', [False, True], ids=['dropped', 'kept'])
@pytest.mark.parametrize(('host', 'out_type', 'beside'), CASES, ids=map('-'.join, CASES))
def test_registers_extend_the_sequence(host, out_type, keep, beside):
    plugs = [dict(type=Registers, num_registers=3, keep=keep), *BESIDE[beside]]
    model = randomize(VITS[host](plugs=plugs, out_type=out_type)).double()
    for size in ((32, 40), (24, 16)):
        x = images(*size)
        (got,), expected = model(x), registers_oracle(model, x, keep)
        assert_close(got, expected)
        tokens = math.prod(size) // 64
        if out_type == 'raw':
            assert got.shape[1] == model.num_extra_tokens + 3 * keep + tokens
    (grad,) = gradients(got if isinstance(got, tuple) else [got], [registers_of(model)])
    assert grad.abs().sum(-1).all()


def test_registers_are_no_padding():
    model = vit(plugs=[dict(type=Registers)]).double()
    x = mark_padding(images(32, 40), [(16, 40), (32, 40)])
    _, found = model.forward_intermediates(x, ('site',), layers=[0])
    valid = found['site'][0].valid
    assert valid.tolist() == [[True] * (1 + 4 + 10) + [False] * 10, [True] * (1 + 4 + 20)]
