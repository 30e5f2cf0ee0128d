"""Networks with stages, MLP-Mixer, T2T-ViT, and the plain ViTs that authors of the papers released.

ReSwin has no alpha, so its weights are those of a Swin.
"""

import re
from math import isqrt

import torch
import torch.nn.functional as F

from .format import Format, State
from .vit import NAMES, QKV

# --- Swin ---

_SWIN_NAMES = (
    'absolute_pos_embed, mask_token, patch_embed.proj = patch_embed.projection, patch_embed.norm, norm = norm{last}',
    'head.fc = .head.fc, head = .head.fc',
    '[layers.{}.blocks.{} = stages.{}.blocks.{}]',
    'norm1, norm2, norm3, attn = attn.w_msa, mlp.fc1 = ffn.layers.0.0, mlp.fc2 = ffn.layers.1',
)
_V2 = 'layers.0.blocks.0.attn.logit_scale'
# timm's first patch merging is in layers.1 (or missing), the original's in layers.0.
_IN_LAYER_0 = 'layers.0.downsample.reduction.weight'
TIMM_SWIN = Format(
    'timm Swin',
    'layers.(?:1.downsample.reduction.weight|0.blocks.0.attn.relative_position_bias_table)',
    ('layers.{}.downsample:merged = stages.{-1}.downsample', *_SWIN_NAMES),
)
ORIGINAL_SWIN = Format(
    'original Swin',
    _IN_LAYER_0,
    ('layers.{}.downsample:merged = stages.{}.downsample, norm{}', *_SWIN_NAMES),  # norms of detectors' outputs
)
# In the second version, the norm of a merging comes after the reduction.
TIMM_SWIN_V2 = Format(
    'timm Swin V2',
    _V2,
    (
        'layers.{}.downsample.reduction:merged = stages.{}.downsample.reduction',
        *('layers.{}.downsample = stages.{}.downsample', *_SWIN_NAMES),
    ),
)
ORIGINAL_SWIN_V2 = Format(
    'original Swin V2',
    f'{_V2} {_IN_LAYER_0}',
    (
        'layers.{}.downsample.reduction:merged = stages.{+1}.downsample.reduction',
        *('layers.{}.downsample = stages.{+1}.downsample, norm{}', *_SWIN_NAMES),
    ),
)
MM_SWIN = Format(
    'OpenMMLab Swin',
    'stages.{}.blocks.{}.attn.w_msa.(?:relative_position_bias_table|logit_scale)',
    # The first, without a number, is of early files.
    ('norm = norm{last}, norm{}, patch_embed, absolute_pos_embed, mask_token, stages, plugs',),
)

# --- MViTv2 ---

_POOL_K = 'blocks.{}.attn.pool_k.weight'
_BLOCK_OF_STAGE = re.compile(r'^stages\.(\d+)\.blocks\.(\d+)\.')
_MVIT_NAMES = (
    'patch_embed.proj = patch_embed.projection, cls_token, pos_embed, norm = norm{last}',
    'head.projection = .head.fc, head.fc = .head.fc',
    'alpha = plugs.residual_attention.start.alpha.residual_alpha',
    '[blocks.{}]',
    'norm1, norm2, attn.qkv, attn.proj, attn.rel_pos_h, attn.rel_pos_w, mlp.fc1, mlp.fc2',
    'attn.pool_q, attn.norm_q, attn.pool_k, attn.norm_k, attn.pool_v, attn.norm_v',
    'proj, shortcut_proj_attn = proj, shortcut_proj_mlp = proj',
)


def _through_stages(theirs: State) -> State:
    """timm counts blocks by stages: the keys with blocks counted through all stages."""
    blocks = sorted({tuple(map(int, match.groups())) for key in theirs if (match := _BLOCK_OF_STAGE.match(key))})

    def renamed(match: re.Match) -> str:
        return f'blocks.{blocks.index((int(match[1]), int(match[2])))}.'

    return {_BLOCK_OF_STAGE.sub(renamed, key): value for key, value in theirs.items()}


