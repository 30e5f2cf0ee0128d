"""Foundation models by name: the arguments of :class:`VisionTransformer` that make the network of published weights.

Sources: *DINOv2* (2023), *Vision Transformers Need Registers* (2024), *DINOv3* (2025), *EVA-02* (2023), *Masked
Autoencoders* (2022), *CLIP* (2021) and *Sigmoid Loss for Language Image Pre-Training* (SigLIP, 2023), and their code.
"""

import re
from collections.abc import Mapping
from typing import Any

from vitplug.registry import MODELS

from .vision_transformer import VisionTransformer

_DINOV2 = dict(img_size=518, patch_size=14, layer_scale_init_value=1e-5, interpolate_mode='bicubic-offset')
_REGISTERS = dict(num_storage_tokens=4, interpolate_mode='bicubic-antialias')
_DINOV3 = dict(
    num_storage_tokens=4,
    rotary=dict(mode='dinov3', rescale=2.0),
    use_abs_pos_embed=False,
    layer_scale_init_value=1e-5,
    norm_cfg=dict(type='LN', eps=1e-5),
    layer_cfgs=dict(key_bias=False),
)
_SWIGLU = dict(layer_cfgs=dict(ffn_type='swiglu', key_bias=False))
_EVA02 = dict(
    patch_size=14,
    rotary='eva02',
    # Its classifiers average the patch tokens before the only norm.
    out_type='avg_featmap',
    final_norm=False,
    interpolate_mode='bicubic-antialias',
    **_SWIGLU,
)
_SCALED_MLP = dict(layer_cfgs=dict(ffn_type='swiglu', ffn_norm=True, key_bias=False))
_CLIP = dict(
    pre_norm=True, norm_cfg=dict(type='LN', eps=1e-5), layer_cfgs=dict(act_cfg=dict(type='mmpretrain.QuickGELU'))
)
_SIGLIP = dict(with_cls_token=False, out_type='featmap', layer_cfgs=dict(act_cfg=dict(type='GELU', approximate='tanh')))

# Names, and the arguments of the network. Of several rows that match a name, later ones count.
_NETWORKS: tuple[tuple[str, dict[str, Any]], ...] = (
    (r'dinov2-.*', _DINOV2),
    (r'dinov2-.*-reg', _REGISTERS),
    (r'dinov2-(?:g|giant)(?:-reg)?', dict(layer_cfgs=dict(ffn_type='swiglu_fused'))),
    (r'dinov3-.*', _DINOV3),
    (r'dinov3-.*(?:\+|7b)', _SWIGLU),
    (r'dinov3-7b', dict(qkv_bias=False)),
    (r'eva02-.*', _EVA02),
    (r'eva02-(?:b|base|l|large)', _SCALED_MLP),
    (r'mae-.*', {}),
    (r'mae-(?:h|huge)', dict(patch_size=14)),
    (r'clip-.*', _CLIP),
    (r'clip-(?:l|large)', dict(patch_size=14)),
    (r'siglip-.*', _SIGLIP),
)
NAMES = (
    'dinov2-{s,b,l,g}, dinov2-{s,b,l,g}-reg, dinov3-{s,s+,b,l,h+,7b}, eva02-{t,s,b,l}, mae-{b,l,h}, clip-{b,l}, '
    'siglip-{b,l}'
)
# Names whose sizes are those of another architecture of :class:`VisionTransformer`.
_SIZES = re.compile(r'(?:mae|clip|siglip)-(.*)|(dinov2-.*)-reg')


def network_settings(arch: str) -> dict[str, Any]:
    """The arguments of :class:`VisionTransformer` for the network of a name.

    Raises:
        ValueError: If there is none of the name.
    """
    matching = [settings for name, settings in _NETWORKS if re.fullmatch(name, arch)]
    sizes = _SIZES.fullmatch(arch)
    known = (sizes[1] or sizes[2]) if sizes else arch
    if not matching or known not in VisionTransformer.arch_zoo:
        raise ValueError(f'arch={arch!r}: unknown; choose from {NAMES}')
    return {key: value for settings in matching for key, value in settings.items()} | dict(arch=known)


@MODELS.register_module()
class FoundationTransformer(VisionTransformer):
    """A :class:`VisionTransformer` with the arguments of a foundation model, each of which may be replaced.

    Args:
        arch: Name of the network: ``dinov2-{s,b,l,g}``, ``dinov2-{s,b,l,g}-reg``, ``dinov3-{s,s+,b,l,h+,7b}``,
            ``eva02-{t,s,b,l}``, ``mae-{b,l,h}``, ``clip-{b,l}`` or ``siglip-{b,l}``.
        settings: Arguments of :class:`VisionTransformer` that replace the network's. ``layer_cfgs``, if it is a dict,
            adds to the network's.

    Raises:
        ValueError: If there is no such network, or as in :class:`VisionTransformer`.
    """

    def __init__(self, arch: str, **settings):
        network = network_settings(arch)
        layer_cfgs = settings.get('layer_cfgs')
        if isinstance(layer_cfgs, Mapping):
            settings['layer_cfgs'] = {**network.get('layer_cfgs', {}), **layer_cfgs}
        super().__init__(**{**network, **settings})
