"""Tiny models that vitplug does not own, with random weights in double precision, and plugs to put into them."""

import importlib
from collections.abc import Callable, Mapping
from dataclasses import replace

import torch
from torch import Tensor, nn

import vitplug
from vitplug.plugs import PLUG_TYPES
from vitplug.plugs.plug_set import is_plug

SIZES = dict(img_size=32, num_classes=5, patch_size=8, embed_dim=32, num_heads=4, depth=3)
WINDOWS = dict(img_size=32, num_classes=5, embed_dim=16, depths=(2, 2), num_heads=(2, 4), window_size=4)
WINDOWS |= dict(drop_path_rate=0.0)
POOLS = dict(img_size=32, num_classes=5)
#: timm's names, and what makes them tiny.
TIMM = {
    'vit_tiny_patch16_224': SIZES,
    'deit_tiny_distilled_patch16_224': SIZES,
    'deit3_small_patch16_224': SIZES,
    'vit_small_patch14_reg4_dinov2': SIZES,
    'vit_medium_patch16_gap_240': SIZES,
    'vit_relpos_small_patch16_224': SIZES,
    'vit_relpos_medium_patch16_rpn_224': SIZES,
    'vit_srelpos_small_patch16_224': SIZES,
    'eva02_tiny_patch14_224': SIZES,
    'vit_small_patch16_dinov3': SIZES,
    'vit_small_patch16_rope_mixed_224': SIZES,
    'beit_base_patch16_224': SIZES,
    'swin_tiny_patch4_window7_224': WINDOWS,
    'swinv2_tiny_window8_256': WINDOWS,
    'mvitv2_tiny': POOLS,
    'mvitv2_small_cls': POOLS,
    'pit_ti_224': dict(POOLS, patch_size=8, stride=4, base_dims=(8, 8), depth=(2, 1), heads=(2, 4)),
    'pit_ti_distilled_224': dict(POOLS, patch_size=8, stride=4, base_dims=(8, 8), depth=(2, 1), heads=(2, 4)),
    'mixer_s16_224': dict(POOLS, patch_size=8, embed_dim=32, num_blocks=3),
}
#: Settings of MViTv2 for tiny models.
MVIT = dict(depths=(1, 2), embed_dim=16, num_heads=2, stride_q=((1, 1), (2, 2)), stride_kv_adaptive=(2, 2))
_SIZES = dict(hidden_size=32, num_hidden_layers=3, num_attention_heads=4, intermediate_size=48)
_IMAGES = dict(_SIZES, image_size=32, patch_size=8)
_STAGES = dict(image_size=32, patch_size=4, embed_dim=16, depths=[2, 2], num_heads=[2, 4], window_size=4)
_WORDS = dict(_SIZES, vocab_size=50, max_position_embeddings=40)
#: Classes of transformers, of their configs, and settings.
HUGGING_FACE = {
    'ViTForImageClassification': ('ViTConfig', _IMAGES),
    'DeiTForImageClassification': ('DeiTConfig', _IMAGES),
    'Dinov2ForImageClassification': ('Dinov2Config', dict(_IMAGES, use_swiglu_ffn=True)),
    'Dinov2WithRegistersForImageClassification': ('Dinov2WithRegistersConfig', _IMAGES),
    'DINOv3ViTModel': ('DINOv3ViTConfig', dict(_IMAGES, num_register_tokens=2)),
    'BeitForImageClassification': ('BeitConfig', dict(_IMAGES, use_relative_position_bias=True)),
    'CLIPVisionModel': ('CLIPVisionConfig', _IMAGES),
    'SiglipVisionModel': ('SiglipVisionConfig', _IMAGES),
    'SwinForImageClassification': ('SwinConfig', _STAGES),
    'Swinv2ForImageClassification': ('Swinv2Config', _STAGES),
    'BertForSequenceClassification': ('BertConfig', _WORDS),
    'RobertaForSequenceClassification': ('RobertaConfig', _WORDS),
    'ElectraForSequenceClassification': ('ElectraConfig', dict(_WORDS, embedding_size=16)),
}
TEXT = [name for name in HUGGING_FACE if name.startswith(('Bert', 'Roberta', 'Electra'))]
#: All plugs; settings that suit the tiny models where the defaults do not.
PLUGS = {plug.__name__: dict(type=plug.__name__) for plug in PLUG_TYPES}
PLUGS['SqueezeExcite']['reduction'] = 4
#: Plugs that together take every kind of socket: q, k and v, scores, maps, tokens, extra tokens, carry, the network.
TOGETHER = 'residual+gab+broad+cb(scaled=True)+value-residual+registers'
NO_PREFIX = TOGETHER.replace('+registers', '')


