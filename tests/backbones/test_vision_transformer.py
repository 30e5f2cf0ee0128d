"""What vitplug's ViT has beyond mmpretrain's: windows, a convolutional stem; and the distilled one."""

import pytest
import torch
from cases import VIT_ARCH, images, randomize, swin, vit
from mmpretrain.models import DistilledVisionTransformer as Stock
from torch.testing import assert_close

from vitplug.backbones import DistilledVisionTransformer


def feature_map(x, hw):
    """The tokens of the grid, ``(B, D, h, w)``."""
    return x[:, x.shape[1] - hw[0] * hw[1] :].transpose(1, 2).unflatten(2, hw)


def attention_oracle(attention, x):
    q, k, v = attention.qkv(x).unflatten(-1, (3, attention.shape.map_heads, -1)).permute(2, 0, 3, 1, 4)
    weights = (q @ k.mT / q.shape[-1] ** 0.5).softmax(-1)
    return attention.proj((weights @ v).transpose(1, 2).flatten(2))


def window_oracle(attention, x, hw, side):
    """Window by window, over maps padded with zeros behind the norm."""
    h, w = hw
    rows, cols = -(-h // side), -(-w // side)
    padded = torch.zeros(len(x), rows * side, cols * side, x.shape[-1], dtype=x.dtype)
    padded[:, :h, :w] = x.unflatten(1, hw)
    out = torch.zeros_like(padded)
    for r in range(rows):
        for c in range(cols):
            place = (slice(None), slice(r * side, (r + 1) * side), slice(c * side, (c + 1) * side))
            out[place] = attention_oracle(attention, padded[place].flatten(1, 2)).unflatten(1, (side, side))
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


@pytest.mark.parametrize('out_type', ['cls_token', 'featmap', 'raw'])
def test_distilled_equals_mmpretrain(out_type):
    settings = dict(arch=VIT_ARCH, img_size=32, patch_size=8, out_type=out_type)
    stock = randomize(Stock(**settings)).double()
    stock.eval()
    own = DistilledVisionTransformer(**settings).double().eval()
    own.load_state_dict(stock.state_dict())
    for size in ((32, 32), (40, 56)):
        assert_close(own(images(*size)), stock(images(*size)))


def test_monte_carlo_dropout_of_each_layer_alone():
    swiglu, drop = dict(ffn_type='swiglu'), dict(block_cfgs=dict(ffn_cfgs=dict(ffn_drop=0.5)))
    for model in (vit(drop_path_rate=0.5, layer_cfgs=swiglu), swin(drop_path_rate=0.5, stage_cfgs=drop)):
        plain = model.double().eval()(images(32, 40))[-1]
        for module in [m for m in model.modules() if getattr(m, 'drop_prob', 0) or getattr(m, 'p', 0)]:
            module.train()
            assert not torch.equal(model(images(32, 40))[-1], plain)
            module.eval()


# --- blocks that lack a branch ---

# Of 4 blocks, the second has no MLP and the third no attention.
BRANCHES = [{}, dict(with_ffn=False), dict(with_attn=False), {}]


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
