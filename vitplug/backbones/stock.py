"""Stock configs of all three libraries: mmdet's and mmseg's arguments of their own Swin and ViT.

The hosts' arguments are mmpretrain's. :func:`takes` lets a host take those of another library as well, with that
library's defaults: a child of ``mmdet::swin/...`` changes the ``type``, adds ``plugs``, and nothing else. One argument
that mmpretrain does not have, such as ``embed_dims``, tells whose they are.
"""

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import wraps
from types import SimpleNamespace
from typing import Any

from .patch_embed import size_of


@dataclass(frozen=True)
class Words:
    """The arguments of other libraries' backbone.

    Attributes:
        libraries: Whose they are, for messages.
        defaults: All of them, with their defaults.
        translate: Makes the host's arguments of all of them.
        refused: Values that the host has no place for: argument, the only values that it has, and what to do.
        leaves_out: Tensors of files that this backbone does not read either.
    """

    libraries: str
    defaults: Mapping[str, Any]
    translate: Callable[[SimpleNamespace], dict[str, Any]]
    refused: Sequence[tuple[str, Sequence[Any], str]] = ()
    leaves_out: tuple[str, ...] = ()

    def translated(self, settings: Mapping[str, Any]) -> dict[str, Any]:
        """The host's arguments.

        Raises:
            ValueError: If a value is refused; names the argument, its value and what is allowed.
        """
        given = {**self.defaults, **settings}
        for name, allowed, advice in self.refused:
            if given[name] not in allowed:
                raise ValueError(f'{name}={given[name]!r}: the host of vitplug has no such form; {advice}')
        return self.translate(SimpleNamespace(**given))


def takes(words: Words) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Makes a host's constructor take the arguments of another library, too.

    Its positional arguments are mmpretrain's, those after ``*`` are vitplug's own and go with both.
    """

    def decorate(init: Callable[..., None]) -> Callable[..., None]:
        parameters = list(inspect.signature(init).parameters.values())[1:]
        positional = [p.name for p in parameters if p.kind is inspect.Parameter.POSITIONAL_OR_KEYWORD]
        own = [p.name for p in parameters if p.kind is inspect.Parameter.KEYWORD_ONLY]

        @wraps(init)
        def build(self, *args: Any, **settings: Any) -> None:
            settings = _with_init_cfg(settings)
            theirs = [name for name in settings if name in words.defaults and name not in positional + own]
            if not theirs:
                return init(self, *args, **settings)
            taken = {*words.defaults, *own}
            strange = [*positional[: len(args)], *(name for name in settings if name not in taken)]
            if strange:
                raise TypeError(
                    f'{type(self).__name__}: {theirs} are arguments of {words.libraries}; beside them, it has no '
                    f'argument {strange}; keep those of one library: {sorted(taken)}'
                )
            given = {name: settings.pop(name) for name in words.defaults if name in settings}
            init(self, **words.translated(given), **settings)
            self.leaves_out = words.leaves_out

        return build

    return decorate


def _with_init_cfg(settings: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments with ``pretrained``, which mmseg's segmentors still hand to any backbone, as an ``init_cfg``.

    Raises:
        ValueError: If both are given.
    """
    settings = dict(settings)
    pretrained = settings.pop('pretrained', None)
    if pretrained is None:
        return settings
    if settings.get('init_cfg') is not None:
        raise ValueError(f'pretrained={pretrained!r} beside init_cfg={settings["init_cfg"]!r}: keep one of them')
    return settings | dict(init_cfg=dict(type='Pretrained', checkpoint=pretrained))


def _patches(size: Any, patch_size: int) -> tuple[int, int]:
    """The part of an image, in pixels, that whole patches cover: these libraries count no others in their tables.

    Raises:
        ValueError: If the sizes are none.
    """
    height, width = size_of(size[0] if isinstance(size, Sequence) and len(size) == 1 else size)
    return height // patch_size * patch_size, width // patch_size * patch_size


# --- Swin ---


def _swin(of: SimpleNamespace) -> dict[str, Any]:
    """mmdet's and mmseg's Swin: norms and drop rates everywhere, every output normalised, maps padded to windows."""
    if of.strides[0] != of.patch_size or len(of.strides) != len(of.depths):
        raise ValueError(
            f'strides={of.strides!r}: expected patch_size={of.patch_size!r}, then one for each further stage of '
            f'depths={of.depths!r}'
        )
    patch_norm = of.norm_cfg if of.patch_norm else None
    blocks = dict(
        ffn_ratio=of.mlp_ratio,
        norm_cfg=of.norm_cfg,
        attn_cfgs=dict(qkv_bias=of.qkv_bias, qk_scale=of.qk_scale, attn_drop=of.attn_drop_rate, proj_drop=of.drop_rate),
        ffn_cfgs=dict(act_cfg=of.act_cfg, ffn_drop=of.drop_rate),
    )
    return dict(
        arch=dict(embed_dims=of.embed_dims, depths=list(of.depths), num_heads=list(of.num_heads)),
        img_size=_patches(of.pretrain_img_size, of.patch_size),
        pad_small_map=True,
        patch_cfg=dict(norm_cfg=patch_norm),
        stage_cfgs=[
            dict(block_cfgs=blocks, downsample_cfg=dict(norm_cfg=patch_norm, stride=stride))
            for stride in (*of.strides[1:], None)
        ],
        # Theirs counts frozen stages, mmpretrain's names the last one.
        frozen_stages=of.frozen_stages if of.frozen_stages < 0 else of.frozen_stages - 1,
        init_cfg=of.init_cfg or [_LINEAR, dict(type='Constant', layer='LayerNorm', val=1.0, bias=0.0)],
        **{name: getattr(of, name) for name in _SAME_IN_SWIN},
    )


