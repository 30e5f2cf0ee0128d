"""Names in models of timm. timm is imported only where a part calls its functions."""

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from operator import attrgetter

import torch
from torch import Tensor, nn

from vitplug.attention import DenseBias, PairBias, Site, WindowLayout
from vitplug.hosting import PixelGrid
from vitplug.hosting.pixels import pair
from vitplug.hosting.pooling import convolve, decomposed_bias, on_grid, relative_offsets

from .arguments import Extras
from .maps import QKV, AttentionMap, BlockMap, Branch, MlpMap, ModelMap, Run, StageMap, find, merge, no_prefix, register
from .parts import continuous_bias, cosines, table_bias, turned

_MODELS, _LAYERS = 'timm.models', 'timm.layers'


# --- attention ---


def _rotate(module: nn.Module, qkv: QKV, site: Site, extras: Extras) -> QKV:
    rope = extras.get('rope')
    if rope is None:
        return qkv
    from timm.layers.pos_embed_sincos import apply_rot_embed_cat

    return turned(qkv, site, partial(apply_rot_embed_cat, emb=rope, half=getattr(module, 'rotate_half', False)))


def _biased_qkv(module: nn.Module, x: Tensor) -> Tensor:
    """q, k and v side by side: of one projection, with biases of their own for q and v, or of three projections."""
    if module.qkv is None:
        return torch.cat((module.q_proj(x), module.k_proj(x), module.v_proj(x)), dim=-1)
    qkv = module.qkv(x)
    if getattr(module, 'q_bias', None) is None:
        return qkv
    return qkv + torch.cat((module.q_bias, module.k_bias, module.v_bias))


def _grouped(module: nn.Module) -> str | None:
    return f'{module.num_kv_heads} heads of k and v for {module.num_heads} of q' if module.num_kv_groups > 1 else None


def _pair_biases(*biases: Tensor | None) -> tuple[PairBias, ...]:
    return tuple(DenseBias(bias.unsqueeze(0)) for bias in biases if bias is not None)


def _pair_bias(block: nn.Module, q: Tensor, site: Site, extras: Extras) -> tuple[PairBias, ...]:
    """The bias of all pairs of relative positions, of the block or shared."""
    own = block.attn.rel_pos
    return _pair_biases(extras.get('shared_rel_pos') if own is None else own.get_bias())


def _beit_bias(block: nn.Module, q: Tensor, site: Site, extras: Extras) -> tuple[PairBias, ...]:
    own = None if block.attn.relative_position_bias_table is None else block.attn._get_rel_pos_bias()
    return _pair_biases(own, extras.get('shared_rel_pos_bias'))


def _pools(module: nn.Module) -> tuple[nn.Module | None, ...]:
    return module.pool_q, module.pool_k, module.pool_v


def _pool(module: nn.Module, qkv: QKV, site: Site, extras: Extras) -> QKV:
    """MViTv2's pooling on the grid, and the norms after it."""
    norms = module.norm_q, module.norm_k, module.norm_v
    return tuple(_pooled(*part, site) for part in zip(qkv, _pools(module), norms, strict=True))


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
    for pool in _pools(module):
        kernel, stride = (1, 1) if pool is None else (pair(pool.kernel_size), pair(pool.stride))
        if pool is not None and (stride[0] != stride[1] or any(side % 2 == 0 for side in kernel)):
            return f'it pools with kernels of {kernel} and strides of {stride}; plugs need odd kernels, one stride'
    return None


_STOCK = AttentionMap(
    'qkv', 'num_heads', 'scale', 'proj', dropout='attn_drop', before_proj='norm?', after_proj='proj_drop'
)
_ROTATED = replace(_STOCK, projections=_biased_qkv, change_qkv=_rotate)
_OF_COSINES = replace(_STOCK, scale=1.0, projections=_biased_qkv, change_qkv=partial(cosines, 'logit_scale'))
_POOLED = replace(_STOCK, dropout=None, after_proj='', change_qkv=_pool, change_out=_add_queries)
_TABLE_BIAS = partial(table_bias, 'attn.relative_position_bias_table')
_CONTINUOUS_BIAS = partial(continuous_bias, 'attn', 'cpb_mlp')
for _name, _attention in {
    f'{_LAYERS}.attention.Attention': _STOCK,
    f'{_LAYERS}.attention.AttentionRope': replace(_ROTATED, lacks=_grouped),
    f'{_MODELS}.eva.EvaAttention': _ROTATED,
    f'{_MODELS}.vision_transformer_relpos.RelPosAttention': replace(_STOCK, biases=_pair_bias),
    f'{_MODELS}.swin_transformer.WindowAttention': replace(_STOCK, biases=_TABLE_BIAS),
    f'{_MODELS}.swin_transformer_v2.WindowAttention': replace(_OF_COSINES, biases=_CONTINUOUS_BIAS),
    f'{_MODELS}.beit.Attention': replace(_STOCK, biases=_beit_bias, projections=_biased_qkv),
    f'{_MODELS}.mvitv2.MultiScaleAttention': replace(_POOLED, biases=_decomposed_bias, lacks=_odd_pooling),
}.items():
    register(_name, _attention)