ORIGINAL_MVIT = Format('original MViT or ReMViT', f'{_POOL_K} patch_embed.proj.weight', _MVIT_NAMES)
TIMM_MVIT = Format('timm MViT', 'stages.{}.blocks.{}.attn.pool_k.weight', _MVIT_NAMES, prepare=_through_stages)
MM_MVIT = Format('OpenMMLab MViT', f'{_POOL_K} patch_embed.projection.weight')

# --- MLP-Mixer ---

TIMM_MIXER = Format(
    'timm MLP-Mixer',
    'blocks.{}.mlp_tokens.fc1.weight',
    (
        'stem.proj = patch_embed.projection, norm = ln1, head = .head.fc',
        '[blocks.{} = layers.{}]',
        'norm1 = ln1, mlp_tokens.fc1 = token_mix.layers.0.0, mlp_tokens.fc2 = token_mix.layers.1',
        'norm2 = ln2, mlp_channels.fc1 = channel_mix.layers.0.0, mlp_channels.fc2 = channel_mix.layers.1',
    ),
)
MM_MIXER = Format('OpenMMLab MLP-Mixer', 'layers.{}.token_mix.layers.0.0.weight')

# --- PiT, whose names vitplug has ---

PIT = Format(
    'original or timm PiT',
    'transformers.{}.blocks.{}.attn.qkv.weight',
    (
        # The authors count the poolings between the stages, timm gives them to the stage after.
        'patch_embed, cls_token, pos_embed, norm, transformers.{}.pool, pools.{} = transformers.{+1}.pool',
        'head_dist = .head.layers.head_dist, head = .head.layers.head',
        '[transformers.{}.blocks.{}]',
        'norm1, attn.qkv, attn.proj, norm2, mlp.fc1, mlp.fc2',
    ),
)

# --- T2T-ViT ---

_PROJECT = 'tokens_to_token.project.weight'
_T2T_BLOCK = 'norm1 = ln1, attn.qkv, attn.proj, norm2 = ln2, mlp.fc1 = ffn.layers.0.0, mlp.fc2 = ffn.layers.1'
ORIGINAL_T2T = Format(
    'original T2T-ViT',
    f'{_PROJECT} blocks.{{}}.attn.qkv.weight',
    (
        'cls_token, pos_embed, norm, tokens_to_token.project, head = .head.layers.head',
        # The two blocks of the tokens-to-token module are transformers as the others, or performers.
        *('[tokens_to_token.attention{}]', _T2T_BLOCK, 'kqv = attn.kqv, proj = attn.proj, w = attn.random_features'),
        'mlp.0 = ffn.layers.0.0, mlp.2 = ffn.layers.1',
        *('[blocks.{} = encoder.{}]', _T2T_BLOCK),
    ),
)
MM_T2T = Format('OpenMMLab T2T-ViT', f'{_PROJECT} encoder.{{}}.attn.qkv.weight')

# --- LVT, whose authors count the stages below `backbone`, as a classifier with vitplug's backbone does ---

_QUERIES = '{}.1.{}.attn.q.weight'
_NORM = '(?:norm|downstream_norms.{}).weight'
ORIGINAL_LVT = Format(
    'original LVT',
    f'backbone.{_QUERIES} {_NORM}',
    (
        'backbone = .backbone, norm, downstream_norms, post_network, cls_token',
        'aux_head = .head.aux_head, head = .head.layers.head',
    ),
)
MM_LVT = Format('vitplug LVT', f'{_QUERIES} {_NORM}')

# --- Refined-ViT, which fits `scheme='official'` of the plug ---


def _complete_refiner(theirs: State) -> State:
    """Adds what the plug keeps beside the weights: tokens of the batch norms' statistics, and scales of 1.

    The first code has no scale of the MLPs' channels, which later code has.
    """
    tokens, completed = torch.tensor([theirs['pos_embed'].shape[1]]), dict(theirs)
    for key, value in theirs.items():
        block, _, part = key.partition('.attn.adapt_bn.')
        if part == 'weight':
            completed[f'{block}.attn.reference_tokens'] = tokens
        block, _, part = key.partition('.norm2.')
        if part == 'weight':
            completed.setdefault(f'{block}.mlp.scale_channel', torch.ones_like(value))
    return completed


