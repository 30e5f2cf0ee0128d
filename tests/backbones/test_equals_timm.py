"""The position-bias ViTs on which GAB sits: timm's ``vit_relpos_*``, weight for weight."""

import pytest
import timm
import torch
from cases import TIMM_RELPOS, randomize

from vitplug.backbones import VisionTransformer
from vitplug.checkpoints import convert

ARCHS = {
    'small': dict(embed_dims=384, num_layers=12, num_heads=6, feedforward_channels=1536),
    'medium': dict(embed_dims=512, num_layers=12, num_heads=8, feedforward_channels=2048),
    'base': dict(embed_dims=768, num_layers=12, num_heads=12, feedforward_channels=3072),
}


def relpos_vit(size, *more_plugs):
    return VisionTransformer(ARCHS[size], **TIMM_RELPOS, plugs=[dict(type='RelPosMlp'), *more_plugs])


@pytest.mark.sampled(3)
@pytest.mark.parametrize('size', ARCHS)
def test_relpos_vit(size):
    theirs = randomize(timm.create_model(f'vit_relpos_{size}_patch16_224')).eval()
    ours = relpos_vit(size).eval()
    converted, *_ = convert(theirs.state_dict())
    ours.load_state_dict({k.removeprefix('backbone.'): v for k, v in converted.items() if k.startswith('backbone.')})
    x = torch.randn(1, 3, 224, 224)
    with torch.no_grad():
        expected = theirs(x)
        got = theirs.head(ours(x)[0])
    assert (got - expected).abs().max() <= 1e-5 * expected.abs().max()
