"""T2T-ViT of its authors and of mmpretrain."""

from .format import OpenMMLab, Released, below

NETWORK = 'T2T-ViT'

_PROJECT = r'tokens_to_token\.project\.weight'
_BLOCK = [
    ('norm1', 'ln1'),
    ('attn.qkv', 'attn.qkv'),
    ('attn.proj', 'attn.proj'),
    ('norm2', 'ln2'),
    ('mlp.fc1', 'ffn.layers.0.0'),
    ('mlp.fc2', 'ffn.layers.1'),
]
# The two blocks of the tokens-to-token module are transformers as the others, or performers.
_PERFORMER = [
    ('kqv', 'attn.kqv'),
    ('proj', 'attn.proj'),
    ('w', 'attn.random_features'),
    ('mlp.0', 'ffn.layers.0.0'),
    ('mlp.2', 'ffn.layers.1'),
]
_TOKENS = 'tokens_to_token.attention{}'

T2T_VIT = Released(
    'original T2T-ViT',
    NETWORK,
    (_PROJECT, r'blocks\.\d+\.attn\.qkv\.weight'),
    [
        ('cls_token', 'backbone.cls_token'),
        ('pos_embed', 'backbone.pos_embed'),
        *below(_TOKENS, f'backbone.{_TOKENS}', [*_BLOCK, *_PERFORMER]),
        ('tokens_to_token.project', 'backbone.tokens_to_token.project'),
        *below('blocks.{}', 'backbone.encoder.{}', _BLOCK),
        ('norm', 'backbone.norm'),
        ('head', 'head.layers.head'),
    ],
)
MM_T2T_VIT = OpenMMLab('OpenMMLab T2T-ViT', NETWORK, (_PROJECT, r'encoder\.\d+\.attn\.qkv\.weight'))