_LINEAR = dict(type='TruncNormal', layer='Linear', std=0.02, bias=0.0)
_SAME_IN_SWIN = (
    *('patch_size', 'in_channels', 'window_size', 'drop_rate', 'drop_path_rate', 'out_indices'),
    *('use_abs_pos_embed', 'norm_cfg', 'with_cp'),
)
SWIN = Words(
    'mmdet and mmseg',
    dict(
        pretrain_img_size=224,
        in_channels=3,
        embed_dims=96,
        patch_size=4,
        window_size=7,
        mlp_ratio=4,
        depths=(2, 2, 6, 2),
        num_heads=(3, 6, 12, 24),
        strides=(4, 2, 2, 2),
        out_indices=(0, 1, 2, 3),
        qkv_bias=True,
        qk_scale=None,
        patch_norm=True,
        drop_rate=0.0,
        attn_drop_rate=0.0,
        drop_path_rate=0.1,
        use_abs_pos_embed=False,
        act_cfg=dict(type='GELU'),
        norm_cfg=dict(type='LN'),
        with_cp=False,
        # Files of the original release are known by their keys.
        convert_weights=False,
        frozen_stages=-1,
        init_cfg=None,
    ),
    _swin,
    refused=[('frozen_stages', (-1, *range(1, 100)), 'set 1 for the embedding and the first stage, or -1 for none')],
)


# --- ViT ---


def _vit(of: SimpleNamespace) -> dict[str, Any]:
    """mmseg's ViT: maps of some blocks, no final norm and no bias at the patches unless asked for."""
    return dict(
        arch=dict(
            embed_dims=of.embed_dims,
            num_layers=of.num_layers,
            num_heads=of.num_heads,
            feedforward_channels=int(of.mlp_ratio * of.embed_dims),
        ),
        img_size=_patches(of.img_size, of.patch_size),
        patch_cfg=dict(padding=of.patch_pad, bias=of.patch_bias, norm_cfg=of.norm_cfg if of.patch_norm else None),
        layer_cfgs=dict(
            num_fcs=of.num_fcs,
            act_cfg=of.act_cfg,
            attn_drop_rate=of.attn_drop_rate,
            # Its blocks drop the MLP's branch alone.
            attn_drop_path_rate=0.0,
            init_cfg=_LINEAR,
        ),
        out_type='featmap_and_cls_token' if of.output_cls_token else 'featmap',
        init_cfg=of.init_cfg or [_LINEAR, dict(type='Kaiming', layer='Conv2d', mode='fan_in')],
        **{name: getattr(of, name) for name in _SAME_IN_VIT},
    )


_SAME_IN_VIT = (
    *('patch_size', 'in_channels', 'out_indices', 'qkv_bias', 'drop_rate', 'drop_path_rate', 'with_cls_token'),
    *('norm_cfg', 'pre_norm', 'final_norm', 'interpolate_mode', 'with_cp'),
)
VIT = Words(
    'mmseg',
    dict(
        img_size=224,
        patch_size=16,
        patch_pad='corner',
        in_channels=3,
        embed_dims=768,
        num_layers=12,
        num_heads=12,
        mlp_ratio=4,
        out_origin=False,
        out_indices=-1,
        qkv_bias=True,
        drop_rate=0.0,
        attn_drop_rate=0.0,
        drop_path_rate=0.0,
        with_cls_token=True,
        output_cls_token=False,
        norm_cfg=dict(type='LN'),
        act_cfg=dict(type='GELU'),
        patch_norm=False,
        patch_bias=False,
        pre_norm=False,
        final_norm=False,
        interpolate_mode='bicubic',
        num_fcs=2,
        # A layer norm has no other form in evaluation mode.
        norm_eval=False,
        with_cp=False,
        frozen_exclude=['all'],
        init_cfg=None,
    ),
    _vit,
    refused=[
        ('out_origin', (False,), 'its outputs are those of blocks: leave it out'),
        ('qkv_bias', (True,), 'without one, its projections have none either: use arguments of mmpretrain'),
        ('frozen_exclude', (['all'], ('all',)), "frozen='host' freezes all but the plugs"),
    ],
    leaves_out=('patch_embed.projection.bias', 'cls_token'),
)
