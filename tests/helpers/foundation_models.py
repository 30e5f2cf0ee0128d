"""Foundation models of timm, Hugging Face and Meta with random weights, narrow, and the host of the same network.

Hugging Face's classes need `transformers`, which makes mmpretrain import its multimodal models, and those fail on
transformers 5: install it in a folder of its own and name that in VITPLUG_TRANSFORMERS::

    pip install --target DIR --no-deps transformers tokenizers
"""

import importlib
import os
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any
from unittest import mock

import meta_dino
import timm
import torch
import torch.nn.functional as F
from cases import randomize
from safetensors.torch import load_file
from torch import Tensor, nn

from vitplug.backbones import VisionTransformer
from vitplug.backbones.foundation import network_settings

WIDTH, HEADS, HIDDEN, DEPTH, SIDE = 32, 2, 64, 3, 4
#: Grids of tokens: that of the table, and others. Coordinates on grids of powers of 2 are exact in float32, in which
#: timm computes those of rotary positions.
TRAINED, OTHERS = (SIDE, SIDE), [(8, 8), (8, 2), (2, 4)]
ODD = [(5, 7), (3, 3)]

State = dict[str, Tensor]
#: Tokens of images: after the final norm, and after each block.
Features = tuple[Tensor, list[Tensor]]


@dataclass(frozen=True)
class Model:
    """A model of others.

    Args:
        source: Name of the format that has to be recognised.
        arch: Name of the network.
        build: Builds its weights, as they lie in its files, and the function from images to tokens.
        settings: Arguments of the host that its file shows beside those of the network.
        is_rotary: Whether it has coordinates in float32, which cannot be changed.
    """

    source: str
    arch: str
    build: Callable[[VisionTransformer], tuple[State, Callable[[Tensor], Features]]]
    settings: Mapping[str, Any] = field(default_factory=dict)
    is_rotary: bool = False

    def host(self, **settings) -> VisionTransformer:
        """The host of the same network, in double precision, with narrow blocks."""
        network = network_settings(self.arch)
        arch = dict(embed_dims=WIDTH, num_layers=DEPTH, num_heads=HEADS, feedforward_channels=HIDDEN)
        if network.get('layer_cfgs', {}).get('ffn_type') == 'swiglu_fused':
            arch['feedforward_channels'] = HIDDEN * 3 // 2
        network |= dict(arch=arch, img_size=SIDE * network.get('patch_size', 16), out_type='raw')
        return randomize(VisionTransformer(**{**network, **self.settings, **settings})).double().eval()

    def grids(self) -> list[tuple[int, int]]:
        """Other grids than that of the table."""
        return OTHERS if self.is_rotary else [*OTHERS, *ODD]


def transformers() -> Any:
    """The package; None if it is not installed."""
    importlib.import_module('mmpretrain.models')  # before transformers can be seen, see above
    folder = os.environ.get('VITPLUG_TRANSFORMERS')
    if folder and folder not in sys.path:
        sys.path.append(folder)
    try:
        return importlib.import_module('transformers')
    except ImportError:
        return None


def of_timm(name: str, host: VisionTransformer, **settings) -> tuple[State, Callable[[Tensor], Features]]:
    """A model of timm."""
    sizes = dict(embed_dim=WIDTH, num_heads=HEADS, depth=DEPTH, mlp_ratio=HIDDEN / WIDTH, dynamic_img_size=True)
    img_size = SIDE * host.patch_embed.projection.kernel_size[0]
    model = randomize(timm.create_model(name, img_size=img_size, **{**sizes, **settings})).double().eval()
    rope = getattr(model, 'rope', None)
    if hasattr(rope, 'bands'):
        rope.bands = 1 / host.rotary.periods.double()
        rope.get_embed = partial(rope.get_embed, dtype=torch.float64)

    def tokens(images: Tensor) -> Features:
        found = model.forward_intermediates(
            images, output_fmt='NLC', return_prefix_tokens=True, intermediates_only=True
        )
        pairs = [pair if isinstance(pair, tuple) else (pair, pair[:, :0]) for pair in found]
        return model.forward_features(images), [torch.cat((prefix, patches), dim=1) for patches, prefix in pairs]

    return model.state_dict(), tokens


