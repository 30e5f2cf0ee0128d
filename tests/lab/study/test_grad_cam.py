"""Grad-CAM against hooks and autograd by hand, in float64, and models whose map is known."""

from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from cases import HOSTS, images, mixer, randomize, vit
from mmengine.registry import init_default_scope
from mmpretrain.models import GlobalAveragePooling, ImageClassifier, LinearClsHead
from mmseg.registry import MODELS as SEGMENTORS
from torch import nn
from torch.testing import assert_close

from vitplug.hosting import mark_padding
from vitplug.lab.study.measures.grad_cam import grad_cams
from vitplug.tasks.targets import ClassLogit, PixelClass, Scores

CONFIGS = Path(__file__).parents[3] / 'configs' / 'digits'
SIZE = (40, 56)
# Grid of each block for images of 40 x 56, and prefix tokens. Maps that no window divides are padded.
GRIDS = {
    'vit': ([(5, 7)] * 4, 1),
    'vit-no-cls': ([(5, 7)] * 4, 0),
    'vit-windows': ([(5, 7)] * 4, 0),
    'swin': ([(10, 14)] * 2 + [(5, 7)] * 2, 0),
    'swin-v2': ([(10, 14)] * 2 + [(5, 7)] * 2, 0),
    'mvit-cls': ([(10, 14), (5, 7), (5, 7), (3, 4)], 1),
    'pit': ([(9, 13)] * 2 + [(5, 7), (3, 4)], 1),
    'lvt': ([(10, 14), (5, 7), (5, 7), (3, 4)], 0),
}


def classifier(backbone: nn.Module, seed=0, size=SIZE) -> ImageClassifier:
    """Global average pooling and a linear layer on the last output."""
    with torch.no_grad():
        width = backbone.eval()(images(*size, dtype=torch.float32))[-1].shape[1]
    neck = GlobalAveragePooling() if backbone.out_type != 'cls_token' else None
    return randomize(ImageClassifier(backbone, neck, LinearClsHead(5, width)), seed).double().eval()


def grad_cam(model, x, target=None):
    """The map of the last block whose patch tokens the score depends on."""
    found, _ = grad_cams(model, x, target)
    return found[max(found)]


def with_featmap(host: str) -> nn.Module:
    backbone = HOSTS[host]()
    backbone.out_type = getattr(backbone, 'out_type', 'featmap')
    return backbone


# --- the same by hooks ---


def map_by_hooks(model, x, score, layer, grid, num_prefix):
    """The definition in loops over channels; `score` of the model on x, after a backward through a hook."""
    block = model.backbone.plugged_blocks()[layer]
    # Swin V2 normalises the branch before it is added.
    is_v2 = type(model.backbone).__name__ == 'SwinTransformerV2'
    module, is_pair = (block.norm1, 0) if is_v2 else (block.attn, 1)
    kept = []

    def keep(_, inputs, out):
        kept.append(out[0] if is_pair else out)
        kept[0].retain_grad()

    hook = module.register_forward_hook(keep)
    try:
        score(model, x.clone().requires_grad_()).backward()
    finally:
        hook.remove()
        model.zero_grad()
    tokens, gradient = kept[0].detach()[:, num_prefix:], kept[0].grad[:, num_prefix:]
    total = torch.zeros(len(x), *grid, dtype=torch.float64)
    for channel in range(tokens.shape[2]):
        for b in range(len(x)):
            weight = gradient[b, :, channel].sum() / (grid[0] * grid[1])
            total[b] += weight * tokens[b, :, channel].reshape(grid)
    return total.clamp(min=0)


