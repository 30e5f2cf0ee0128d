"""PiT is timm's: same keys, same numbers. At other sizes it is a slow computation from timm's parts."""

import copy

import pytest
import timm
import torch
import torch.nn.functional as F
from cases import PIT_ARCH, images, pit, pit_distilled, randomize
from pit_oracle import run
from timm.models.pit import PoolingVisionTransformer as TimmPiT
from torch.testing import assert_close

from vitplug.attention import fused_attention
from vitplug.backbones import PoolingVisionTransformer
from vitplug.hosting import mark_padding

STAGES = len(PIT_ARCH['depths'])


def pair(img_size=(32, 40), distilled=False, **settings):
    """timm's model with random weights, and ours that loaded them."""
    heads = PIT_ARCH['num_heads']
    theirs = TimmPiT(
        img_size=img_size,
        patch_size=PIT_ARCH['patch_size'],
        stride=PIT_ARCH['stride'],
        base_dims=[dims // h for dims, h in zip(PIT_ARCH['embed_dims'], heads, strict=True)],
        depth=PIT_ARCH['depths'],
        heads=heads,
        num_classes=0,
        distilled=distilled,
    )
    ours = pit(img_size=img_size, distilled=distilled, **settings)
    assert list(ours.state_dict()) == list(theirs.state_dict())
    ours.load_state_dict(randomize(theirs).state_dict())
    return theirs.double().eval(), ours.double().eval()


def assert_same_gradients(ours, theirs):
    for name, parameter in theirs.named_parameters():
        assert_close(ours.get_parameter(name).grad, parameter.grad, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize('fused', [True, False])
@pytest.mark.parametrize('distilled', [False, True])
@pytest.mark.parametrize('size', [(32, 40), (37, 51)], ids=str)
def test_class_tokens_equal_timms(size, distilled, fused):
    theirs, ours = pair(size, distilled, out_type='cls_token')
    x = images(*size)
    expected = theirs.forward_features(x)
    with fused_attention(fused):
        out = ours(x)[-1]
    assert isinstance(out, tuple) == distilled
    got = torch.stack(out, dim=1) if distilled else out[:, None]
    assert_close(got, expected, rtol=1e-10, atol=1e-10)
    for tokens in (expected, got):
        tokens.square().sum().backward()
    assert_same_gradients(ours, theirs)


def test_maps_of_all_stages_equal_timms():
    theirs, ours = pair(out_type='featmap', out_indices=range(STAGES))
    x = images(32, 40)
    expected = theirs.forward_intermediates(x, intermediates_only=True)
    # timm normalises its class tokens only.
    expected[-1] = theirs.norm(expected[-1].movedim(1, -1)).movedim(-1, 1)
    got = ours(x)
    assert [out.shape[1:] for out in got] == [(12, 7, 9), (24, 4, 5), (48, 2, 3)]
    assert_close(got, tuple(expected), rtol=1e-10, atol=1e-10)
    for outs in (expected, got):
        sum(out.square().sum() for out in outs).backward()
    assert_same_gradients(ours, theirs)
    mean = pit(img_size=(32, 40), out_type='avg_featmap').double().eval()
    mean.load_state_dict(theirs.state_dict())
    assert_close(mean(x)[-1], expected[-1].mean((2, 3)))


@pytest.mark.parametrize('size', [(32, 32), (40, 64), (37, 51)], ids=str)
def test_other_sizes_resize_the_position_table(size):
    theirs, ours = pair(out_type='raw')
    x = images(*size)
    tokens = theirs.patch_embed(x)
    table = F.interpolate(theirs.pos_embed.float(), tokens.shape[2:], mode='bicubic', align_corners=False)
    tokens = tokens + table.double(), theirs.cls_token.expand(len(x), -1, -1)
    tokens, prefix = theirs.transformers(tokens)
    expected = theirs.norm(torch.cat((prefix, tokens.flatten(2).mT), dim=1))
    assert_close(ours(x)[-1], expected, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize('distilled', [False, True])
@pytest.mark.parametrize('arch', ['ti', 'xs', 's', 'b'])
def test_timms_sizes(arch, distilled):
    with torch.device('meta'):
        theirs = timm.create_model(f'pit_{arch}{"_distilled" * distilled}_224', num_classes=0)
        ours = PoolingVisionTransformer(arch, distilled=distilled)
    expected = {name: value.shape for name, value in theirs.state_dict().items()}
    assert {name: value.shape for name, value in ours.state_dict().items()} == expected


def test_authors_names_of_poolings_load():
    _, ours = pair()
    state = ours.state_dict()
    old = {key.replace('transformers.1.pool', 'pools.0').replace('transformers.2.pool', 'pools.1') for key in state}
    assert 'pools.1.fc.weight' in old
    renamed = {
        key.replace('transformers.1.pool', 'pools.0').replace('transformers.2.pool', 'pools.1'): value
        for key, value in state.items()
    }
    fresh = pit(img_size=(32, 40)).double()
    fresh.load_state_dict(renamed)
    assert all(torch.equal(fresh.state_dict()[key], value) for key, value in state.items())


def test_position_table_of_another_size_loads():
    _, ours = pair((32, 40))
    larger = pit(img_size=(64, 80)).double()
    larger.load_state_dict(copy.deepcopy(ours.state_dict()))
    expected = F.interpolate(ours.pos_embed.float(), (15, 19), mode='bicubic', align_corners=False)
    assert_close(larger.pos_embed, expected.double())


def test_stochastic_depth_grows_as_timms():
    theirs = timm.create_model('pit_ti_224', num_classes=0, drop_path_rate=0.3)
    ours = PoolingVisionTransformer('ti', drop_path_rate=0.3)
    expected = [getattr(block.drop_path1, 'drop_prob', 0.0) for stage in theirs.transformers for block in stage.blocks]
    blocks = ours.plugged_blocks()
    assert [block.attn.out_drop.drop_prob for block in blocks] == pytest.approx(expected)
    assert [block.drop_path.drop_prob for block in blocks] == pytest.approx(expected)


def test_valid_tokens_follow_the_strides():
    """A token is valid if the pixel or token at which its own stride begins is."""
    model = pit()
    x = mark_padding(images(48, 64, dtype=torch.float32), [(21, 64), (48, 33)])
    _, found = model.forward_intermediates(x, ('site',))
    rows, columns = [21, 48], [64, 33]
    for index, stride in enumerate((4, 4, 8, 16)):
        site = found['site'][index]
        height, width = site.layout.hw
        expected = torch.stack(
            [
                torch.tensor([[y * stride < h and x * stride < w for x in range(width)] for y in range(height)])
                for h, w in zip(rows, columns, strict=True)
            ]
        )
        assert torch.equal(site.valid[:, 1:], expected.flatten(1)) and site.valid[:, 0].all()


def test_tokens_lie_where_the_convolutions_put_them():
    """The gradient of a stage's input tokens is centred on the pixels that ``place_block`` names."""
    model = pit()
    for index, stride, start in ((0, 4, 1.0), (2, 8, -1.0), (3, 16, -5.0)):
        _, pixels = model.place_block(index, (64, 80))
        assert pixels.stride == (stride, stride) and pixels.start == (start, start)


def test_frozen_stages():
    model = pit(frozen_stages=1).train()
    trained = {'.'.join(name.split('.')[:2]) for name, p in model.named_parameters() if p.requires_grad}
    assert trained == {'transformers.2', 'norm.weight', 'norm.bias'}
    assert not model.transformers[1].training and not model.pos_drop.training and model.transformers[2].training
    assert not any(p.requires_grad for p in pit(frozen_stages=2).parameters())
    assert all(p.requires_grad for p in pit(frozen_stages=-1).parameters())


def test_depth_of_a_pooling_is_that_of_the_block_before():
    model = pit()
    assert model.get_layer_depth('backbone.transformers.2.pool.fc.weight', 'backbone.') == (3, 6)
    assert model.get_layer_depth('backbone.transformers.0.blocks.1.norm1.bias', 'backbone.') == (2, 6)
    for name, depth in (('pos_embed', 0), ('cls_token', 0), ('patch_embed.conv.bias', 0), ('norm.bias', 5)):
        assert model.get_layer_depth(f'backbone.{name}', 'backbone.') == (depth, 6)
    assert model.get_layer_depth('head.fc.weight', 'backbone.') == (5, 6)


def test_initial_weights_have_timms_distribution():
    theirs, ours = timm.create_model('pit_ti_224', num_classes=0), PoolingVisionTransformer('ti')
    ours.init_weights()
    for name, parameter in theirs.named_parameters():
        assert_close(ours.get_parameter(name).std(), parameter.std(), rtol=0.3, atol=2e-3, msg=name)


def gab_part(model):
    """What all blocks share."""
    return model.plugs['gab']['shared']


def kernels(model):
    parts = [block.plugs['refiner']['map'] for block in model.plugged_blocks()]
    return [(part.expand, part.local, part.reduce) for part in parts]


# Plugs, and the oracle's settings of them.
ORACLES = {
    'none': ([], lambda model: {}),
    'cb': ([dict(type='ContextBroadcast')], lambda model: dict(broadcast=True)),
    'residual': (
        [dict(type='ResidualAttention')],
        lambda model: dict(alpha=model.plugs['residual_attention']['start'].alpha.residual_alpha),
    ),
    'gab': (
        [dict(type='GaussianAttentionBias', share_layers=True)],
        lambda model: dict(bias=(gab_part(model).gab_amplitude, gab_part(model).gab_sigma)),
    ),
    'broad': ([dict(type='BroadAttention', gamma=0.7)], lambda model: dict(gamma=0.7)),
    'refiner': ([dict(type='Refiner', expansion=2)], lambda model: dict(kernels=kernels(model))),
}


@pytest.mark.parametrize('fused', [True, False])
@pytest.mark.parametrize('host', [pit, pit_distilled])
@pytest.mark.parametrize('plugs', ORACLES)
def test_plugs_are_their_equations(plugs, host, fused):
    """Values and gradients; the class tokens take part in every stage."""
    configs, settings = ORACLES[plugs]
    model = randomize(host(plugs=configs, out_type='raw', out_indices=-1)).double().eval()
    if plugs == 'residual':
        with torch.no_grad():
            settings(model)['alpha'].fill_(0.4)
    x = images(32, 40)
    with fused_attention(fused):
        (got,) = model(x)
    expected = run(dict(model.named_parameters()), PIT_ARCH, x, **settings(model))
    assert_close(got, expected, rtol=1e-9, atol=1e-9)
    named = dict(model.named_parameters())
    grads = [torch.autograd.grad(out.pow(3).sum(), list(named.values())) for out in (got, expected)]
    for name, own, reference in zip(named, *grads, strict=True):
        assert_close(own, reference, rtol=1e-8, atol=1e-8, msg=name)
