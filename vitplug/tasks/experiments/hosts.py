"""The hosts of the libraries' own backbones, and their arguments under the names that the hosts give them."""

from collections.abc import Callable, Mapping


def _stock_swin(backbone: Mapping) -> dict:
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


def _stock_vit(backbone: Mapping) -> dict:
    """The same of mmseg's ViT; its patches get the bias that pretrained weights have and mmseg leaves out."""
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
        final_norm=backbone.get('final_norm', False),
        out_type='featmap',
    )


def _refuse_others(backbone: Mapping, *allowed: Mapping) -> None:
    """Refuses settings that vitplug's host has at one value only.

    Raises:
        ValueError: names the setting and the value.
    """
    for key, value in (item for settings in allowed for item in settings.items()):
        found = backbone.get(key, value)
        if found != value and list(_as_tuple(found)) != list(_as_tuple(value)):
            raise ValueError(f'--base: backbone.{key} = {found!r}: the host of vitplug has {value!r} only')


def _as_tuple(value) -> tuple:
    """A tuple or list as a tuple, anything else as a tuple of it."""
    return tuple(value) if isinstance(value, list | tuple) else (value,)


# The hosts of the backbones of the three libraries, and what makes their arguments those of the host; None where they
# have the same ones.
HOSTS: dict[tuple[str, str], tuple[str, Callable[[Mapping], dict] | None]] = {
    ('mmpretrain', 'VisionTransformer'): ('vitplug.VisionTransformer', None),
    ('mmpretrain', 'SwinTransformer'): ('vitplug.SwinTransformer', None),
    ('mmdet', 'SwinTransformer'): ('vitplug.SwinTransformer', _stock_swin),
    ('mmseg', 'SwinTransformer'): ('vitplug.SwinTransformer', _stock_swin),
    ('mmseg', 'VisionTransformer'): ('vitplug.VisionTransformer', _stock_vit),
}
