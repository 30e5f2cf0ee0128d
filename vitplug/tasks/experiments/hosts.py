"""vitplug's hosts for the libraries' own backbones, and the arguments under the names that the hosts give them."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Host:
    """A host that replaces a library's own backbone.

    Attributes:
        type: Its type in a config.
        convert: Makes the backbone's arguments those of the host; None where both have the same.
    """

    type: str
    convert: Callable[[Mapping], dict] | None = None


def convert_swin(backbone: Mapping) -> dict:
    """The arguments of mmdet's and mmseg's Swin under the names that mmpretrain gives them."""
    same = ('in_channels', 'patch_size', 'window_size', 'drop_rate', 'drop_path_rate', 'use_abs_pos_embed')
    same += ('out_indices', 'norm_cfg', 'with_cp', 'frozen_stages')
    defaults = dict(mlp_ratio=4, qkv_bias=True, qk_scale=None, patch_norm=True, attn_drop_rate=0.0)
    _refuse_others(backbone, defaults, {'strides': (4, 2, 2, 2), 'act_cfg': dict(type='GELU')})
    arch = dict(embed_dims=96, depths=[2, 2, 6, 2], num_heads=[3, 6, 12, 24])
    return dict(
        arch={key: backbone.get(key, default) for key, default in arch.items()},
        img_size=backbone.get('pretrain_img_size', 224),
        **{key: backbone[key] for key in same if key in backbone},
        **({} if 'out_indices' in backbone else dict(out_indices=(0, 1, 2, 3))),
        pad_small_map=True,
    )


def convert_vit(backbone: Mapping) -> dict:
    """The same of mmseg's ViT.

    Its patches get a bias, unless the config states that they have none: mmseg leaves it out by default and drops that
    of pretrained weights.
    """
    same = ('img_size', 'patch_size', 'in_channels', 'out_indices', 'drop_rate', 'drop_path_rate', 'with_cls_token')
    same += ('norm_cfg', 'interpolate_mode', 'qkv_bias', 'pre_norm', 'with_cp')
    defaults = dict(attn_drop_rate=0.0, output_cls_token=False, out_origin=False, patch_norm=False, num_fcs=2)
    _refuse_others(backbone, defaults, {'patch_pad': 'corner', 'act_cfg': dict(type='GELU'), 'norm_eval': False})
    width, ratio = backbone.get('embed_dims', 768), backbone.get('mlp_ratio', 4)
    return dict(
        arch=dict(
            embed_dims=width,
            num_layers=backbone.get('num_layers', 12),
            num_heads=backbone.get('num_heads', 12),
            feedforward_channels=int(ratio * width),
        ),
        **{key: backbone[key] for key in same if key in backbone},
        patch_cfg=dict(bias=backbone.get('patch_bias', True)),
        final_norm=backbone.get('final_norm', False),
        out_type='featmap',
    )


def _refuse_others(backbone: Mapping, *allowed: Mapping) -> None:
    """Refuses settings that vitplug's host has at one value only.

    Raises:
        ValueError: names the setting and the value.
    """
    for key, value in (item for settings in allowed for item in settings.items()):
        setting = backbone.get(key, value)
        if setting != value and list(_as_tuple(setting)) != list(_as_tuple(value)):
            raise ValueError(f'--base: backbone.{key} = {setting!r}: the host of vitplug has {value!r} only')


def _as_tuple(value) -> tuple:
    """A tuple or list as a tuple, anything else as a tuple of it."""
    return tuple(value) if isinstance(value, list | tuple) else (value,)