REFINED_VIT = Format(
    'Refined-ViT',
    f'{QKV} blocks.{{}}.attn.adapt_bn.weight pos_embed',
    (
        'patch_embed.conv{} = patch_embed.stem.{-1}.conv, patch_embed.bn{} = patch_embed.stem.{-1}.bn',
        'blocks.{}.mlp.scale_channel = layers.{}.plugs.refiner.mlp_end.scale, aux_head = .head.aux_head',
        *NAMES,
        '[blocks.{}.attn = layers.{}.plugs.refiner.map]',
        'DLA.conv_exp.weight = expand, DLA.bn1 = expand_bn, DLA.depth_sep_conv.weight = local, DLA.bn2 = local_bn',
        'DLA.conv_pro.weight = reduce, DLA.bn3 = reduce_bn, adapt_bn, reference_tokens',
    ),
    prepare=_complete_refiner,
)

# --- ReViT: the host's names and one alpha ---

REVIT = Format(
    'ReViT',
    f'{QKV} alpha',
    ('alpha = plugs.residual_attention.start.alpha.residual_alpha, head.projection = .head.fc', *NAMES),
)

# --- BViT, whose host has a convolution of 7 x 7 before patches of 16 x 16, and so 7 x 7 tokens at 224 x 224 ---

_STEM, _PATCHES, _TABLE = 'conv', 'to_patch_embedding.1', 'pos_embedding'
_EMBED = 'patch_embed.projection'
_REPLACED = (*(f'{part}.{name}' for part in (_STEM, _PATCHES) for name in ('weight', 'bias')), _TABLE)
STEM_STRIDE = 2


def _merge_stem(theirs: State) -> State:
    """One convolution for both: nothing lies between the first one, of stride 2, and the patches.

    For a host with ``patch_size=32, patch_cfg=dict(kernel_size=37, padding=3), qkv_bias=False``.
    """
    # The code stores a position for each patch of the image, and sees patches of half the image.
    side = isqrt(theirs[_TABLE].shape[1] - 1) // STEM_STRIDE
    positions = theirs[_TABLE][:, : 1 + side**2]
    stem, patches = theirs[f'{_STEM}.weight'], theirs[f'{_PATCHES}.weight']
    side = isqrt(patches.shape[1] // 3)
    dtype = patches.dtype
    stem, patches = stem.double(), patches.double().unflatten(1, (side, side, 3)).movedim(-1, 1)
    weight = F.conv_transpose2d(patches, stem, stride=STEM_STRIDE)
    bias = theirs[f'{_PATCHES}.bias'].double() + patches.sum(dim=(2, 3)) @ theirs[f'{_STEM}.bias'].double()
    others = {key: value for key, value in theirs.items() if key not in _REPLACED}
    return {**others, f'{_EMBED}.weight': weight.to(dtype), f'{_EMBED}.bias': bias.to(dtype), _TABLE: positions}


BVIT = Format(
    'BViT',
    ' '.join(('transformer.layers.{}.0.fn.to_qkv.weight', *_REPLACED)),
    (
        f'{_EMBED}, cls_token, {_TABLE} = pos_embed, mlp_head.0 = ln1, mlp_head.1 = .head.layers.head',
        '[transformer.layers.{} = layers.{}]',
        '0.norm = ln1, 0.fn.to_qkv = attn.qkv, 0.fn.to_out.0 = attn.proj',
        '1.norm = ln2, 1.fn.net.0 = ffn.layers.0.0, 1.fn.net.3 = ffn.layers.1',
    ),
    prepare=_merge_stem,
)

#: In the order in which they are tried, the more special first.
FORMATS = (
    *(ORIGINAL_T2T, MM_T2T, ORIGINAL_LVT, MM_LVT, PIT, ORIGINAL_MVIT, MM_MVIT, TIMM_MVIT),
    *(ORIGINAL_SWIN_V2, TIMM_SWIN_V2, MM_SWIN, ORIGINAL_SWIN, TIMM_SWIN, MM_MIXER, TIMM_MIXER),
    *(REFINED_VIT, REVIT, BVIT),
)
