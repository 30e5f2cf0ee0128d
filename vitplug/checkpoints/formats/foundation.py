"""Foundation models of their authors, timm and Hugging Face: DINOv2, DINOv3, EVA-02, BEiT, MAE, CLIP's tower, SigLIP.

All are plain ViTs, of the network of :mod:`.vit`; a format differs in names and in which tensors are apart.
"""

import re
from dataclasses import dataclass, replace

from torch import Tensor

from .format import Refused, State
from .joined import JoinedFormat
from .vit import NETWORK, QKV

_ATTENTION = [('attn.qkv', 'attn.qkv'), ('attn.proj', 'attn.proj'), ('norm1', 'ln1'), ('norm2', 'ln2')]
_SCALES = [('ls1.gamma', 'attn.gamma1.weight'), ('ls2.gamma', 'ffn.gamma2.weight')]
_MLP = [('mlp.fc1', 'ffn.layers.0.0'), ('mlp.fc2', 'ffn.layers.1')]
# What timm and Meta name alike.
_EMBEDDING = [
    ('cls_token', 'backbone.cls_token'),
    ('pos_embed', 'backbone.pos_embed'),
    ('patch_embed.proj', 'backbone.patch_embed.projection'),
    ('norm', 'backbone.ln1'),
]
_STORAGE, _PRE_NORM = r'backbone\.storage_tokens', r'backbone\.pre_norm\.weight'
_SCALE, _SWIGLU = (rf'backbone\.layers\.\d+\.{name}\.weight' for name in (r'attn\.gamma1', r'ffn\.w12'))
_CLASS, _TABLE = r'backbone\.cls_token', r'backbone\.pos_embed'

# --- Meta ---


@dataclass(frozen=True)
class MetaDino(JoinedFormat):
    """DINOv2 and DINOv3 of their authors, whose blocks may be in chunks, and whose key biases are masked."""

    def to_vitplug(self, state: State) -> dict[str, Tensor]:
        state = {re.sub(r'^blocks\.\d+\.(\d+\.)', r'blocks.\1', key): value for key, value in state.items()}
        masks = {key.removesuffix('_mask'): value for key, value in state.items() if key.endswith('.qkv.bias_mask')}
        # A masked entry may be anything, NaN as well.
        hidden = {key: state[key].masked_fill(mask == 0, 0) for key, mask in masks.items()}
        kept = {key: value for key, value in state.items() if not key.endswith('.qkv.bias_mask')}
        return super().to_vitplug({**kept, **hidden})

    def notes(self, state: State) -> list[str]:
        count = sum(key.endswith('.qkv.bias_mask') for key in state)
        return [f'applied and left out {count} masks of the bias of q, k and v (blocks.0.attn.qkv.bias_mask)'] * (
            count > 0
        )


META_DINOV2 = MetaDino(
    'Meta DINOv2',
    NETWORK,
    (r'blocks\.(?:\d+\.)?\d+\.attn\.qkv\.weight', r'blocks\.(?:\d+\.)?\d+\.ls1\.gamma', 'mask_token', 'pos_embed'),
    [*_EMBEDDING, ('register_tokens', 'backbone.storage_tokens'), ('mask_token', 'backbone.mask_token')],
    inside=[*_ATTENTION, *_SCALES],
    plain=_MLP,
    gated=[('mlp.w12', 'ffn.w12'), ('mlp.w3', 'ffn.w3')],
)
META_DINOV3 = MetaDino(
    'Meta DINOv3',
    NETWORK,
    (QKV, r'rope_embed\.periods'),
    [
        *_EMBEDDING,
        ('storage_tokens', 'backbone.storage_tokens'),
        ('rope_embed.periods', 'backbone.rotary.periods'),
        ('cls_norm', 'backbone.prefix_norm'),
        # That of local crops, which pre-training alone has.
        ('local_cls_norm', 'backbone.local_cls_norm'),
        ('mask_token', 'backbone.mask_token'),
    ],
    without_bias=(r'layers\.\d+\.attn\.qkv\.bias',),
    rotary='dinov3',
    inside=[*_ATTENTION, *_SCALES],
    plain=_MLP,
    gated=[('mlp.w12', 'ffn.w12'), ('mlp.w3', 'ffn.w3')],
    joins=[(('mlp.w1', 'mlp.w2'), 'mlp.w12')],
)

# --- timm ---

