"""The hosts and plugs every contract test runs over: a new plug or backbone is one line here."""

import inspect

import torch
from torch import Tensor, nn

from vitplug.attention import OffsetBias, carrying
from vitplug.backbones import (
    LVT,
    MlpMixer,
    MViT,
    PoolingVisionTransformer,
    SwinTransformer,
    SwinTransformerV2,
    T2T_ViT,
    VisionTransformer,
)
from vitplug.plugs import LayerPlan, PatchRefinement, Plug, Registers
from vitplug.plugs.learned import LearnedVectors

# timm's vit_relpos_*, but the plug.
TIMM_RELPOS = dict(
    with_cls_token=False,
    use_abs_pos_embed=False,
    qkv_bias=False,
    layer_scale_init_value=1e-6,
    out_type='avg_featmap',
    final_norm=False,
)
VIT_ARCH = dict(embed_dims=24, num_layers=4, num_heads=3, feedforward_channels=40)
SWIN_ARCH = dict(embed_dims=12, depths=[2, 2], num_heads=[2, 4])
LVT_ARCH = dict(
    embed_dims=[12, 12, 24], depths=[1, 2, 1], num_heads=[2, 2, 4], mlp_ratios=[2, 2, 1], sr_ratios=[8, 2, 1]
)
PIT_ARCH = dict(embed_dims=[12, 24, 48], depths=[2, 1, 1], num_heads=[2, 4, 8], patch_size=6, stride=4)
MIXER_ARCH = dict(embed_dims=24, num_layers=4, tokens_mlp_dims=16, channels_mlp_dims=40)
# Queries and keys: keys of 4 x 4 tokens, both of 2 x 2, keys of 2 x 2, queries of 2 x 2.
MVIT_ARCH = dict(embed_dims=12, num_layers=4, num_heads=2, downscale_indices=[1, 3])


def vit(**settings) -> VisionTransformer:
    defaults = dict(arch=VIT_ARCH, img_size=(32, 40), patch_size=8, out_type='featmap')
    return VisionTransformer(**{**defaults, **settings})


def vit_without_class_token(**settings) -> VisionTransformer:
    return vit(**{'with_cls_token': False, 'layer_scale_init_value': 0.5, **settings})


def vit_with_even_heads(**settings) -> VisionTransformer:
    return vit(**{'arch': {**VIT_ARCH, 'num_heads': 4}, **settings})


def swin(**settings) -> SwinTransformer:
    defaults = dict(arch=SWIN_ARCH, img_size=32, window_size=4, out_indices=(0, 1), drop_path_rate=0.0)
    return SwinTransformer(**{**defaults, **settings})


def swin_padding_small_maps(**settings) -> SwinTransformer:
    return swin(**{'pad_small_map': True, 'use_abs_pos_embed': True, **settings})


def swin_v2(**settings) -> SwinTransformerV2:
    defaults = dict(arch=SWIN_ARCH, img_size=32, window_size=4, out_indices=(0, 1), drop_path_rate=0.0)
    return SwinTransformerV2(**{**defaults, **settings})


def vit_with_windows(**settings) -> VisionTransformer:
    """As dense tasks at high resolution have it; the windows do not divide the maps."""
    return vit(**{'with_cls_token': False, 'window_size': 3, 'global_blocks': (2, 3), **settings})


def t2t(**settings) -> T2T_ViT:
    """Tokens by Performers."""
    defaults = dict(img_size=(32, 40), embed_dims=24, num_layers=4, out_type='featmap')
    defaults |= dict(layer_cfgs=dict(num_heads=3, feedforward_channels=40))
    defaults |= dict(t2t_cfg=dict(token_dims=8, use_performer=True, performer_drop_rate=0.0))
    return T2T_ViT(**{**defaults, **settings})


def lvt(plugs=(), **settings) -> LVT:
    plugs = [_on_maps(plug) for plug in plugs] if isinstance(plugs, list) else plugs
    defaults = dict(arch=LVT_ARCH, img_size=(32, 48), out_indices=(0, 1, 2))
    return LVT(**{**defaults, **settings}, plugs=plugs)


def _on_maps(plug):
    """The plug for the blocks of LVT that have attention maps, unless it needs none or says which blocks."""
    as_it_is = (None, 'ContextBroadcast', 'SqueezeExcite', 'BroadAttention')
    is_changed = isinstance(plug, dict) and plug.get('type') not in as_it_is and _has_layers(plug['type'])
    return {'layers': [1, 2, 3], **plug} if is_changed else plug


def _has_layers(kind) -> bool:
    return isinstance(kind, str) or 'layers' in inspect.signature(kind).parameters


def pit(**settings) -> PoolingVisionTransformer:
    defaults = dict(arch=PIT_ARCH, img_size=(32, 40), out_type='featmap', out_indices=(0, 1, 2))
    return PoolingVisionTransformer(**{**defaults, **settings})


def pit_distilled(**settings) -> PoolingVisionTransformer:
    return pit(**{'distilled': True, 'out_type': 'raw', 'out_indices': -1, **settings})


