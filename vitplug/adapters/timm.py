"""Names in models of timm. timm is imported only where a part calls its functions."""

from collections.abc import Callable, Mapping
from functools import partial
from math import log
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import normalize

from vitplug.attention import Carry, DenseBias, OffsetBias, PairBias, Site, WindowLayout
from vitplug.attention.sockets import LayerSockets
from vitplug.hosting import PixelGrid
from vitplug.hosting.pooling import convolve, decomposed_bias, on_grid, relative_offsets

from .maps import AttentionMap, BlockMap, Branch, Extras, MlpMap, ModelMap, StageMap, chain, find, no_prefix, register

_MODELS, _LAYERS = 'timm.models', 'timm.layers'


# --- attention ---


def _rotate(
    module: nn.Module, q: Tensor, k: Tensor, v: Tensor, site: Site, extras: Extras
) -> tuple[Tensor, Tensor, Tensor]:
    """Rotates the tokens of the grid; those before it, plugs' included, stay."""
    rope, num_prefix = extras.get('rope'), site.layout.num_prefix
    if rope is None:
        return q, k, v
    from timm.layers.pos_embed_sincos import apply_rot_embed_cat

    half = getattr(module, 'rotate_half', False)

    def turned(t: Tensor) -> Tensor:
        parts = t[..., :num_prefix, :], apply_rot_embed_cat(t[..., num_prefix:, :], rope, half=half)
        return torch.cat(parts, dim=-2).type_as(t)

    return turned(q), turned(k), v


def _biased_qkv(module: nn.Module, x: Tensor) -> Tensor:
    """q, k and v side by side, with biases of their own for q and v."""
    qkv = module.qkv(x)
    return qkv if module.q_bias is None else qkv + torch.cat((module.q_bias, module.k_bias, module.v_bias))


def _eva_qkv(module: nn.Module, x: Tensor) -> Tensor:
    return _rope_qkv(module, x) if module.qkv is None else _biased_qkv(module, x)


def _rope_qkv(module: nn.Module, x: Tensor) -> Tensor:
    if module.qkv is not None:
        return module.qkv(x)
    return torch.cat((module.q_proj(x), module.k_proj(x), module.v_proj(x)), dim=-1)


def _grouped(module: nn.Module) -> str | None:
    return f'{module.num_kv_heads} heads of k and v for {module.num_heads} of q' if module.num_kv_groups > 1 else None


def _pair_bias(block: nn.Module, q: Tensor, site: Site, extras: Extras) -> tuple[PairBias, ...]:
    """The bias of all pairs of relative positions, of the block or shared."""
    block_bias, shared = block.attn.rel_pos, extras.get('shared_rel_pos')
    bias = shared if block_bias is None else block_bias.get_bias()
    return () if bias is None else (DenseBias(bias.unsqueeze(0)),)


def _window_bias(block: nn.Module, q: Tensor, site: Site, extras: Extras) -> tuple[PairBias, ...]:
    table, side = block.attn.relative_position_bias_table, 2 * block.attn.window_size[0] - 1
    return (OffsetBias(table.T.unflatten(1, (side, side)), site.pairs),)


def _beit_bias(block: nn.Module, q: Tensor, site: Site, extras: Extras) -> tuple[PairBias, ...]:
    table, shared = block.attn.relative_position_bias_table, extras.get('shared_rel_pos_bias')
    biases = [] if table is None else [block.attn._get_rel_pos_bias()]
    biases += [] if shared is None else [shared]
    return tuple(DenseBias(bias.unsqueeze(0)) for bias in biases)


def _cosines(
    module: nn.Module, q: Tensor, k: Tensor, v: Tensor, site: Site, extras: Extras
) -> tuple[Tensor, Tensor, Tensor]:
    """q and k of length 1, q times the scale of its head, so that their products are the scores of Swin V2."""
    scale_H11 = module.logit_scale.clamp(max=log(100)).exp()
    return normalize(q, dim=-1) * scale_H11, normalize(k, dim=-1), v


def _continuous_bias(block: nn.Module, q: Tensor, site: Site, extras: Extras) -> tuple[PairBias, ...]:
    table = block.attn.cpb_mlp(block.attn.relative_coords_table)[0].permute(2, 0, 1)
    return (OffsetBias(16 * table.sigmoid(), site.pairs),)