@pytest.mark.parametrize('host', GRIDS)
def test_map_is_that_of_hooks(host):
    model, x = classifier(with_featmap(host)), images(*SIZE)
    grids, num_prefix = GRIDS[host]
    highest = dict.fromkeys(range(4), 0.0)
    for sign in (1, -1):  # where the tokens of one speak against it, they speak for the other
        found, scores = grad_cams(model, x, lambda m, x, sign=sign: Scores(sign * m(x)[:, 3], ('one', 'other')))
        assert list(found) == [0, 1, 2, 3] and scores.names == ('one', 'other')
        assert_close(scores.values, sign * model(x)[:, 3].detach())
        for layer, heat in found.items():
            expected = map_by_hooks(
                model, x, lambda m, x, sign=sign: sign * m(x)[:, 3].sum(), layer, grids[layer], num_prefix
            )
            assert_close(heat, expected)
            highest[layer] = max(highest[layer], expected.max().item())
    assert min(highest.values()) > 0


# --- which layer ---


def test_class_token_reads_no_patch_after_the_last_attention():
    model, x = classifier(vit(out_type='cls_token')), images(*SIZE)
    found, _ = grad_cams(model, x)
    assert max(found) == 2 and found[2].any()


def test_model_stays_as_it_is():
    model, x = classifier(HOSTS['vit'](plugs=[dict(type='ContextBroadcast')])), images(*SIZE)
    model.backbone.layers[0].requires_grad_(False)
    before = {name: (value.clone(), value.requires_grad) for name, value in model.named_parameters()}
    expected = grad_cam(model, x)
    for name, value in model.named_parameters():
        assert torch.equal(value, before[name][0]) and value.requires_grad == before[name][1] and value.grad is None
    model.requires_grad_(False)
    for without in (torch.no_grad(), torch.inference_mode()):
        with without:
            assert_close(grad_cam(model, x.clone()), expected)


# --- segmentation ---


@pytest.fixture(scope='module')
def segmentor():
    init_default_scope('mmseg')
    head = dict(type='FCNHead', in_channels=24, in_index=0, channels=8, num_convs=1, num_classes=3, norm_cfg=None)
    cfg = dict(type='EncoderDecoder', backbone=dict(type=vit), decode_head=head, test_cfg=dict(mode='whole'))
    return randomize(SEGMENTORS.build(cfg)).double().eval()


def pixel_logits(model, x):
    """Of the whole images, without mmseg's own prediction."""
    return F.interpolate(model.decode_head(model.backbone(x)), x.shape[-2:], mode='bilinear', align_corners=False)


def test_class_of_pixels(segmentor):
    x = images(*SIZE, batch=1)
    logits = pixel_logits(segmentor, x)
    label = int(logits[0, :, 3, 50].argmax())
    region = logits[0].argmax(0) == label
    assert 0 < region.sum() < region.numel()
    found, scores = grad_cams(segmentor, x, PixelClass(label))

    def score(model, x):
        return pixel_logits(model, x)[0, label][region].sum()

    assert_close(found[1], map_by_hooks(segmentor, x, score, 1, (5, 7), 1))
    assert_close(scores.values[0], score(segmentor, x).detach())
    assert scores.names[0].endswith(f'its {int(region.sum())} pixels')


def test_padding_is_no_region(segmentor):
    x = mark_padding(images(*SIZE, batch=1), [(40, 9)])
    logits = pixel_logits(segmentor, x)[:, :, :, :9]
    most = int(logits[0].argmax(0).flatten().bincount().argmax())
    count = int((logits[0].argmax(0) == most).sum())
    assert grad_cams(segmentor, x)[1].names == (f'logits of class {most}, summed over its {count} pixels',)


# --- wrong arguments ---


def test_wrong_arguments_are_named():
    model, x = classifier(vit()), images(*SIZE)
    with pytest.raises(ValueError, match='label=5: expected 0 to 4'):
        grad_cam(model, x, ClassLogit(5))
    with pytest.raises(ValueError, match='ImageClassifier is in training mode'):
        grad_cam(model.train(), x)
    other = ImageClassifier(dict(type='mmpretrain.ResNet', depth=18), GlobalAveragePooling(), LinearClsHead(5, 512))
    with pytest.raises(ValueError, match='ImageClassifier has no plugs'):
        grad_cam(other.eval(), x)
    mlps = classifier(mixer(out_type='featmap'), size=(32, 48))
    with pytest.raises(ValueError, match='blocks of MlpMixer have no output of the attention branch'):
        grad_cam(mlps, images(32, 48))