def mixer(**settings) -> MlpMixer:
    return MlpMixer(**{'arch': MIXER_ARCH, 'img_size': (32, 48), 'patch_size': 8, **settings})


def mvit(**settings) -> MViT:
    defaults = dict(arch=MVIT_ARCH, img_size=32, out_scales=(0, 1, 2), mlp_ratio=2)
    return MViT(**{**defaults, **settings})


def mvit_with_class_token(**settings) -> MViT:
    """Its MLPs change the width."""
    defaults = dict(with_cls_token=True, use_abs_pos_embed=True, dim_mul_in_attention=False)
    return mvit(**{**defaults, **settings})


def mvit_with_windows(**settings) -> MViT:
    """As its detectors have it: blocks 0 and 1 in windows, which do not divide the maps, 2 and 3 global."""
    return mvit(**{'window_size': 4, **settings})


HOSTS = {
    'vit': vit,
    'vit-no-cls': vit_without_class_token,
    'vit-windows': vit_with_windows,
    'swin': swin,
    'swin-pad-small': swin_padding_small_maps,
    'swin-v2': swin_v2,
    't2t': t2t,
    'lvt': lvt,
    'pit': pit,
    'pit-distilled': pit_distilled,
    'mvit': mvit,
    'mvit-cls': mvit_with_class_token,
    'mvit-windows': mvit_with_windows,
}
# For plugs that pair heads: the other hosts of one stage have three. The own plugs need no more hosts.
EVEN_HOSTS = {'vit-even-heads': vit_with_even_heads}
# Hosts whose blocks keep the grid and the width of their tokens. The others have tests of their own.
ONE_GRID_HOSTS = [host for host in HOSTS if not host.startswith(('lvt', 'pit', 'mvit'))]
# Hosts without attention, for plugs of tokens.
TOKEN_HOSTS = {'mixer': mixer}


class CarryProbe(Plug):
    """Takes the bias, the scores and the map socket and hands tensors from block to block.

    No paper's: it exercises the sockets and the carry in every way a plug may use them.
    """

    name = 'probe'

    def build_layer(self, plan: LayerPlan):
        return {'bias': ProbeBias(), 'scores': ProbeScores(), 'map': ProbeMap()}


class ProbeBias(LearnedVectors):
    def __init__(self):
        super().__init__(1, probe_slope=0.1)

    def forward(self, site) -> OffsetBias:
        dy, dx = (offsets.to(self.probe_slope.dtype) for offsets in site.pairs.offsets(self.probe_slope))
        return OffsetBias(self.probe_slope * (2 * dy[:, None] - dx)[None], site.pairs)


class ProbeScores(nn.Module):
    """Halfway between this block's scores and the last ones of the same shape."""

    def forward(self, scores, bias, site, carry):
        before = carry.get('probe')
        if before is not None and before.shape == scores.shape:
            scores = torch.lerp(scores, before.to(scores.dtype), 0.5)
        return scores + bias, carrying(carry, 'probe', scores)


class ProbeMap(LearnedVectors):
    def __init__(self):
        super().__init__(1, probe_weight=0.7)

    def forward(self, probs, site, carry):
        return probs * self.probe_weight, carry


PLUGS = {
    'none': [],
    'probe': [dict(type=CarryProbe)],
    'cb': [dict(type='ContextBroadcast')],
    'cb-upper-everywhere': [
        dict(type='ContextBroadcast', layers='upper', position=['mlp_front', 'mlp_mid', 'mlp_end', 'msa'])
    ],
    'cb-scaled': [dict(type='ContextBroadcast', scaled=True, scale_init_value=0.3)],
    'cb-max': [dict(type='ContextBroadcast', mode='max')],
    'cb-gate': [dict(type='ContextBroadcast', mode='gate', cls_fallback='mean')],
    'cb-hybrid': [dict(type='ContextBroadcast', mode='hybrid', cls_fallback='mean', position='msa')],
    'se': [dict(type='SqueezeExcite', reduction=4)],
    'gab': [dict(type='GaussianAttentionBias', sigma=2.0)],
    'gab-per-head-relative': [dict(type='GaussianAttentionBias', per_head=True, coord='relative', sigma=1.5)],
    'rel-pos-bias': [dict(type='RelPosBias')],
    'rel-pos-mlp-and-gab': [dict(type='RelPosMlp', hidden_dims=8, drop_rate=0.0), dict(type='GaussianAttentionBias')],
    'residual': [dict(type='ResidualAttention')],
    'residual-per-layer': [dict(type='ResidualAttention', per_layer=True, constraint='sigmoid', bias_mode='blend')],
    'residual-parity': [dict(type='ResidualAttention', window_align='parity', stage_transition='flat_nearest')],
    'residual-reset': [dict(type='ResidualAttention', learnable=False, stage_transition='reset', layers=[0, 1, 2])],
    'residual-low-memory': [dict(type='ResidualAttention', low_memory=True, stage_transition='reset')],
    'residual-low-memory-bias': [
        dict(type='ResidualAttention', low_memory=True, stage_transition='reset', bias_mode='blend', per_layer=True),
        dict(type='GaussianAttentionBias', sigma=2.0),
    ],
    'residual-low-memory-carried': [
        dict(type='ResidualAttention', low_memory=True, stage_transition='reset', bias_mode='after_carried'),
        dict(type='RelPosBias'),
    ],
    'broad': [dict(type='BroadAttention')],
    'broad-v-only': [dict(type='BroadAttention', use_qk=False, scale='head', pool_layout='head_dim_layer')],
    'broad-qk-only': [dict(type='BroadAttention', use_v=False, scale='concat', gamma=0.4, layers=[0, 3])],
    'refiner': [dict(type='Refiner')],
    'refiner-rowcol': [dict(type='Refiner', constraint='rowcol', kernel_size=5)],
    'refiner-no-reduction': [dict(type='Refiner', reduction=False, expansion=2)],
    'refiner-mbconv': [dict(type='Refiner', mode='mbconv', init='default')],
    'dla': [dict(type='Refiner', expansion=0)],
    'dla-spatial': [dict(type='Refiner', expansion=0, constraint='spatial')],
    'cb-and-probe': [dict(type='ContextBroadcast', scaled=True, position='msa'), dict(type=CarryProbe)],
    'talking-heads': [dict(type='TalkingHeads')],
    'gated-attention': [dict(type='GatedAttention')],
    'value-residual': [dict(type='ValueResidual', learnable=True)],
    'attention-scale': [dict(type='AttentionScale')],
    'neutreno': [dict(type='NeuTRENO')],
    'locality': [dict(type='LocalitySelfAttention')],
    'conditional-position': [dict(type='ConditionalPosition')],
    'sink': [dict(type='AttentionSink')],
    'entmax': [dict(type='EntmaxAttention', learnable=True)],
    'locat': [dict(type='GaussianAugment'), dict(type=PatchRefinement)],
}