class _TalkingHeads:
    """CaiT's attention, which mixes the heads of logits and maps. What it makes is what plugs change.

    Args:
        module: The attention.
        plugs: The plugs of its block.
    """

    def __init__(self, module: nn.Module, plugs: LayerSockets):
        self.module, self.plugs = module, plugs

    def __getattr__(self, name: str) -> Any:
        return getattr(self.plugs, name)

    def fast_form(self, *inputs: Any) -> None:
        """There is none."""

    def widens(self, site: Site) -> bool:
        """Maps are formed anyway."""
        return False

    def change_logits(self, logits: Tensor, site: Site, carry: Carry) -> tuple[Tensor, Carry]:
        """The mixed logits, then the plugs' socket."""
        return self.plugs.change_logits(_mix(self.module.proj_l, logits), site, carry)

    def refine_map(self, probs: Tensor, site: Site, carry: Carry) -> tuple[Tensor, Carry]:
        """The mixed maps, then the plugs' socket."""
        return self.plugs.refine_map(self.module.attn_drop(_mix(self.module.proj_w, probs)), site, carry)


def _mix(heads: nn.Linear, pairs_BWHNN: Tensor) -> Tensor:
    return heads(pairs_BWHNN.movedim(2, -1)).movedim(-1, 2)


def _pools(module: nn.Module) -> tuple[nn.Module | None, ...]:
    return module.pool_q, module.pool_k, module.pool_v


def _pool(
    module: nn.Module, q: Tensor, k: Tensor, v: Tensor, site: Site, extras: Extras
) -> tuple[Tensor, Tensor, Tensor]:
    """MViTv2's pooling on the grid, and the norms after it."""
    norms = module.norm_q, module.norm_k, module.norm_v
    return tuple(_pooled(*part, site) for part in zip((q, k, v), _pools(module), norms, strict=True))


def _pooled(t_B1HNd: Tensor, pool: nn.Module | None, norm: nn.Module | None, site: Site) -> Tensor:
    if pool is not None:
        act = partial(convolve, pool) if isinstance(pool, nn.Conv2d) else pool
        tokens_BND = on_grid(act, t_B1HNd.squeeze(1).transpose(1, 2).flatten(2), site)
        t_B1HNd = tokens_BND.unflatten(2, (t_B1HNd.shape[2], -1)).transpose(1, 2).unsqueeze(1)
    return t_B1HNd if norm is None else norm(t_B1HNd)


def _decomposed_bias(block: nn.Module, q: Tensor, site: Site, extras: Extras) -> tuple[PairBias, ...]:
    if block.attn.rel_pos_type != 'spatial':
        return ()
    axes = zip((block.attn.rel_pos_h, block.attn.rel_pos_w), site.layout.hw, site.key_layout.hw, strict=True)
    tables = [table[relative_offsets(queries, keys, q.device)] for table, queries, keys in axes]
    return (decomposed_bias(q, tables, site),)


def _add_queries(module: nn.Module, out: Tensor, q: Tensor) -> Tensor:
    return out + q if module.residual_pooling else out


def _odd_pooling(module: nn.Module) -> str | None:
    """Why the pooling of an attention is another than the one that is described."""
    if module.mode == 'conv_unshared':
        return "its heads have kernels of their own (mode='conv_unshared'), which timm itself cannot run"
    for pool in _pools(module):
        kernel, stride = (1, 1) if pool is None else (_pair(pool.kernel_size), _pair(pool.stride))
        if pool is not None and (stride[0] != stride[1] or any(side % 2 == 0 for side in kernel)):
            return f'it pools with kernels of {kernel} and strides of {stride}; plugs need odd kernels, one stride'
    return None


def _pair(side: int | tuple[int, int]) -> tuple[int, int]:
    return side if isinstance(side, tuple) else (side, side)