def of_hugging_face(name: str, host: VisionTransformer, **settings) -> tuple[State, Callable[[Tensor], Features]]:
    """A model of Hugging Face; its weights as `save_pretrained` writes them."""
    library = transformers()
    patch = host.patch_embed.projection.kernel_size[0]
    sizes = dict(hidden_size=WIDTH, num_attention_heads=HEADS, num_hidden_layers=DEPTH, intermediate_size=HIDDEN)
    sizes |= dict(mlp_ratio=HIDDEN // WIDTH, image_size=SIDE * patch, patch_size=patch, num_register_tokens=4)
    config = getattr(library, f'{name}Config')(**{**sizes, **settings})
    kind = getattr(library, f'{name}Model')
    model = randomize(kind(config)).double().eval()
    if hasattr(model, 'rope_embeddings'):
        model.rope_embeddings.inv_freq = 1 / host.rotary.periods.double()
        code = sys.modules[kind.__module__]
        code.get_patches_center_coordinates = partial(_in_double, code.get_patches_center_coordinates)
    further = dict(interpolate_pos_encoding=True) if name in ('ViT', 'CLIPVision', 'SiglipVision') else {}

    def tokens(images: Tensor) -> Features:
        with mock.patch.object(F, 'interpolate', partial(_in_float32, F.interpolate)):
            out = model(images, output_hidden_states=True, **further)
        last = out.last_hidden_state
        if name == 'CLIPVision':
            last = model.post_layernorm(last)
        blocks = list(out.hidden_states[1:])
        return last, blocks

    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        return load_file(os.path.join(folder, 'model.safetensors')), tokens


def _in_double(coordinates: Callable[..., Tensor], rows: int, columns: int, dtype: torch.dtype, device: Any) -> Tensor:
    """Coordinates of tokens in double precision, which that library takes in float32."""
    return coordinates(rows, columns, torch.float64, device)


def _in_float32(interpolate: Callable[..., Tensor], table: Tensor, **settings) -> Tensor:
    """A resized table of positions: ViT, CLIP and SigLIP alone resize in the precision of the weights."""
    return interpolate(table.float(), **settings).to(table.dtype)


def of_meta(host: VisionTransformer, **settings) -> tuple[State, Callable[[Tensor], Features]]:
    """DINOv2 or DINOv3 by the keys of its authors."""
    state = meta_dino.random_state(
        WIDTH, HEADS, HIDDEN, DEPTH, SIDE, host.patch_embed.projection.kernel_size[0], **settings
    )
    return state, partial(meta_dino.tokens, state, HEADS)


def _meta(source: str, arch: str, host: Mapping[str, Any] | None = None, **settings) -> Model:
    return Model(f'Meta {source}', arch, partial(of_meta, **settings), host or {})


def _timm(source: str, arch: str, name: str, host: Mapping[str, Any] | None = None, **settings) -> Model:
    is_rotary = source.startswith(('DINOv3', 'EVA'))
    return Model(f'timm {source}', arch, partial(of_timm, name, **settings), host or {}, is_rotary)


def _face(source: str, arch: str, name: str, resized: str | None = None, **settings) -> Model:
    host = dict(interpolate_mode=resized) if resized else {}
    return Model(f'Hugging Face {source}', arch, partial(of_hugging_face, name, **settings), host)


ANTIALIAS = dict(interpolate_mode='bicubic-antialias')
WIDE = 2 * HIDDEN / WIDTH
MODELS: dict[str, Model] = {
    'Meta DINOv2': _meta('DINOv2', 'dinov2-s'),
    'Meta DINOv2, registers': _meta('DINOv2', 'dinov2-s-reg', registers=4),
    'Meta DINOv2-g': _meta('DINOv2', 'dinov2-g', gated='w12'),
    'Meta DINOv3': _meta('DINOv3', 'dinov3-s', registers=4, version=3),
    'Meta DINOv3-S+': _meta('DINOv3', 'dinov3-s+', registers=4, version=3, gated='w1'),
    'timm DINOv2': _timm('ViT', 'dinov2-s', 'vit_small_patch14_dinov2', ANTIALIAS),
    'timm DINOv2, registers': _timm('ViT', 'dinov2-s-reg', 'vit_small_patch14_reg4_dinov2'),
    'timm DINOv2-g': _timm('ViT', 'dinov2-g', 'vit_giant_patch14_dinov2', ANTIALIAS, mlp_ratio=WIDE),
    'timm DINOv3': _timm('DINOv3', 'dinov3-s', 'vit_small_patch16_dinov3'),
    'timm DINOv3, biases': _timm('DINOv3', 'dinov3-s', 'vit_small_patch16_dinov3_qkvb'),
    'timm DINOv3-S+': _timm('DINOv3', 'dinov3-s+', 'vit_small_plus_patch16_dinov3'),
    'timm EVA-02-S': _timm('EVA-02 or original', 'eva02-s', 'eva02_small_patch14_224'),
    'timm EVA-02-B': _timm('EVA-02 or original', 'eva02-b', 'eva02_base_patch14_224'),
    'timm CLIP': _timm('ViT', 'clip-b', 'vit_base_patch16_clip_quickgelu_224', ANTIALIAS),
    'timm SigLIP': _timm('ViT', 'siglip-b', 'vit_base_patch16_siglip_224', ANTIALIAS, act_layer='gelu_tanh'),
    'timm MAE': _timm('ViT', 'mae-b', 'vit_base_patch16_224', ANTIALIAS),
}
HF_VIT = 'ViT or DINOv2'
GATED = dict(use_gated_mlp=True, hidden_act='silu')
HUGGING_FACE: dict[str, Model] = {
    'Hugging Face DINOv2': _face(HF_VIT, 'dinov2-s', 'Dinov2', 'bicubic'),
    'Hugging Face DINOv2-g': _face(HF_VIT, 'dinov2-g', 'Dinov2', 'bicubic', use_swiglu_ffn=True, mlp_ratio=3),
    'Hugging Face DINOv2, registers': _face(HF_VIT, 'dinov2-s-reg', 'Dinov2WithRegisters'),
    'Hugging Face DINOv3': _face('DINOv3', 'dinov3-s', 'DINOv3ViT'),
    'Hugging Face DINOv3-S+': _face('DINOv3', 'dinov3-s+', 'DINOv3ViT', **GATED),
    'Hugging Face ViT, MAE': _face(HF_VIT, 'mae-b', 'ViT', layer_norm_eps=1e-6),
    'Hugging Face CLIP': _face('CLIP or SigLIP', 'clip-b', 'CLIPVision'),
    'Hugging Face SigLIP': _face('CLIP or SigLIP', 'siglip-b', 'SiglipVision'),
}


def images(grid: Sequence[int], host: nn.Module) -> Tensor:
    """Random images with so many tokens."""
    sides = [rows * patch for rows, patch in zip(grid, host.patch_embed.projection.kernel_size, strict=True)]
    return torch.randn(2, 3, *sides, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
