"""PiT is timm's: same keys, same numbers. At other sizes it is a slow computation from timm's parts."""

import copy

import pytest
import torch
import torch.nn.functional as F
from attention_oracle import gradients
from cases import PIT_ARCH, images, pit, randomize
from timm.models.pit import PoolingVisionTransformer as TimmPiT
from torch.testing import assert_close

from vitplug.attention import fused_attention

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
    names = [name for name, _ in theirs.named_parameters()]
    leaves = ([model.get_parameter(name) for name in names] for model in (ours, theirs))
    assert_close(*(gradients([out], of) for out, of in zip((got, expected), leaves, strict=True)), rtol=1e-9, atol=1e-9)


def test_maps_of_all_stages_equal_timms():
    theirs, ours = pair(out_type='featmap', out_indices=range(STAGES))
    x = images(32, 40)
    expected = theirs.forward_intermediates(x, intermediates_only=True)
    # timm normalises its class tokens only.
    expected[-1] = theirs.norm(expected[-1].movedim(1, -1)).movedim(-1, 1)
    got = ours(x)
    assert [out.shape[1:] for out in got] == [(12, 7, 9), (24, 4, 5), (48, 2, 3)]
    assert_close(got, tuple(expected), rtol=1e-10, atol=1e-10)
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


def test_position_table_of_another_size_loads():
    _, ours = pair((32, 40))
    larger = pit(img_size=(64, 80)).double()
    larger.load_state_dict(copy.deepcopy(ours.state_dict()))
    expected = F.interpolate(ours.pos_embed.float(), (15, 19), mode='bicubic', align_corners=False)
    assert_close(larger.pos_embed, expected.double())