_ATTENTION = dict(
    projections=('qkv',),
    heads='num_heads',
    scale='scale',
    proj='proj',
    dropout='attn_drop',
    before_proj=chain('norm?'),
    after_proj=chain('proj_drop'),
)
_ROTATED = dict(_ATTENTION, projections=(), change_qkv=_rotate)
register(f'{_LAYERS}.attention.Attention', AttentionMap(**_ATTENTION))
register(f'{_LAYERS}.attention.AttentionRope', AttentionMap(**_ROTATED, project=_rope_qkv, lacks=_grouped))
register(f'{_MODELS}.eva.EvaAttention', AttentionMap(**_ROTATED, project=_eva_qkv))
register(f'{_MODELS}.vision_transformer_relpos.RelPosAttention', AttentionMap(**_ATTENTION, biases=_pair_bias))
register(f'{_MODELS}.swin_transformer.WindowAttention', AttentionMap(**_ATTENTION, biases=_window_bias))
register(
    f'{_MODELS}.swin_transformer_v2.WindowAttention',
    AttentionMap(**{**_ATTENTION, 'scale': 1.0}, project=_biased_qkv, change_qkv=_cosines, biases=_continuous_bias),
)
register(f'{_MODELS}.beit.Attention', AttentionMap(**_ATTENTION, biases=_beit_bias, project=_biased_qkv))
register(f'{_MODELS}.cait.TalkingHeadAttn', AttentionMap(**{**_ATTENTION, 'dropout': None}, sockets=_TalkingHeads))
register(
    f'{_MODELS}.mvitv2.MultiScaleAttention',
    AttentionMap(
        **{**_ATTENTION, 'dropout': None, 'after_proj': chain()},
        change_qkv=_pool,
        biases=_decomposed_bias,
        change_out=_add_queries,
        lacks=_odd_pooling,
    ),
)

# --- MLP ---


def _gated(module: nn.Module, x: Tensor) -> Tensor:
    first, last = module.fc1(x).chunk(2, dim=module.chunk_dim)
    x = first * module.act(last) if module.gate_last else module.act(first) * last
    return module.norm(module.drop1(x))


def _swiglu(module: nn.Module, x: Tensor) -> Tensor:
    return module.norm(module.drop1(module.act(module.fc1_g(x)) * module.fc1_x(x)))


_OUT = dict(out=chain('fc2', 'drop2'), last='fc2')
register(f'{_LAYERS}.mlp.Mlp', MlpMap(chain('fc1', 'act', 'drop1', 'norm'), **_OUT))
register(f'{_LAYERS}.mlp.GluMlp', MlpMap(_gated, **_OUT))
register(f'{_LAYERS}.mlp.SwiGLU', MlpMap(_swiglu, **_OUT))

# --- blocks ---


def _branches(after_msa: tuple[str, ...], after_ffn: tuple[str, ...], is_post_norm: bool = False) -> dict[str, Branch]:
    if is_post_norm:
        norms = Branch(after=chain('norm1', *after_msa)), Branch(after=chain('norm2', *after_ffn))
    else:
        norms = Branch(chain('norm1'), chain(*after_msa)), Branch(chain('norm2'), chain(*after_ffn))
    return dict(attention='attn', mlp='mlp', msa=norms[0], ffn=norms[1])


_SCALED = _branches(('ls1?', 'drop_path1?'), ('ls2?', 'drop_path2?'))
_GAMMAS = _branches(('gamma_1?', 'drop_path1?'), ('gamma_2?', 'drop_path2?'))
_POST = _branches(('drop_path1?',), ('drop_path2?',), is_post_norm=True)
_ONE_DROP = _branches(('gamma_1', 'drop_path'), ('gamma_2', 'drop_path'))
_MASKS, _ROPE = ('attn_mask', 'is_causal'), ('rope', 'attn_mask', 'is_causal')
_SHARED = ('shared_rel_pos',)
register(f'{_MODELS}.vision_transformer.Block', BlockMap(**_SCALED, arguments=_MASKS))
register(f'{_MODELS}.vision_transformer.ResPostBlock', BlockMap(**_POST, arguments=_MASKS))
register(f'{_MODELS}.vision_transformer_relpos.RelPosBlock', BlockMap(**_SCALED, arguments=_SHARED))
register(f'{_MODELS}.vision_transformer_relpos.ResPostRelPosBlock', BlockMap(**_POST, arguments=_SHARED))
register(f'{_MODELS}.eva.EvaBlock', BlockMap(**_GAMMAS, arguments=_ROPE))
register(f'{_MODELS}.eva.EvaBlockPostNorm', BlockMap(**_POST, arguments=_ROPE))
register(f'{_MODELS}.beit.Block', BlockMap(**_GAMMAS, arguments=('shared_rel_pos_bias',)))
register(f'{_MODELS}.cait.LayerScaleBlock', BlockMap(**_ONE_DROP))