_ON_POOLED_GRIDS = {'rel-pos-bias', 'rel-pos-mlp-and-gab', 'residual-low-memory-carried', 'residual-parity', 'neutreno'}
_ON_POOLED_GRIDS |= {'locality'}
_OF_MVIT = {*_ON_POOLED_GRIDS, 'residual-low-memory', 'residual-low-memory-bias', 'gated-attention', 'value-residual'}
_OF_MAPS = ('gab', 'rel-pos', 'residual', 'broad', 'refiner', 'dla')
# Plugs that a host refuses.
REFUSED: dict[str, set[str]] = {
    'mvit': _OF_MVIT,
    'mvit-cls': _OF_MVIT,
    'mvit-windows': {*_OF_MVIT, 'residual-reset'},
    'lvt': {*_ON_POOLED_GRIDS, 'broad-qk-only'},
    'pit': {'residual-parity'},
    'pit-distilled': {'residual-parity'},
    'mixer': {
        *(name for name in PLUGS if name.startswith(_OF_MAPS)),
        *('talking-heads', 'gated-attention', 'value-residual', 'attention-scale', 'neutreno', 'locality', 'sink'),
        *('entmax', 'locat', 'probe', 'cb-and-probe', 'cb-hybrid', 'cb-upper-everywhere'),
    },
}

# Plugs with tokens of their own, for hosts whose tokens are one sequence.
PREFIX_PLUGS = {'registers': [dict(type=Registers, num_registers=3)]}
PREFIX_HOSTS = ('vit', 'vit-no-cls', 't2t', 'pit', 'mvit-cls')


def randomize(model: nn.Module, seed: int = 0) -> nn.Module:
    """Fills every parameter with noise of a size at which attention is neither flat nor saturated."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            noise = torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
            parameter.copy_(0.2 * noise + (parameter.ndim == 1) * 0.5)
    return model


def images(height: int, width: int, batch: int = 2, dtype=torch.float64, seed: int = 1) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(batch, 3, height, width, generator=generator, dtype=torch.float64).to(dtype)


@torch.no_grad()
def enlarge_scores(attention: nn.Module, largest: float) -> None:
    """Scales the rows of q and k so that the largest scores of random tokens are about ``largest``."""
    attention = getattr(attention, 'w_msa', attention)
    if not getattr(getattr(attention, 'shape', None), 'map_heads', 0):  # it has neither
        return
    dims = attention.shape.head_dims
    projection = attention.qkv if hasattr(attention, 'qkv') else attention.q
    tokens = torch.randn(64, projection.in_features)
    if hasattr(attention, 'qkv'):
        q, k = (t[0].transpose(0, 1) for t in attention.split_heads(attention.qkv(tokens[None]))[:2])
        rows = [attention.qkv.weight[: 2 * attention.shape.map_heads * dims]]
    else:
        of_keys = slice(attention.shape.map_heads * dims)
        q, k = (t.unflatten(-1, (-1, dims)) for t in (attention.q(tokens), attention.kv(tokens)[:, of_keys]))
        rows = [attention.q.weight, attention.kv.weight[of_keys]]
    scores = (q.transpose(0, 1) @ k.permute(1, 2, 0)).abs() * attention.scale
    for weight in rows:
        weight *= (largest / scores.max()).sqrt()
