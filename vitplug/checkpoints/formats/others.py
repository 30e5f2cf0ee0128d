"""Networks with stages, and MLP-Mixer and T2T-ViT, of their authors, timm, OpenMMLab and Hugging Face."""

import re

from .format import Format, State

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
    strict=True,  # Hugging Face's files have these keys, and others
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
    strict=True,
)
# Early files have `norm` for the last norm, without a number.
_MM_SWIN = ('norm = norm{last}, absolute_pos_embed:image',)
_TABLE = 'stages.{}.blocks.{}.attn.w_msa.relative_position_bias_table'
MM_SWIN = Format('OpenMMLab Swin', _TABLE, _MM_SWIN)
MM_SWIN_V2 = Format('OpenMMLab Swin V2', 'stages.{}.blocks.{}.attn.w_msa.logit_scale', _MM_SWIN)

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


ORIGINAL_MVIT = Format('original MViT', f'{_POOL_K} patch_embed.proj.weight', _MVIT_NAMES, strict=True)
REMVIT = Format('ReMViT', f'{_POOL_K} alpha', _MVIT_NAMES, strict=True)
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

_PIT_QKV = 'transformers.{}.blocks.{}.attn.qkv.weight'
_PIT_NAMES = (
    # The authors count the poolings between the stages, timm gives them to the stage after.
    'patch_embed, cls_token, pos_embed, norm, transformers.{}.pool, pools.{} = transformers.{+1}.pool',
    'head_dist = .head.layers.head_dist, head = .head.layers.head',
    '[transformers.{}.blocks.{}]',
    'norm1, attn.qkv, attn.proj, norm2, mlp.fc1, mlp.fc2',
)
TIMM_PIT = Format('timm PiT', _PIT_QKV, _PIT_NAMES)
ORIGINAL_PIT = Format('original PiT', f'{_PIT_QKV} pools.0.conv.weight', _PIT_NAMES)

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
    strict=True,
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
    strict=True,
)
MM_LVT = Format('vitplug LVT', f'{_QUERIES} {_NORM}')

#: In the order in which they are tried, the more special first.
FORMATS = (
    *(REMVIT, ORIGINAL_T2T, MM_T2T, ORIGINAL_LVT, MM_LVT, ORIGINAL_PIT, TIMM_PIT, ORIGINAL_MVIT, MM_MVIT, TIMM_MVIT),
    *(MM_SWIN_V2, ORIGINAL_SWIN_V2, TIMM_SWIN_V2, MM_SWIN, ORIGINAL_SWIN, TIMM_SWIN, MM_MIXER, TIMM_MIXER),
)
