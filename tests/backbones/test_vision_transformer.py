"""What vitplug's ViT has beyond mmpretrain's: windows, a convolutional stem; and the distilled one."""

import pytest
import torch
import torch.nn.functional as F
from cases import VIT_ARCH, images, randomize, vit
from mmpretrain.models import DistilledVisionTransformer as Stock
from torch.testing import assert_close

from vitplug.backbones import DistilledVisionTransformer


def feature_map(x, hw):
    """The tokens of the grid, ``(B, D, h, w)``."""
    return x[:, x.shape[1] - hw[0] * hw[1] :].transpose(1, 2).unflatten(2, hw)


def window_oracle(attention, x, hw, side):
    """Window by window, over maps padded with zeros behind the norm."""
    (h, w), heads = hw, attention.shape.map_heads
    rows, cols = -(-h // side), -(-w // side)
    padded = torch.zeros(len(x), rows * side, cols * side, x.shape[-1], dtype=x.dtype)
    padded[:, :h, :w] = x.unflatten(1, hw)
    out = torch.zeros_like(padded)
    for r in range(rows):
        for c in range(cols):
            place = (slice(None), slice(r * side, (r + 1) * side), slice(c * side, (c + 1) * side))
            q, k, v = (attention.qkv(padded[place].flatten(1, 2))).unflatten(-1, (3, heads, -1)).permute(2, 0, 3, 1, 4)
            weights = (q @ k.mT / q.shape[-1] ** 0.5).softmax(-1)
            out[place] = attention.proj((weights @ v).transpose(1, 2).flatten(2)).unflatten(1, (side, side))
    return out[:, :h, :w].flatten(1, 2)


@pytest.mark.parametrize('size', [(48, 48), (40, 56), (8, 24)], ids=str)
def test_attention_in_windows(size):
    model = randomize(vit(with_cls_token=False, window_size=3)).double().eval()
    x, hw = model.embed(images(*size))
    for block in model.layers:
        x = x + window_oracle(block.attn, block.ln1(x), hw, 3)
        x = x + block.ffn.layers(block.ln2(x))
    (got,) = model(images(*size))
    assert_close(got, feature_map(model.ln1(x), hw))


def test_global_blocks_are_those_of_a_model_without_windows():
    whole = randomize(vit(with_cls_token=False)).double().eval()
    windowed = vit(with_cls_token=False, window_size=3, global_blocks=[0, 1, -2, -1]).double().eval()
    windowed.load_state_dict(whole.state_dict())
    assert_close(windowed(images(40, 56)), whole(images(40, 56)), rtol=0, atol=0)


def test_windows_that_span_the_map_are_global_attention():
    whole = randomize(vit(with_cls_token=False)).double().eval()
    windowed = vit(with_cls_token=False, window_size=4).double().eval()
    windowed.load_state_dict(whole.state_dict())
    assert_close(windowed(images(32, 32)), whole(images(32, 32)))


def test_stem():
    model = randomize(vit(stem='conv')).double().eval()
    x = images(40, 56)
    out = x
    for conv, stride in zip(model.patch_embed.stem, (2, 1, 1), strict=True):
        norm = conv.norm
        out = F.conv2d(out, conv.conv.weight, stride=stride, padding=conv.conv.kernel_size[0] // 2)
        out = F.relu(F.batch_norm(out, norm.running_mean, norm.running_var, norm.weight, norm.bias, eps=norm.eps))
    projection = model.patch_embed.projection
    expected = F.conv2d(out, projection.weight, projection.bias, stride=4)
    tokens, hw = model.patch_embed(x)
    assert hw == (5, 7)
    assert_close(tokens, expected.flatten(2).transpose(1, 2))
    assert model(x)[0].shape == (2, 24, 5, 7)


@pytest.mark.parametrize('out_type', ['cls_token', 'featmap', 'raw'])
def test_distilled_equals_mmpretrain(out_type):
    settings = dict(arch=VIT_ARCH, img_size=32, patch_size=8, out_type=out_type)
    stock = randomize(Stock(**settings)).double()
    stock.eval()
    own = DistilledVisionTransformer(**settings).double().eval()
    own.load_state_dict(stock.state_dict())
    for size in ((32, 32), (40, 56)):
        assert_close(own(images(*size)), stock(images(*size)))


def test_distilled_freezes_and_knows_the_depth_of_both_tokens():
    model = DistilledVisionTransformer(arch=VIT_ARCH, img_size=32, patch_size=8, frozen_stages=1)
    assert not model.dist_token.requires_grad and not model.cls_token.requires_grad
    assert model.get_layer_depth('backbone.dist_token', 'backbone.') == (0, 6)


# --- blocks that lack a branch ---

# Of 4 blocks, the second has no MLP and the third no attention.
BRANCHES = [{}, dict(with_ffn=False), dict(with_attn=False), {}]


def attention_oracle(attention, x):
    q, k, v = attention.qkv(x).unflatten(-1, (3, attention.shape.map_heads, -1)).permute(2, 0, 3, 1, 4)
    weights = (q @ k.mT / q.shape[-1] ** 0.5).softmax(-1)
    return attention.proj((weights @ v).transpose(1, 2).flatten(2))


@pytest.mark.parametrize('with_cp', [False, True])
def test_blocks_that_lack_a_branch(with_cp):
    model = randomize(vit(layer_cfgs=BRANCHES, with_cp=with_cp)).double().eval()
    x, hw = model.embed(images(40, 56))
    for index, block in enumerate(model.layers):
        if index != 2:
            x = x + attention_oracle(block.attn, block.ln1(x))
        if index != 1:
            x = x + block.ffn.layers(block.ln2(x))
    assert_close(model(images(40, 56))[0], feature_map(model.ln1(x), hw))


def test_blocks_that_lack_a_branch_have_no_parameters_of_it_and_the_others_all_learn():
    model = randomize(vit(layer_cfgs=BRANCHES))
    keys = {key.split('.')[2] for key in model.state_dict() if key.startswith('layers.1.')}
    assert keys == {'ln1', 'attn'}
    assert {key.split('.')[2] for key in model.state_dict() if key.startswith('layers.2.')} == {'ln2', 'ffn'}
    model(images(32, 40, dtype=torch.float32))[0].sum().backward()
    assert [name for name, p in model.named_parameters() if p.grad is None] == []


def test_intermediates_of_blocks_that_lack_a_branch():
    model = randomize(vit(layer_cfgs=BRANCHES)).eval()
    _, found = model.forward_intermediates(images(32, 40, dtype=torch.float32), ('probs', 'block'))
    assert list(found['probs']) == [0, 1, 3] and list(found['block']) == [0, 1, 2, 3]


@pytest.mark.parametrize(
    ('plug', 'branch'),
    [
        (dict(type='ContextBroadcast'), 'MLP'),
        (dict(type='ContextBroadcast', position='msa'), 'attention'),
        (dict(type='ContextBroadcast', scaled=True, position='mlp_mid'), 'MLP'),
        (dict(type='SqueezeExcite', reduction=4), 'MLP'),
        (dict(type='UniformHead', mode='append'), 'attention'),
        (dict(type='UniformHead', mode='compensate'), 'MLP'),
        (dict(type='GaussianAttentionBias'), 'attention'),
        (dict(type='GaussianAttentionBias', share_layers=True), 'attention'),
        (dict(type='RelPosBias'), 'attention'),
        (dict(type='ResidualAttention'), 'attention'),
        (dict(type='ResidualAttention', per_layer=True, low_memory=True), 'attention'),
    ],
    ids=str,
)
def test_plugs_are_refused_on_blocks_that_lack_their_branch(plug, branch):
    index = {'MLP': 1, 'attention': 2}[branch]
    layer_cfgs = [cfg if i == index else {} for i, cfg in enumerate(BRANCHES)]
    message = rf"plugs: \['\w+'\] change the {branch} branch of block {index}, which has none; take the block out of"
    with pytest.raises(ValueError, match=message):
        vit(layer_cfgs=layer_cfgs, plugs=[plug])
    layers = [i for i in range(4) if i != index]
    model = vit(layer_cfgs=layer_cfgs, plugs=[{**plug, 'layers': layers}])
    assert model(images(32, 40, dtype=torch.float32))[0].isfinite().all()


@pytest.mark.parametrize(
    ('plug', 'message'),
    [
        (dict(type='UniformHead'), 'UniformHead: .* needs at least 2 heads and block 2 has 0'),
        (dict(type='Refiner'), 'Refiner: block 2 has no attention map to refine; leave it out of layers'),
        (dict(type='BroadAttention'), 'BroadAttention: block 2 has 0 heads .*; leave the block out by layers'),
    ],
    ids=str,
)
def test_plugs_that_refuse_blocks_without_attention_themselves(plug, message):
    with pytest.raises(ValueError, match=message):
        vit(layer_cfgs=BRANCHES, plugs=[plug])


@pytest.mark.parametrize(
    'plug',
    [dict(type='Refiner'), dict(type='BroadAttention'), dict(type='ResidualAttention'), dict(type='RelPosMlp')],
    ids=str,
)
def test_plugs_of_attention_work_on_blocks_without_mlp(plug):
    model = vit(layer_cfgs=BRANCHES, plugs=[{**plug, 'layers': [0, 1, 3]}])
    assert model(images(32, 40, dtype=torch.float32))[0].isfinite().all()


def test_start_of_a_block():
    """mmpretrain's by default, which no ``init_cfg`` of the backbone changes, and the block's own where it has one."""
    normal = dict(type='TruncNormal', layer='Linear', std=0.5, bias=0.25)
    model = vit(layer_cfgs=[{}, dict(init_cfg=normal), {}, {}], init_cfg=normal)
    torch.manual_seed(0)
    model.init_weights()
    stock, own = (block.ffn.layers[1] for block in model.layers[:2])
    bound = (6 / (24 + 40)) ** 0.5
    assert 0.9 * bound < stock.weight.abs().max() <= bound and 0 < stock.bias.abs().max() < 1e-5
    assert own.weight.std().item() == pytest.approx(0.5, rel=0.1) and (own.bias == 0.25).all()


@pytest.mark.parametrize(
    ('settings', 'message'),
    [
        (dict(window_size=7), 'window_size=7: a class token lies in no window; set with_cls_token=False'),
        (dict(window_size=0, with_cls_token=False), 'window_size=0: expected a positive integer'),
        (dict(window_size=4, with_cls_token=False, global_blocks=[4]), r'global_blocks=\[4\]: \[4\] outside'),
        (dict(stem='resnet'), "stem='resnet': expected one of"),
        (dict(stem='conv', patch_size=7), "stem='conv' halves the image"),
        (dict(layer_cfgs=dict(with_attn='no')), "with_attn='no': expected True or False"),
        (
            dict(layer_cfgs=dict(with_attn=False, with_ffn=False)),
            'with_attn=False and with_ffn=False leave nothing of the block; set one of them to True',
        ),
    ],
)
def test_bad_arguments(settings, message):
    with pytest.raises(ValueError, match=message):
        vit(**settings)
