"""Networks with little more than names: MLP-Mixer, PiT, T2T-ViT, LVT, of their authors, timm and mmpretrain."""

from .format import Format, table

MIXER, PIT, T2T, LVT = 'MLP-Mixer', 'PiT', 'T2T-ViT', 'LVT'

# --- MLP-Mixer ---

TIMM_MIXER = Format(
    'timm MLP-Mixer',
    MIXER,
    (r'blocks\.\d+\.mlp_tokens\.fc1\.weight',),
    (
        *table('stem.proj = patch_embed.projection, norm = ln1, head = .head.fc'),
        *table(
            """
            norm1 = ln1, mlp_tokens.fc1 = token_mix.layers.0.0, mlp_tokens.fc2 = token_mix.layers.1
            norm2 = ln2, mlp_channels.fc1 = channel_mix.layers.0.0, mlp_channels.fc2 = channel_mix.layers.1
            """,
            'blocks.{}.',
            'layers.{}.',
        ),
    ),
)
MM_MIXER = Format('OpenMMLab MLP-Mixer', MIXER, (r'layers\.\d+\.token_mix\.layers\.0\.0\.weight',))

# --- PiT, whose names vitplug has ---

_PIT_QKV = r'transformers\.\d+\.blocks\.\d+\.attn\.qkv\.weight'
_PIT_NAMES = (
    *table('patch_embed, cls_token, pos_embed, norm, transformers.{}.pool'),
    *table('norm1, attn.qkv, attn.proj, norm2, mlp.fc1, mlp.fc2', *['transformers.{}.blocks.{}.'] * 2),
    *table('head_dist = .head.layers.head_dist, head = .head.layers.head, head = .head.fc'),
)
TIMM_PIT = Format('timm PiT', PIT, (_PIT_QKV,), _PIT_NAMES)
ORIGINAL_PIT = Format(
    'original PiT',
    PIT,
    (_PIT_QKV, r'pools\.0\.conv\.weight'),
    # The authors count the poolings between the stages, timm gives them to the stage after.
    (*table('pools.{} = transformers.{+1}.pool'), *_PIT_NAMES),
)

# --- T2T-ViT ---

_PROJECT = r'tokens_to_token\.project\.weight'
_T2T_BLOCK = 'norm1 = ln1, attn.qkv, attn.proj, norm2 = ln2, mlp.fc1 = ffn.layers.0.0, mlp.fc2 = ffn.layers.1'
# The two blocks of the tokens-to-token module are transformers as the others, or performers.
_PERFORMER = 'kqv = attn.kqv, proj = attn.proj, w = attn.random_features, mlp.0 = ffn.layers.0.0, mlp.2 = ffn.layers.1'
T2T_VIT = Format(
    'original T2T-ViT',
    T2T,
    (_PROJECT, r'blocks\.\d+\.attn\.qkv\.weight'),
    (
        *table('cls_token, pos_embed, norm, tokens_to_token.project, head = .head.layers.head'),
        *table(f'{_T2T_BLOCK}, {_PERFORMER}', *['tokens_to_token.attention{}.'] * 2),
        *table(_T2T_BLOCK, 'blocks.{}.', 'encoder.{}.'),
    ),
    strict=True,
)
MM_T2T_VIT = Format('OpenMMLab T2T-ViT', T2T, (_PROJECT, r'encoder\.\d+\.attn\.qkv\.weight'))

# --- LVT, whose authors count the stages below `backbone`, as a classifier with vitplug's backbone does ---

_QUERIES = r'\d+\.1\.\d+\.attn\.q\.weight'
_NORM = r'(?:norm|downstream_norms\.\d+)\.weight'
ORIGINAL_LVT = Format(
    'original LVT',
    LVT,
    (rf'backbone\.{_QUERIES}', _NORM),
    table(
        """
        backbone = .backbone, norm, downstream_norms, post_network, cls_token
        aux_head = .head.aux_head, head = .head.layers.head
        """
    ),
    strict=True,
)
MM_LVT = Format('vitplug LVT', LVT, (_QUERIES, _NORM))