_Q_V = (('attn.q_bias', 'attn.k_bias', 'attn.v_bias'), 'attn.qkv.bias')
_Q_K_V = (('attn.q_proj', 'attn.k_proj', 'attn.v_proj'), 'attn.qkv')
_HALVES = (('mlp.fc1_g', 'mlp.fc1_x'), 'mlp.w12')
_GAMMAS = [('gamma_1', 'attn.gamma1.weight'), ('gamma_2', 'ffn.gamma2.weight')]
_TIMM_EVA = [
    *_EMBEDDING,
    ('reg_token', 'backbone.storage_tokens'),
    ('fc_norm', 'backbone.ln2'),
    ('head', 'head.layers.head'),
    ('head', 'head.fc'),
]
_TIMM_GATED = [('mlp.w12', 'ffn.w12'), ('mlp.norm', 'ffn.norm'), ('mlp.fc2', 'ffn.w3')]
_BIAS_OF_QKV = (r'layers\.\d+\.attn\.qkv\.bias',)

TIMM_DINOV3 = JoinedFormat(
    'timm DINOv3',
    NETWORK,
    # Others of timm with rotary positions have no such norm.
    (QKV, r'blocks\.\d+\.gamma_1', 'reg_token', r'norm\.weight'),
    _TIMM_EVA,
    # timm leaves biases out where those of the released weights are 0.
    without_bias=_BIAS_OF_QKV,
    rotary='dinov3',
    inside=[*_ATTENTION, *_GAMMAS],
    plain=_MLP,
    gated=_TIMM_GATED,
    joins=[_Q_V, _HALVES],
    keyless='attn.k_bias',
    zero_free=True,
    marks=(_STORAGE,),
    lacks=(_TABLE,),
)
TIMM_ROPE_REGISTERS = JoinedFormat(
    'timm ViT with registers and rotary positions',
    NETWORK,
    # Without a class token and a norm of all tokens: vit_*_rope_reg*_gap_*.
    (QKV, r'blocks\.\d+\.gamma_1', 'reg_token', r'fc_norm\.weight'),
    _TIMM_EVA,
    without_bias=_BIAS_OF_QKV,
    rotary='eva02',
    inside=[*_ATTENTION, *_GAMMAS],
    plain=_MLP,
    joins=[_Q_V],
    keyless='attn.k_bias',
    zero_free=True,
    marks=(_STORAGE,),
    lacks=(_TABLE, _CLASS),
)
_RELATIVE = 'relative.relative_position_bias_table'
_HAS_RELATIVE = rf'backbone\.layers\.\d+\.attn\.{re.escape(_RELATIVE)}'
TIMM_BEIT = JoinedFormat(
    'timm BEiT',
    NETWORK,
    (QKV, r'blocks\.\d+\.attn\.relative_position_bias_table'),
    [*_TIMM_EVA, ('mask_token', 'backbone.mask_token')],
    inside=[('attn.relative_position_bias_table', f'attn.{_RELATIVE}'), *_ATTENTION, *_GAMMAS],
    plain=_MLP,
    joins=[_Q_V],
    keyless='attn.k_bias',
    marks=(_HAS_RELATIVE,),
)


@dataclass(frozen=True)
class TimmEva02(JoinedFormat):
    """EVA-02-T and S of timm; their SwiGLU has the names of an MLP."""

    def to_vitplug(self, state: State) -> dict[str, Tensor]:
        if not self._is_gated(state):
            raise ValueError(
                'timm EVA has no SwiGLU: EVA and EVA-02-E have the same keys, and norms in other places; vitplug has '
                'EVA-02-T, S, B and L'
            )
        return super().to_vitplug(state)


TIMM_EVA02 = TimmEva02(
    'timm EVA-02-T or S',
    NETWORK,
    (QKV, r'blocks\.\d+\.attn\.q_bias', 'pos_embed'),
    _TIMM_EVA,
    rotary='eva02',
    inside=_ATTENTION,
    plain=_MLP,
    gated=[('mlp.fc1', 'ffn.w12'), ('mlp.fc2', 'ffn.w3')],
    joins=[_Q_V],
    keyless='attn.k_bias',
    marks=(_TABLE, _SWIGLU),
    lacks=(_SCALE,),
)
TIMM_EVA_REGISTERS = Refused(
    'timm EVA with registers',
    NETWORK,
    (r'blocks\.\d+\.attn\.(?:q_bias|q_proj\.weight)', 'reg_token', 'pos_embed'),
    why='vitplug has EVA-02-T, S, B and L, which have no registers',
)
TIMM_EVA02_LARGE = JoinedFormat(
    'timm EVA-02-B or L',
    NETWORK,
    (r'blocks\.\d+\.attn\.q_proj\.weight', r'blocks\.\d+\.mlp\.fc1_g\.weight'),
    _TIMM_EVA,
    rotary='eva02',
    inside=_ATTENTION,
    plain=_MLP,
    gated=_TIMM_GATED,
    joins=[_Q_K_V, _HALVES],
    keyless='attn.k_proj.bias',
    marks=(_TABLE, r'backbone\.layers\.\d+\.ffn\.norm\.weight'),
)
ORIGINAL_EVA02 = JoinedFormat(
    'original EVA-02',
    NETWORK,
    (r'blocks\.\d+\.attn\.q_proj\.weight', r'blocks\.\d+\.attn\.q_bias'),
    [*_TIMM_EVA, ('mask_token', 'backbone.mask_token')],
    rotary='eva02',
    inside=_ATTENTION,
    plain=_MLP,
    gated=[('mlp.w12', 'ffn.w12'), ('mlp.ffn_ln', 'ffn.norm'), ('mlp.w3', 'ffn.w3')],
    joins=[_Q_V, _Q_K_V, (('mlp.w1', 'mlp.w2'), 'mlp.w12')],
    keyless='attn.k_bias',
)