def _windows(block: nn.Module, hw: tuple[int, int]) -> WindowLayout:
    """The layout of a block of Swin.

    Raises:
        ValueError: If windows are not square, or shifted on a map that is padded to whole ones.
    """
    (side, other), (shift, along) = block.window_size, block.shift_size
    layout = WindowLayout(*hw, side, shift)
    if side != other or shift != along or (shift and layout.padded != layout.hw):
        raise ValueError(
            f'windows of {side} x {other} tokens shifted by {shift} and {along} on a map of {hw[0]} x {hw[1]}: plugs '
            'need square windows, and whole ones where they are shifted; choose a size of images that is a multiple of '
            'windows in every stage'
        )
    return layout


register(f'{_MODELS}.swin_transformer.SwinTransformerBlock', BlockMap(**_SCALED, layout=_windows))
register(f'{_MODELS}.swin_transformer_v2.SwinTransformerV2Block', BlockMap(**_POST, layout=_windows))


def _pool_strides(block: nn.Module) -> tuple[int, int]:
    return tuple(1 if pool is None else _pair(pool.stride)[0] for pool in _pools(block.attn)[:2])


def _pool_widths(block: nn.Module) -> Mapping[str, int]:
    inner = block.attn.dim_out
    return dict.fromkeys(('prefix', 'block_in', 'heads'), block.dim) | dict(
        msa=inner,
        msa_residual=inner,
        mlp_front=inner,
        **dict.fromkeys(('mlp_end', 'mlp_residual', 'block_out'), block.dim_out),
    )


def _beside_pooling(block: nn.Module, x_BND: Tensor, normed: Tensor, site: Site) -> Tensor:
    """The tokens beside the attention, as wide and as many as it makes them."""
    x_BND = x_BND if block.shortcut_proj_attn is None else block.shortcut_proj_attn(normed)
    return x_BND if block.shortcut_pool_attn is None else on_grid(block.shortcut_pool_attn, x_BND, site)


def _beside_mlp(block: nn.Module, x_BND: Tensor, normed: Tensor, site: Site) -> Tensor:
    return x_BND if block.shortcut_proj_mlp is None else block.shortcut_proj_mlp(normed)


register(
    f'{_MODELS}.mvitv2.MultiScaleBlock',
    BlockMap(
        'attn',
        'mlp',
        Branch(chain('norm1'), chain('drop_path1'), beside=_beside_pooling),
        Branch(chain('norm2'), chain('drop_path2'), beside=_beside_mlp),
        strides=_pool_strides,
        widths=_pool_widths,
    ),
)


def _mix_tokens(block: nn.Module, x_BND: Tensor) -> Tensor:
    mixed_BDN = block.mlp_tokens(block.norm1(x_BND).transpose(1, 2))
    return x_BND + block.drop_path(mixed_BDN.transpose(1, 2))


def _mix_linearly(block: nn.Module, x_BND: Tensor) -> Tensor:
    mixed_BDN = block.linear_tokens(block.norm1(x_BND).transpose(1, 2))
    return x_BND + block.drop_path(block.ls1 * mixed_BDN.transpose(1, 2))


def _mixer(mixing: Callable[[nn.Module, Tensor], Tensor], *after: str) -> BlockMap:
    return BlockMap(None, 'mlp_channels', Branch(), Branch(chain('norm2'), chain(*after)), mixing=mixing)


register(f'{_MODELS}.mlp_mixer.MixerBlock', _mixer(_mix_tokens, 'drop_path'))
register(f'{_MODELS}.mlp_mixer.ResBlock', _mixer(_mix_linearly, 'ls2', 'drop_path'))

# --- models ---


def _prefix(model: nn.Module) -> tuple[str, ...]:
    """Class token, distillation token, registers."""
    names = tuple(name for name in ('cls_token', 'dist_token') if find(model, name) is not None)
    registers = find(model, 'reg_token')
    return names + tuple(f'reg_token_{i}' for i in range(0 if registers is None else registers.shape[1]))


def _resolution(model: nn.Module) -> tuple[int, int]:
    return model.patch_embed.grid_size


def _stem_resolution(model: nn.Module) -> tuple[int, int]:
    return model.stem.grid_size


def _features(model: nn.Module, images: Tensor) -> Tensor:
    return model.forward_features(images)


def _patch_features(model: nn.Module, images: Tensor) -> Tensor:
    """Without the class token, which joins after the blocks."""
    return model.forward_features(images)[:, model.num_prefix_tokens :]


