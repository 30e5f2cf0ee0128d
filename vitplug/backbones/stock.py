"""Stock configs of all three libraries: mmdet's and mmseg's arguments of their own Swin and ViT.

The hosts' arguments are mmpretrain's. :func:`takes` lets a host take those of another library as well, with the
defaults of that library's class: a child of ``mmdet::swin/...`` changes the ``type``, adds ``plugs``, and nothing else.
One argument that mmpretrain does not have, such as ``embed_dims``, tells whose they are.
"""

import inspect
from collections.abc import Callable, Sequence
from functools import wraps
from importlib import import_module
from importlib.util import find_spec
from types import SimpleNamespace
from typing import Any

from .patch_embed import size_of


def takes(
    backbone: str,
    libraries: Sequence[str],
    translate: Callable[[SimpleNamespace], dict[str, Any]],
    leaves_out: Sequence[str] = (),
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Makes a host's constructor take the arguments of another library's class, too.

    Where both libraries have an argument, it means what the other one's class makes of it. Those that mmpretrain alone
    has are refused beside it: they would get the other class's defaults. Arguments after ``*`` are vitplug's own and go
    with both. Positional arguments are mmpretrain's: beside one, as in the constructors of subclasses, nothing is
    translated.

    Args:
        backbone: Name of the class.
        libraries: Libraries that have it, the one with most arguments first.
        translate: Makes the host's arguments of all of that class.
        leaves_out: Tensors of files that this class does not read either.
    """

    def decorate(init: Callable[..., None]) -> Callable[..., None]:
        parameters = inspect.signature(init).parameters
        further = {name for name, p in parameters.items() if p.kind is inspect.Parameter.KEYWORD_ONLY}

        @wraps(init)
        def build(self, *args: Any, **settings: Any) -> None:
            settings = _with_init_cfg(**settings)
            unknown = settings.keys() - parameters.keys()
            defaults = _defaults(backbone, libraries) if unknown and not args else {}
            theirs = sorted(unknown & defaults.keys())
            if not theirs:
                return init(self, *args, **settings)
            if strange := sorted(settings.keys() - defaults.keys() - further):
                raise TypeError(
                    f'{type(self).__name__}: {theirs} are arguments of {" and ".join(libraries)}; beside them, it has '
                    f'no argument {strange}; keep those of one library: {sorted({*defaults, *further})}'
                )
            given = {name: settings.pop(name) for name in defaults if name in settings}
            init(self, **translate(SimpleNamespace(**{**defaults, **given})), **settings)
            self.leaves_out = tuple(leaves_out)

        return build

    return decorate


def _defaults(backbone: str, libraries: Sequence[str]) -> dict[str, Any]:
    """The arguments of a library's class with their defaults; none where there is no such library."""
    for library in filter(find_spec, libraries):
        stock = getattr(import_module(f'{library}.models.backbones'), backbone)
        parameters = list(inspect.signature(stock.__init__).parameters.values())[1:]
        return {parameter.name: parameter.default for parameter in parameters}
    return {}


def _with_init_cfg(pretrained: str | None = None, **settings: Any) -> dict[str, Any]:
    """The arguments with ``pretrained``, which mmseg's segmentors still hand to any backbone, as an ``init_cfg``.

    Raises:
        ValueError: If both are given.
    """
    if pretrained is None:
        return settings
    if settings.get('init_cfg') is not None:
        raise ValueError(f'pretrained={pretrained!r} beside init_cfg={settings["init_cfg"]!r}: keep one of them')
    return settings | dict(init_cfg=dict(type='Pretrained', checkpoint=pretrained))


def _patches(size: Any, patch_size: int) -> tuple[int, int]:
    """The part of an image, in pixels, that whole patches cover: these libraries count no others in their tables."""
    height, width = size_of(size[0] if isinstance(size, Sequence) and len(size) == 1 else size)
    return height // patch_size * patch_size, width // patch_size * patch_size


def _allow(of: SimpleNamespace, name: str, allowed: Sequence[Any], advice: str) -> None:
    """Refuses a value that the host has no place for."""
    if getattr(of, name) not in allowed:
        raise ValueError(f'{name}={getattr(of, name)!r}: the host of vitplug has no such form; {advice}')


_LINEAR = dict(type='TruncNormal', layer='Linear', std=0.02, bias=0.0)
#: Also the official start of T2T-ViT.
START = [_LINEAR, dict(type='Constant', layer='LayerNorm', val=1.0, bias=0.0)]
_SAME_IN_SWIN = (
    *('patch_size', 'in_channels', 'window_size', 'drop_rate', 'drop_path_rate', 'out_indices'),
    *('use_abs_pos_embed', 'norm_cfg', 'with_cp'),
)
_SAME_IN_VIT = (
    *('patch_size', 'in_channels', 'out_indices', 'qkv_bias', 'drop_rate', 'drop_path_rate', 'with_cls_token'),
    *('norm_cfg', 'pre_norm', 'final_norm', 'interpolate_mode', 'with_cp'),
)


def stock_swin(of: SimpleNamespace) -> dict[str, Any]:
    """mmdet's and mmseg's Swin: norms and drop rates everywhere, every output normalised, maps padded to windows.

    ``convert_weights`` is not needed: files of the original release are known by their keys.
    """
    counts = (-1, *range(1, len(of.depths) + 1))
    _allow(of, 'frozen_stages', counts, f'set 1 for the embedding and the first stage, to {counts[-1]}, or -1 for none')
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
        init_cfg=of.init_cfg or START,
        **{name: getattr(of, name) for name in _SAME_IN_SWIN},
    )


def stock_vit(of: SimpleNamespace) -> dict[str, Any]:
    """mmseg's ViT: maps of some blocks, no final norm and no bias at the patches unless asked for.

    ``norm_eval`` does nothing: a layer norm has no other form in evaluation mode.
    """
    _allow(of, 'out_origin', (False,), 'its outputs are those of blocks: leave it out')
    _allow(of, 'qkv_bias', (True,), 'without one, its projections have none either: use arguments of mmpretrain')
    _allow(of, 'frozen_exclude', (['all'], ('all',)), "frozen='host' freezes all but the plugs")
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
