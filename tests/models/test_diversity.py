"""The loss on attention maps that are alike against the official code's sum, written out, in float64."""

import pytest
import torch
from cases import lvt, swin
from mmengine.registry import MODELS, init_default_scope
from mmpretrain.structures import DataSample

from vitplug.attention import fused_attention

OFFICIAL = dict(type='Refiner', scheme='official', mode='mbconv', init='default', share=1)


def build(plugs, diversity, layers=4):
    init_default_scope('mmpretrain')
    torch.manual_seed(0)
    arch = dict(embed_dims=16, num_layers=layers, num_heads=2, feedforward_channels=32)
    return MODELS.build(
        dict(
            type='vitplug.DiverseClassifier',
            backbone=dict(type='vitplug.VisionTransformer', arch=arch, img_size=32, patch_size=16, plugs=plugs),
            head=dict(type='VisionTransformerClsHead', num_classes=3, in_channels=16),
            diversity=diversity,
        )
    ).double()


def batch():
    images = torch.randn(2, 3, 32, 32, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    return images, [DataSample().set_gt_label(label) for label in (0, 2)]


def cosine(a, b):
    """Of maps ``(B, H, N, N)``, over their heads."""
    return ((a * b).sum(1) / (a.square().sum(1) * b.square().sum(1)).sqrt()).mean()


def maps_of(model, images, layers):
    with fused_attention(False):
        _, found = model.backbone.forward_intermediates(images, ('maps',), layers)
    return [found['maps'][i][:, 0] for i in layers]


@pytest.mark.parametrize('plugs', [[], [dict(type='Refiner')], [OFFICIAL]], ids=['plain', 'refiner', 'official'])
def test_loss_is_the_mean_cosine_of_neighbours(plugs):
    model = build(plugs, dict(weight=0.3, layers=[0, 2, 3])).train()
    images, samples = batch()
    losses = model.loss(images, samples)
    # Batch norms have seen the images once, which changes no batch statistics.
    first, second, third = maps_of(model, images, [0, 2, 3])
    wanted = 0.3 * (cosine(first, second) + cosine(second, third)) / 2
    torch.testing.assert_close(losses['loss_diversity'], wanted, atol=1e-10, rtol=0)
    attention = model.backbone.layers[0].attn.qkv.weight
    found, expected = (torch.autograd.grad(loss, attention)[0] for loss in (losses['loss_diversity'], wanted))
    torch.testing.assert_close(found, expected, atol=1e-10, rtol=0)
    assert found.abs().max() > 0


def test_official_sum_has_the_gradient_of_half_the_weight():
    """0.1 times the mean over consecutive blocks, the second of each pair handing on the map of the first."""
    model = build([OFFICIAL], dict(weight=0.05, layers=[0, 2, 4]), layers=6).train()
    images, samples = batch()
    ours = model.loss(images, samples)['loss_diversity']
    own = maps_of(model, images, [0, 2, 4])
    handed_on = [m for m in own for _ in (0, 1)]
    pairs = [cosine(handed_on[i], handed_on[i + 1]) for i in range(4)]
    theirs = 0.1 * sum(pairs) / 4
    torch.testing.assert_close(theirs, ours + 0.05, atol=1e-10, rtol=0)
    attention = model.backbone.layers[0].attn.qkv.weight
    found, expected = (torch.autograd.grad(loss, attention)[0] for loss in (ours, theirs))
    torch.testing.assert_close(found, expected, atol=1e-10, rtol=0)


def test_wrong_layers_are_refused():
    with pytest.raises(ValueError, match='ascending order'):
        build([], dict(weight=0.1, layers=[2, 1]))
    with pytest.raises(ValueError, match=r"diversity\.weight='0\.5': expected a number"):
        build([], dict(weight='0.5', layers=[1, 2]))
    with pytest.raises(TypeError, match=r"missing .* 'weight'"):
        build([], dict(layers=[1, 2]))
    with pytest.raises(ValueError, match='blocks 0 to 3'):
        build([], dict(weight=0.1, layers=[0, 9])).loss(*batch())
    model = build([], dict(weight=0.1, layers=[0, 2]))
    for model.backbone in (lvt().double(), swin(window_size=2).double()):  # without maps, and of two stages
        with pytest.raises(ValueError, match=r'layers=\[0, 2\]: expected maps of one shape from each, but got \{.*2: '):
            model.loss(*batch())