def together(name: str) -> str:
    """The plugs of :data:`TOGETHER` that a model takes."""
    if name.startswith('mixer'):
        return 'cb(scaled=True)+peg'
    if name.startswith('mvitv2'):  # its grids differ from block to block
        return TOGETHER.replace('+value-residual', '')
    without = ('swin', 'beit', 'vit_relpos', 'vit_srelpos', 'Beit', 'Swin', *TEXT)
    return NO_PREFIX if name.startswith(without) else TOGETHER


def scatter(model: nn.Module, seed: int = 0, only_plugs: bool = False) -> nn.Module:
    """The model with random weights; with ``only_plugs``, those of the plugs are moved from their start."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, p in model.named_parameters():
            noise = 0.2 * torch.randn(p.shape, generator=generator, dtype=torch.float64)
            if not only_plugs:
                p.copy_(noise)
            elif is_plug(name):
                p.add_(noise)
    return model


def timm_model(name: str, **settings) -> nn.Module:
    """A tiny model of timm, for inference."""
    import timm

    settings = {**TIMM[name], **settings}
    build = _OF_SIZE.get(name.partition('_')[0], timm.create_model)
    return scatter(build(name, **settings)).double().eval()


def _mvit(name: str, cfg: Mapping = {}, **settings) -> nn.Module:
    from timm.models.mvitv2 import MultiScaleVit, model_cfgs

    return MultiScaleVit(replace(model_cfgs[name], **{**MVIT, **cfg}, stride_kv=None), **settings)


def _mixer(name: str, **settings) -> nn.Module:
    from timm.models.mlp_mixer import MlpMixer

    return MlpMixer(**settings)


# Models whose constructors of that name fix their size.
_OF_SIZE = {'mvitv2': _mvit, 'mixer': _mixer}


def hugging_face_model(name: str) -> nn.Module:
    """A tiny model of transformers, for inference."""
    transformers = importlib.import_module('transformers')
    config, settings = HUGGING_FACE[name]
    model = getattr(transformers, name)(getattr(transformers, config)(**settings))
    return scatter(model).double().eval()


def images(batch: int = 2, size: int = 32) -> Tensor:
    """Random images."""
    return torch.randn(batch, 3, size, size, generator=torch.Generator().manual_seed(1), dtype=torch.float64)


def inputs_of(name: str) -> Mapping[str, Tensor]:
    """Inputs of a model of transformers; the second sentence is padded."""
    if name not in TEXT:
        return dict(pixel_values=images())
    words = torch.randint(3, 50, (2, 12), generator=torch.Generator().manual_seed(1))
    return dict(input_ids=words, attention_mask=torch.tensor([[1] * 12, [1] * 7 + [0] * 5]))


def gradients(model: nn.Module, run: Callable[[], Tensor]) -> dict[str, Tensor]:
    """Gradients of a sum of squares, by parameter."""
    model.zero_grad()
    torch.manual_seed(0)
    run().square().sum().backward()
    return {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}


def assert_same(found: Mapping[str, Tensor], expected: Mapping[str, Tensor], atol: float = 1e-12) -> None:
    """The same keys, and equal tensors to rounding."""
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        torch.testing.assert_close(
            found[name], value, atol=atol, rtol=1e-9, msg=lambda text, name=name: f'{name}: {text}'
        )


def plugged(model: nn.Module, plugs=TOGETHER) -> nn.Module:
    """The model with plugs away from their start."""
    torch.manual_seed(0)  # some plugs start at random
    return scatter(vitplug.plug_in(model, plugs), only_plugs=True)