# --- MLP ---


def _gated(module: nn.Module, x: Tensor) -> Tensor:
    first, last = module.fc1(x).chunk(2, dim=module.chunk_dim)
    x = first * module.act(last) if module.gate_last else module.act(first) * last
    return module.norm(module.drop1(x))


def _swiglu(module: nn.Module, x: Tensor) -> Tensor:
    return module.norm(module.drop1(module.act(module.fc1_g(x)) * module.fc1_x(x)))


register(f'{_LAYERS}.mlp.Mlp', MlpMap('fc1 act drop1 norm', 'fc2 drop2', last='fc2'))
register(f'{_LAYERS}.mlp.GluMlp', MlpMap(_gated, 'fc2 drop2', last='fc2'))
register(f'{_LAYERS}.mlp.SwiGLU', MlpMap(_swiglu, 'fc2 drop2', last='fc2'))

# --- blocks ---


_SCALED = BlockMap('attn', 'mlp', Branch('norm1', 'ls1? drop_path1?'), Branch('norm2', 'ls2? drop_path2?'))
_GAMMAS = BlockMap('attn', 'mlp', Branch('norm1', 'gamma_1? drop_path1?'), Branch('norm2', 'gamma_2? drop_path2?'))
_POST = BlockMap('attn', 'mlp', Branch(after='norm1 drop_path1?'), Branch(after='norm2 drop_path2?'))
_MASKS, _SHARED = ('attn_mask', 'is_causal'), ('shared_rel_pos',)
for _name, _block, _arguments in (
    ('vision_transformer.Block', _SCALED, _MASKS),
    ('vision_transformer.ResPostBlock', _POST, _MASKS),
    ('vision_transformer_relpos.RelPosBlock', _SCALED, _SHARED),
    ('vision_transformer_relpos.ResPostRelPosBlock', _POST, _SHARED),
    ('eva.EvaBlock', _GAMMAS, ('rope', *_MASKS)),
    ('eva.EvaBlockPostNorm', _POST, ('rope', *_MASKS)),
    ('beit.Block', _GAMMAS, ('shared_rel_pos_bias',)),
):
    register(f'{_MODELS}.{_name}', replace(_block, arguments=_arguments))


def _windows(block: nn.Module, hw: tuple[int, int]) -> WindowLayout:
    """The layout of a block of Swin."""
    (side, other), (shift, along) = block.window_size, block.shift_size
    layout = WindowLayout(*hw, side, shift)
    if side != other or shift != along or (shift and layout.padded != layout.hw):
        raise ValueError(
            f'windows of {side} x {other} tokens shifted by {shift} and {along} on a map of {hw[0]} x {hw[1]}: plugs '
            'need square windows, and whole ones with one shift where they are shifted; choose a size of images that '
            'is a multiple of windows in every stage, of more than one window along both axes or along none'
        )
    return layout


register(f'{_MODELS}.swin_transformer.SwinTransformerBlock', replace(_SCALED, layout=_windows))
register(f'{_MODELS}.swin_transformer_v2.SwinTransformerV2Block', replace(_POST, layout=_windows))


def _pool_strides(block: nn.Module) -> tuple[int, int]:
    return tuple(1 if pool is None else pair(pool.stride)[0] for pool in _pools(block.attn)[:2])


def _pool_widths(block: nn.Module) -> Mapping[str, int]:
    before = dict.fromkeys(('prefix', 'block_in', 'heads'), block.dim)
    between = dict.fromkeys(('msa', 'msa_residual', 'mlp_front'), block.attn.dim_out)
    return before | between | dict.fromkeys(('mlp_end', 'mlp_residual', 'block_out'), block.dim_out)


