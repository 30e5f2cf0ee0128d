"""What vitplug's ViT has beyond mmpretrain's: windows, a convolutional stem; and the distilled one."""

import pytest
import torch
import torch.nn.functional as F
from cases import VIT_ARCH, images, randomize, vit
from mmpretrain.models import DistilledVisionTransformer as Stock
from torch.testing import assert_close

from vitplug.backbones import DistilledVisionTransformer


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
    x, hw = model._embed(images(*size))
    for block in model.layers:
        x = x + window_oracle(block.attn, block.ln1(x), hw, 3)
        x = x + block.ffn.layers(block.ln2(x))
    (got,) = model(images(*size))
    assert_close(got, model._format(model.ln1(x), hw))


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


@pytest.mark.parametrize(
    ('settings', 'message'),
    [
        (dict(window_size=7), 'window_size=7: a class token lies in no window; set with_cls_token=False'),
        (dict(window_size=0, with_cls_token=False), 'window_size=0: expected a positive integer'),
        (dict(window_size=4, with_cls_token=False, global_blocks=[4]), r'global_blocks=\[4\]: \[4\] outside'),
        (dict(stem='resnet'), "stem='resnet': expected one of"),
        (dict(stem='conv', patch_size=7), "stem='conv' halves the image"),
    ],
)
def test_bad_arguments(settings, message):
    with pytest.raises(ValueError, match=message):
        vit(**settings)