def _drops_patches(model: nn.Module) -> str | None:
    drop = find(model, 'patch_drop')
    if drop is not None and not isinstance(drop, nn.Identity):
        return 'it drops patches, so its tokens have no grid; build it with patch_drop_rate=0'
    return None


_COLUMNAR = dict(
    blocks='blocks',
    prefix=_prefix,
    resolution=_resolution,
    patch='patch_embed.proj',
    features=_features,
    lacks=_drops_patches,
)
register(f'{_MODELS}.vision_transformer.VisionTransformer', ModelMap(**_COLUMNAR))
register(f'{_MODELS}.eva.Eva', ModelMap(**_COLUMNAR))
register(f'{_MODELS}.vision_transformer_relpos.VisionTransformerRelPos', ModelMap(**_COLUMNAR, keeps_prefix=False))
register(f'{_MODELS}.beit.Beit', ModelMap(**_COLUMNAR, keeps_prefix=False))
register(
    f'{_MODELS}.cait.Cait',
    # Blocks of the class token come after those with plugs, and stay as they are.
    ModelMap(**{**_COLUMNAR, 'prefix': no_prefix, 'features': _patch_features, 'lacks': None}),
)
register(
    f'{_MODELS}.mlp_mixer.MlpMixer',
    ModelMap(
        **{
            **_COLUMNAR,
            'prefix': no_prefix,
            'resolution': _stem_resolution,
            'patch': 'stem.proj',
            'lacks': None,
        },
        keeps_prefix=False,
    ),
)

# --- models in stages ---

Run = Callable[..., tuple[Tensor, tuple[int, int] | None]]


def _swin_stage(stage: nn.Module, run: Run, x_BhwD: Tensor) -> Tensor:
    return run(stage.downsample(x_BhwD))[0]


def _mvit_resolution(model: nn.Module) -> tuple[int, int]:
    first = model.stages[0]
    return tuple(side * _pool_strides(first.blocks[0])[0] for side in first.feat_size)


def _as_before(stage: nn.Module, pixels: PixelGrid) -> PixelGrid:
    """The stage's first block pools, not what is before it."""
    return pixels


def _mvit_stage(
    stage: nn.Module, run: Run, x_BND: Tensor, feat_size: tuple[int, int]
) -> tuple[Tensor, tuple[int, int]]:
    return run(x_BND, tuple(feat_size))


def _pit_prefix(model: nn.Module) -> tuple[str, ...]:
    return ('cls_token', 'dist_token')[: model.num_tokens]


def _pit_stage(stage: nn.Module, run: Run, x: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
    map_BDhw, own_BND = x if stage.pool is None else stage.pool(*x)
    tokens_BND = torch.cat((own_BND, map_BDhw.flatten(2).transpose(1, 2)), dim=1)
    tokens_BND, hw = run(stage.norm(tokens_BND), tuple(map_BDhw.shape[2:]))
    own_BND, grid_BND = tokens_BND.tensor_split([own_BND.shape[1]], dim=1)
    return grid_BND.transpose(1, 2).unflatten(2, hw), own_BND


def _pit_features(model: nn.Module, images: Tensor) -> Tensor:
    (last_BDhw,) = model.forward_intermediates(images, indices=1, intermediates_only=True)
    return model.norm(last_BDhw.permute(0, 2, 3, 1))


def _after_pooling(stage: nn.Module, pixels: PixelGrid) -> PixelGrid:
    return pixels.after(stage.pool.conv)


_STAGED = {**_COLUMNAR, 'blocks': 'layers', 'lacks': None, 'keeps_prefix': False}
for _name in ('swin_transformer.SwinTransformer', 'swin_transformer_v2.SwinTransformerV2'):
    register(f'{_MODELS}.{_name}', ModelMap(**_STAGED, stage=StageMap('blocks', _swin_stage)))
register(
    f'{_MODELS}.mvitv2.MultiScaleVit',
    ModelMap(
        'stages',
        prefix=_prefix,
        resolution=_mvit_resolution,
        patch='patch_embed.proj',
        features=_features,
        stage=StageMap('blocks', _mvit_stage, place=_as_before),
    ),
)
register(
    f'{_MODELS}.pit.PoolingVisionTransformer',
    ModelMap(
        'transformers',
        prefix=_pit_prefix,
        resolution=_resolution,
        patch='patch_embed.conv',
        features=_pit_features,
        stage=StageMap('blocks', _pit_stage, place=_after_pooling, prefix=chain('pool.fc', 'norm')),
    ),
)