# --- Hugging Face ---

_OF_BERT = 'attention.attention.'
_HF_JOINS = [(tuple(_OF_BERT + name for name in ('query', 'key', 'value')), f'{_OF_BERT}qkv')]
_HF_ATTENTION = [(f'{_OF_BERT}qkv', 'attn.qkv'), ('attention.output.dense', 'attn.proj')]
_HF_EMBEDDING = [
    ('embeddings.cls_token', 'backbone.cls_token'),
    ('embeddings.register_tokens', 'backbone.storage_tokens'),
    ('embeddings.mask_token', 'backbone.mask_token'),
    ('embeddings.position_embeddings', 'backbone.pos_embed'),
    ('embeddings.patch_embeddings.projection', 'backbone.patch_embed.projection'),
    ('layernorm', 'backbone.ln1'),
]
_LAMBDAS = [('layer_scale1.lambda1', 'attn.gamma1.weight'), ('layer_scale2.lambda1', 'ffn.gamma2.weight')]
_QUERY = r'encoder\.layer\.\d+\.attention\.attention\.query\.weight'

HF_VIT = JoinedFormat(
    'Hugging Face ViT',
    NETWORK,
    (_QUERY, r'encoder\.layer\.\d+\.layernorm_before\.weight', 'embeddings.position_embeddings'),
    [*_HF_EMBEDDING, ('pooler', 'pooler')],
    block='encoder.layer.{}',
    inside=[*_HF_ATTENTION, ('layernorm_before', 'ln1'), ('layernorm_after', 'ln2')],
    plain=[('intermediate.dense', 'ffn.layers.0.0'), ('output.dense', 'ffn.layers.1')],
    joins=_HF_JOINS,
    marks=(_CLASS, _TABLE),
    lacks=(_PRE_NORM, _SCALE, _SWIGLU),
)
HF_DEIT = replace(
    HF_VIT,
    name='Hugging Face DeiT',
    anchors=(*HF_VIT.anchors, 'embeddings.distillation_token'),
    names=[('embeddings.distillation_token', 'backbone.dist_token'), *HF_VIT.names],
    marks=(*HF_VIT.marks, r'backbone\.dist_token'),
)
HF_DINOV2 = JoinedFormat(
    'Hugging Face DINOv2',
    NETWORK,
    (_QUERY, r'encoder\.layer\.\d+\.layer_scale1\.lambda1'),
    _HF_EMBEDDING,
    block='encoder.layer.{}',
    inside=[*_HF_ATTENTION, *_LAMBDAS, ('norm1', 'ln1'), ('norm2', 'ln2')],
    plain=_MLP,
    gated=[('mlp.weights_in', 'ffn.w12'), ('mlp.weights_out', 'ffn.w3')],
    joins=_HF_JOINS,
    marks=(_CLASS, _TABLE, _SCALE),
)
HF_DINOV3 = JoinedFormat(
    'Hugging Face DINOv3',
    NETWORK,
    (r'layer\.\d+\.attention\.q_proj\.weight', r'layer\.\d+\.layer_scale1\.lambda1'),
    [
        *[pair for pair in _HF_EMBEDDING if pair[0].startswith('embeddings.') and 'patch' not in pair[0]],
        ('embeddings.patch_embeddings', 'backbone.patch_embed.projection'),
        ('norm', 'backbone.ln1'),
    ],
    without_bias=_BIAS_OF_QKV,
    rotary='dinov3',
    block='layer.{}',
    inside=[('attention.qkv', 'attn.qkv'), ('attention.o_proj', 'attn.proj'), *_LAMBDAS, *_ATTENTION[2:]],
    plain=[('mlp.up_proj', 'ffn.layers.0.0'), ('mlp.down_proj', 'ffn.layers.1')],
    gated=[('mlp.gate_up_proj', 'ffn.w12'), ('mlp.down_proj', 'ffn.w3')],
    joins=[
        (('attention.q_proj', 'attention.k_proj', 'attention.v_proj'), 'attention.qkv'),
        (('mlp.gate_proj', 'mlp.up_proj'), 'mlp.gate_up_proj'),
    ],
    keyless='attention.k_proj.bias',
    marks=(_STORAGE,),
    lacks=(_TABLE,),
)

