"""Names in models of timm. timm is imported only where a part calls its functions."""

from math import log

import torch
from torch import Tensor, nn
from torch.nn.functional import normalize

from vitplug.attention import DenseBias, OffsetBias, PairBias, Site

from .maps import AttentionMap, BlockMap, Branch, Extras, MlpMap, ModelMap, chain, find, register

_MODELS, _LAYERS = 'timm.models', 'timm.layers'


# --- attention ---


def _rotate(module: nn.Module, q: Tensor, k: Tensor, num_prefix: int, extras: Extras) -> tuple[Tensor, Tensor]:
    """Rotates the tokens of the grid; those before it, plugs' included, stay."""
    rope = extras.get('rope')
    if rope is None:
        return q, k
    from timm.layers.pos_embed_sincos import apply_rot_embed_cat

    half = getattr(module, 'rotate_half', False)

    def turned(t: Tensor) -> Tensor:
        parts = t[..., :num_prefix, :], apply_rot_embed_cat(t[..., num_prefix:, :], rope, half=half)
        return torch.cat(parts, dim=-2).type_as(t)

    return turned(q), turned(k)


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


def _pair_bias(block: nn.Module, site: Site, extras: Extras) -> tuple[PairBias, ...]:
    """The bias of all pairs of relative positions, of the block or shared."""
    own, shared = block.attn.rel_pos, extras.get('shared_rel_pos')
    bias = shared if own is None else own.get_bias()
    return () if bias is None else (DenseBias(bias.unsqueeze(0)),)


def _window_bias(block: nn.Module, site: Site, extras: Extras) -> tuple[PairBias, ...]:
    table, side = block.attn.relative_position_bias_table, 2 * block.attn.window_size[0] - 1
    return (OffsetBias(table.T.unflatten(1, (side, side)), site.pairs),)


def _beit_bias(block: nn.Module, site: Site, extras: Extras) -> tuple[PairBias, ...]:
    own, shared = block.attn.relative_position_bias_table, extras.get('shared_rel_pos_bias')
    found = [] if own is None else [block.attn._get_rel_pos_bias()]
    found += [] if shared is None else [shared]
    return tuple(DenseBias(bias.unsqueeze(0)) for bias in found)


def _cosines(module: nn.Module, q: Tensor, k: Tensor, num_prefix: int, extras: Extras) -> tuple[Tensor, Tensor]:
    """q and k of length 1, q times the scale of its head, so that their products are the scores of Swin V2."""
    scale_H11 = module.logit_scale.clamp(max=log(100)).exp()
    return normalize(q, dim=-1) * scale_H11, normalize(k, dim=-1)


def _continuous_bias(block: nn.Module, site: Site, extras: Extras) -> tuple[PairBias, ...]:
    table = block.attn.cpb_mlp(block.attn.relative_coords_table)[0].permute(2, 0, 1)
    return (OffsetBias(16 * table.sigmoid(), site.pairs),)


_ATTENTION = dict(
    projections=('qkv',),
    heads='num_heads',
    scale='scale',
    proj='proj',
    dropout='attn_drop',
    before_proj=chain('norm?'),
    after_proj=chain('proj_drop'),
)
_ROTATED = dict(_ATTENTION, projections=(), change_qk=_rotate)
register(f'{_LAYERS}.attention.Attention', AttentionMap(**_ATTENTION))
register(f'{_LAYERS}.attention.AttentionRope', AttentionMap(**_ROTATED, project=_rope_qkv, lacks=_grouped))
register(f'{_MODELS}.eva.EvaAttention', AttentionMap(**_ROTATED, project=_eva_qkv))
register(f'{_MODELS}.vision_transformer_relpos.RelPosAttention', AttentionMap(**_ATTENTION, biases=_pair_bias))
register(f'{_MODELS}.swin_transformer.WindowAttention', AttentionMap(**_ATTENTION, biases=_window_bias))
register(
    f'{_MODELS}.swin_transformer_v2.WindowAttention',
    AttentionMap(**{**_ATTENTION, 'scale': 1.0}, project=_biased_qkv, change_qk=_cosines, biases=_continuous_bias),
)
register(f'{_MODELS}.beit.Attention', AttentionMap(**_ATTENTION, biases=_beit_bias, project=_biased_qkv))

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
_MASKS, _ROPE = ('attn_mask', 'is_causal'), ('rope', 'attn_mask', 'is_causal')
_SHARED = ('shared_rel_pos',)
register(f'{_MODELS}.vision_transformer.Block', BlockMap(**_SCALED, arguments=_MASKS))
register(f'{_MODELS}.vision_transformer.ResPostBlock', BlockMap(**_POST, arguments=_MASKS))
register(f'{_MODELS}.vision_transformer_relpos.RelPosBlock', BlockMap(**_SCALED, arguments=_SHARED))
register(f'{_MODELS}.vision_transformer_relpos.ResPostRelPosBlock', BlockMap(**_POST, arguments=_SHARED))
register(f'{_MODELS}.eva.EvaBlock', BlockMap(**_GAMMAS, arguments=_ROPE))
register(f'{_MODELS}.eva.EvaBlockPostNorm', BlockMap(**_POST, arguments=_ROPE))
register(f'{_MODELS}.beit.Block', BlockMap(**_GAMMAS, arguments=('shared_rel_pos_bias',)))
register(
    f'{_MODELS}.swin_transformer.SwinTransformerBlock',
    BlockMap(**_SCALED, window=('window_size', 'shift_size')),
)

register(
    f'{_MODELS}.swin_transformer_v2.SwinTransformerV2Block',
    BlockMap(**_POST, window=('window_size', 'shift_size')),
)

# --- models ---


def _prefix(model: nn.Module) -> tuple[str, ...]:
    """Class token, distillation token, registers."""
    names = tuple(name for name in ('cls_token', 'dist_token') if find(model, name) is not None)
    registers = find(model, 'reg_token')
    return names + tuple(f'reg_token_{i}' for i in range(0 if registers is None else registers.shape[1]))


def _resolution(model: nn.Module) -> tuple[int, int]:
    return model.patch_embed.grid_size


def _features(model: nn.Module, images: Tensor) -> Tensor:
    return model.forward_features(images)


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
_STAGED = {**_COLUMNAR, 'blocks': 'layers', 'lacks': None, 'keeps_prefix': False}
for _name in ('swin_transformer.SwinTransformer', 'swin_transformer_v2.SwinTransformerV2'):
    register(f'{_MODELS}.{_name}', ModelMap(**_STAGED, stage=(chain('downsample'), 'blocks')))