def _beside_pooling(block: nn.Module, x_BND: Tensor, normed: Tensor, site: Site) -> Tensor:
    """The tokens beside the attention, as wide and as many as it makes them."""
    x_BND = x_BND if block.shortcut_proj_attn is None else block.shortcut_proj_attn(normed)
    return x_BND if block.shortcut_pool_attn is None else on_grid(block.shortcut_pool_attn, x_BND, site)


def _beside_mlp(block: nn.Module, x_BND: Tensor, normed: Tensor, site: Site) -> Tensor:
    return x_BND if block.shortcut_proj_mlp is None else block.shortcut_proj_mlp(normed)


_MSA = Branch('norm1', 'drop_path1', beside=_beside_pooling)
_FFN = Branch('norm2', 'drop_path2', beside=_beside_mlp)
_WIDENED = BlockMap('attn', 'mlp', _MSA, _FFN, strides=_pool_strides, widths=_pool_widths)
register(f'{_MODELS}.mvitv2.MultiScaleBlock', _WIDENED)


def _mix(block: nn.Module, x_BND: Tensor) -> Tensor:
    """The tokens after the MLP that mixes them."""
    mixed_BDN = block.mlp_tokens(block.norm1(x_BND).transpose(1, 2))
    return x_BND + block.drop_path(mixed_BDN.transpose(1, 2))


_MIXED = BlockMap(None, 'mlp_channels', Branch(), Branch('norm2', 'drop_path'), mixing=_mix)
register(f'{_MODELS}.mlp_mixer.MixerBlock', _MIXED)

# --- models ---


def _prefix(model: nn.Module) -> tuple[str, ...]:
    """Class token, distillation token, registers."""
    names = tuple(name for name in ('cls_token', 'dist_token') if find(model, f'{name}?') is not None)
    registers = find(model, 'reg_token?')
    return names + tuple(f'reg_token_{i}' for i in range(0 if registers is None else registers.shape[1]))


def _features(model: nn.Module, images: Tensor) -> Tensor:
    return model.forward_features(images)


def _drops_patches(model: nn.Module) -> str | None:
    drops = not isinstance(find(model, 'patch_drop?'), nn.Identity | None)
    return 'it drops patches, so its tokens have no grid; build it with patch_drop_rate=0' if drops else None


_COLUMNAR = ModelMap(
    'blocks', _prefix, attrgetter('patch_embed.grid_size'), 'patch_embed.proj', _features, lacks=_drops_patches
)
_STEMMED = replace(_COLUMNAR, prefix=no_prefix, resolution=attrgetter('stem.grid_size'), patch='stem.proj')
for _name, _model in {
    'vision_transformer.VisionTransformer': _COLUMNAR,
    'eva.Eva': _COLUMNAR,
    'vision_transformer_relpos.VisionTransformerRelPos': replace(_COLUMNAR, keeps_prefix=False),
    'beit.Beit': replace(_COLUMNAR, keeps_prefix=False),
    'mlp_mixer.MlpMixer': replace(_STEMMED, keeps_prefix=False),
}.items():
    register(f'{_MODELS}.{_name}', _model)

# --- models in stages ---


def _swin_stage(stage: nn.Module, run: Run, x_BhwD: Tensor) -> Tensor:
    return run(stage.downsample(x_BhwD))[0]


def _mvit_resolution(model: nn.Module) -> tuple[int, int]:
    first = model.stages[0]
    return tuple(side * _pool_strides(first.blocks[0])[0] for side in first.feat_size)


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


_SWIN = replace(_COLUMNAR, blocks='layers', keeps_prefix=False, stage=StageMap('blocks', _swin_stage))
# The stage's first block pools, not what is before it.
_MVIT_STAGE = StageMap('blocks', _mvit_stage, place=partial(merge, step=1))
_MVIT = replace(_COLUMNAR, blocks='stages', resolution=_mvit_resolution, stage=_MVIT_STAGE)
_PIT_STAGE = StageMap('blocks', _pit_stage, place=_after_pooling, prefix='pool.fc norm')
_PIT = replace(_COLUMNAR, blocks='transformers', prefix=_pit_prefix, patch='patch_embed.conv', features=_pit_features)
for _name, _model in {
    'swin_transformer.SwinTransformer': _SWIN,
    'swin_transformer_v2.SwinTransformerV2': _SWIN,
    'mvitv2.MultiScaleVit': _MVIT,
    'pit.PoolingVisionTransformer': replace(_PIT, stage=_PIT_STAGE),
}.items():
    register(f'{_MODELS}.{_name}', _model)