HF_BEIT = JoinedFormat(
    'Hugging Face BEiT',
    NETWORK,
    (_QUERY, r'encoder\.layer\.\d+\.lambda_1'),
    [*_HF_EMBEDDING, ('pooler.layernorm', 'backbone.ln2')],
    block='encoder.layer.{}',
    inside=[
        (f'{_OF_BERT}relative_position_bias.relative_position_bias_table', f'attn.{_RELATIVE}'),
        *[('lambda_1', 'attn.gamma1.weight'), ('lambda_2', 'ffn.gamma2.weight')],
        *HF_VIT.inside,
    ],
    plain=HF_VIT.plain,
    joins=_HF_JOINS,
    keyless=f'{_OF_BERT}key.bias',
    marks=(_HAS_RELATIVE,),
)

# --- CLIP and SigLIP ---

_TOWER = dict(
    block='encoder.layers.{}',
    inside=[
        ('self_attn.qkv', 'attn.qkv'),
        ('self_attn.out_proj', 'attn.proj'),
        ('layer_norm1', 'ln1'),
        ('layer_norm2', 'ln2'),
    ],
    plain=_MLP,
    joins=[(('self_attn.q_proj', 'self_attn.k_proj', 'self_attn.v_proj'), 'self_attn.qkv')],
)
_TOWER_NAMES = [
    ('embeddings.patch_embedding', 'backbone.patch_embed.projection'),
    ('embeddings.position_embedding.weight', 'backbone.pos_embed'),
    ('post_layernorm', 'backbone.ln1'),
]
_Q_PROJ = r'encoder\.layers\.\d+\.self_attn\.q_proj\.weight'
_POSITIONS = {'embeddings.position_embedding.weight': 2}

HF_CLIP = JoinedFormat(
    'Hugging Face CLIP',
    NETWORK,
    (_Q_PROJ, 'embeddings.class_embedding'),
    [
        *_TOWER_NAMES,
        ('embeddings.class_embedding', 'backbone.cls_token'),
        # The name as it is spelled there.
        ('pre_layrnorm', 'backbone.pre_norm'),
    ],
    dimensions={**_POSITIONS, 'embeddings.class_embedding': 1},
    marks=(_CLASS, _TABLE, _PRE_NORM),
    **_TOWER,
)
HF_SIGLIP = JoinedFormat(
    'Hugging Face SigLIP',
    NETWORK,
    (_Q_PROJ, 'embeddings.position_embedding.weight', r'head\.probe'),
    # Its head pools by attention, which no backbone does.
    [*_TOWER_NAMES, ('head', 'attention_pool')],
    dimensions=_POSITIONS,
    marks=(_TABLE,),
    lacks=(_CLASS, _STORAGE),
    **_TOWER,
)
OPENAI_CLIP = JoinedFormat(
    'OpenAI CLIP',
    NETWORK,
    (r'transformer\.resblocks\.\d+\.attn\.in_proj_weight', 'class_embedding'),
    [
        ('conv1', 'backbone.patch_embed.projection'),
        ('class_embedding', 'backbone.cls_token'),
        ('positional_embedding', 'backbone.pos_embed'),
        ('ln_pre', 'backbone.pre_norm'),
        ('ln_post', 'backbone.ln1'),
        ('proj', 'proj'),
    ],
    block='transformer.resblocks.{}',
    inside=[
        ('attn.in_proj_weight', 'attn.qkv.weight'),
        ('attn.in_proj_bias', 'attn.qkv.bias'),
        ('attn.out_proj', 'attn.proj'),
        ('ln_1', 'ln1'),
        ('ln_2', 'ln2'),
    ],
    plain=[('mlp.c_fc', 'ffn.layers.0.0'), ('mlp.c_proj', 'ffn.layers.1')],
    dimensions={'class_embedding': 1, 'positional_embedding': 2},
)

#: In the order in which they are tried, the more special first.
FORMATS = (
    *(META_DINOV3, META_DINOV2, ORIGINAL_EVA02, TIMM_EVA_REGISTERS, TIMM_EVA02_LARGE, TIMM_BEIT, TIMM_EVA02),
    *(TIMM_ROPE_REGISTERS, TIMM_DINOV3),
    *(HF_DINOV3, HF_DINOV2, HF_BEIT, HF_DEIT, HF_VIT, HF_CLIP, HF_SIGLIP, OPENAI_CLIP),
)
TIMM = (TIMM_BEIT, TIMM_EVA02_LARGE, TIMM_EVA02, TIMM_ROPE_REGISTERS, TIMM_DINOV3)
HUGGING_FACE = (HF_BEIT, HF_DINOV3, HF_CLIP, HF_DINOV2, HF_DEIT, HF_VIT, HF_SIGLIP)
