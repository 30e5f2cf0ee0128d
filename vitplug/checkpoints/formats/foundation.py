"""Foundation models of their authors, timm and Hugging Face: DINOv2, DINOv3, EVA-02, BEiT, MAE, CLIP's tower, SigLIP.

All are plain ViTs, of the network of :mod:`.vit`; a format differs in names and in which tensors are apart.
"""

import re
from dataclasses import replace
from functools import partial

from torch import Tensor

from .format import Format, State, is_gated, table
from .vit import NETWORK, QKV

_blocks = partial(table, theirs='blocks.{}.', ours='layers.{}.')
_layers = partial(table, theirs='encoder.layer.{}.', ours='layers.{}.')
_STORAGE = r'backbone\.storage_tokens'
_SCALE, _SWIGLU = (rf'backbone\.layers\.\d+\.{name}\.weight' for name in (r'attn\.gamma1', r'ffn\.w12'))
_CLASS, _TABLE = r'backbone\.cls_token', r'backbone\.pos_embed'
_HAS_RELATIVE = r'backbone\.layers\.\d+\.attn\.relative\.relative_position_bias_table'
_BIAS_OF_QKV = (r'layers\.\d+\.attn\.qkv\.bias',)

# What timm and Meta name alike.
_EMBEDDING = table('cls_token, pos_embed, patch_embed.proj = patch_embed.projection, norm = ln1')
_ATTENTION = 'attn.proj, norm1 = ln1, norm2 = ln2'
_MLP = 'mlp.fc1 = ffn.layers.0.0, mlp.fc2 = ffn.layers.1'

# --- Meta ---


def _prepare_meta(theirs: State) -> dict[str, Tensor]:
    """Blocks may be in chunks, and biases of keys are masked; a masked entry may be anything, NaN as well."""
    plain = {re.sub(r'^blocks\.\d+\.(\d+\.)', r'blocks.\1', key): value for key, value in theirs.items()}
    masks = {key: plain.pop(key) for key in list(plain) if key.endswith('.qkv.bias_mask')}
    biases = {key.removesuffix('_mask'): mask == 0 for key, mask in masks.items()}
    return plain | {key: plain[key].masked_fill(is_hidden, 0) for key, is_hidden in biases.items()}


def _meta_notes(theirs: State) -> list[str]:
    count = sum(key.endswith('.qkv.bias_mask') for key in theirs)
    return [f'applied and left out {count} masks of the bias of q, k and v (blocks.0.attn.qkv.bias_mask)'] * (count > 0)


_META_BLOCK = _blocks(
    f"""
    attn.qkv, {_ATTENTION}, {_MLP}
    ls1.gamma = attn.gamma1.weight, ls2.gamma = ffn.gamma2.weight
    mlp.w12 = ffn.w12, mlp.w1+mlp.w2 = ffn.w12, mlp.w3 = ffn.w3
    """
)
_META = dict(network=NETWORK, prepare=_prepare_meta, notes=_meta_notes)
_CHUNKED = r'blocks\.(?:\d+\.)?\d+\.'
META_DINOV2 = Format(
    'Meta DINOv2',
    anchors=(rf'{_CHUNKED}attn\.qkv\.weight', rf'{_CHUNKED}ls1\.gamma', 'mask_token', 'pos_embed'),
    rules=(*_EMBEDDING, *table('register_tokens = storage_tokens, mask_token'), *_META_BLOCK),
    **_META,
)
META_DINOV3 = Format(
    'Meta DINOv3',
    anchors=(QKV, r'rope_embed\.periods'),
    rules=(
        *_EMBEDDING,
        *table('storage_tokens, rope_embed.periods = rotary.periods, cls_norm = prefix_norm'),
        *table('local_cls_norm, mask_token'),  # of pre-training alone
        *_META_BLOCK,
    ),
    without_bias=_BIAS_OF_QKV,
    rotary='dinov3',
    **_META,
)

# --- timm ---

_EVA = (*_EMBEDDING, *table('reg_token = storage_tokens, fc_norm = ln2, head = .head.layers.head, head = .head.fc'))
_EVA_BLOCK = _blocks(
    f"""
    attn.q_bias+attn.k_bias?+attn.v_bias = attn.qkv.bias, attn.qkv, {_ATTENTION}, {_MLP}
    gamma_1 = attn.gamma1.weight, gamma_2 = ffn.gamma2.weight
    """
)
_EVA_SWIGLU = _blocks('mlp.fc1_g+mlp.fc1_x = ffn.w12, mlp.norm = ffn.norm, mlp.fc2 = ffn.w3')
_HALVES_AS_MLP = _blocks('mlp.fc1 = ffn.w12, mlp.fc2 = ffn.w3')
_MASK = table('mask_token')


def _check_swiglu(theirs: State) -> State:
    if not is_gated(theirs):
        raise ValueError(
            'timm EVA has no SwiGLU: EVA and EVA-02-E have the same keys, and norms in other places; vitplug has '
            'EVA-02-T, S, B and L'
        )
    return theirs


TIMM_DINOV3 = Format(
    'timm DINOv3',
    NETWORK,
    # Others of timm with rotary positions have no such norm.
    (QKV, r'blocks\.\d+\.gamma_1', 'reg_token', r'norm\.weight'),
    (*_EVA, *_EVA_BLOCK, *_EVA_SWIGLU),
    # timm leaves biases out where those of the released weights are 0.
    without_bias=_BIAS_OF_QKV,
    rotary='dinov3',
    zero_free=True,
    marks=(_STORAGE,),
    lacks=(_TABLE,),
)
TIMM_ROPE_REGISTERS = Format(
    'timm ViT with registers and rotary positions',
    NETWORK,
    # Without a class token and a norm of all tokens: vit_*_rope_reg*_gap_*.
    (QKV, r'blocks\.\d+\.gamma_1', 'reg_token', r'fc_norm\.weight'),
    (*_EVA, *_EVA_BLOCK),
    without_bias=_BIAS_OF_QKV,
    rotary='eva02',
    zero_free=True,
    marks=(_STORAGE,),
    lacks=(_TABLE, _CLASS),
)
_RELATIVE = 'relative_position_bias_table'
TIMM_BEIT = Format(
    'timm BEiT',
    NETWORK,
    (QKV, rf'blocks\.\d+\.attn\.{_RELATIVE}'),
    (*_EVA, *_MASK, *_blocks(f'attn.{_RELATIVE} = attn.relative.{_RELATIVE}'), *_EVA_BLOCK),
    marks=(_HAS_RELATIVE,),
)
TIMM_EVA02 = Format(
    'timm EVA-02-T or S',
    NETWORK,
    (QKV, r'blocks\.\d+\.attn\.q_bias', 'pos_embed'),
    (*_EVA, *_EVA_BLOCK, *_HALVES_AS_MLP),
    rotary='eva02',
    marks=(_TABLE, _SWIGLU),
    lacks=(_SCALE,),
    prepare=_check_swiglu,
)
TIMM_EVA_REGISTERS = Format(
    'timm EVA with registers',
    NETWORK,
    (r'blocks\.\d+\.attn\.(?:q_bias|q_proj\.weight)', 'reg_token', 'pos_embed'),
    why='vitplug has EVA-02-T, S, B and L, which have no registers',
)
TIMM_EVA02_LARGE = Format(
    'timm EVA-02-B or L',
    NETWORK,
    (r'blocks\.\d+\.attn\.q_proj\.weight', r'blocks\.\d+\.mlp\.fc1_g\.weight'),
    (*_EVA, *_blocks(f'attn.q_proj+attn.k_proj?+attn.v_proj = attn.qkv, {_ATTENTION}'), *_EVA_SWIGLU),
    rotary='eva02',
    marks=(_TABLE, r'backbone\.layers\.\d+\.ffn\.norm\.weight'),
)
ORIGINAL_EVA02 = Format(
    'original EVA-02',
    NETWORK,
    (r'blocks\.\d+\.attn\.q_proj\.weight', r'blocks\.\d+\.attn\.q_bias'),
    (
        *_EVA,
        *_MASK,
        *_blocks(
            f"""
            attn.q_bias+attn.k_bias?+attn.v_bias = attn.qkv.bias, attn.q_proj+attn.k_proj+attn.v_proj = attn.qkv
            mlp.w12 = ffn.w12, mlp.w1+mlp.w2 = ffn.w12, mlp.ffn_ln = ffn.norm, mlp.w3 = ffn.w3, {_ATTENTION}
            """
        ),
    ),
    rotary='eva02',
)

# --- Hugging Face ---

_TOKENS = table(
    """
    embeddings.cls_token = cls_token, embeddings.register_tokens = storage_tokens
    embeddings.mask_token = mask_token, embeddings.position_embeddings = pos_embed
    """
)
_OF_BERT = (*_TOKENS, *table('embeddings.patch_embeddings.projection = patch_embed.projection, layernorm = ln1'))
_SELF = 'attention.attention.'
_HF_ATTENTION = f'{_SELF}query+{_SELF}key{{}}+{_SELF}value = attn.qkv, attention.output.dense = attn.proj'
_VIT_LAYER = """
    layernorm_before = ln1, layernorm_after = ln2
    intermediate.dense = ffn.layers.0.0, output.dense = ffn.layers.1
"""
_LAMBDAS = 'layer_scale1.lambda1 = attn.gamma1.weight, layer_scale2.lambda1 = ffn.gamma2.weight'
_QUERY = r'encoder\.layer\.\d+\.attention\.attention\.query\.weight'

HF_VIT = Format(
    'Hugging Face ViT',
    NETWORK,
    (_QUERY, r'encoder\.layer\.\d+\.layernorm_before\.weight', 'embeddings.position_embeddings'),
    (*_OF_BERT, *table('pooler = .pooler'), *_layers(_HF_ATTENTION.format('')), *_layers(_VIT_LAYER)),
)
HF_DEIT = replace(
    HF_VIT,
    name='Hugging Face DeiT',
    anchors=(*HF_VIT.anchors, 'embeddings.distillation_token'),
    rules=(*table('embeddings.distillation_token = dist_token'), *HF_VIT.rules),
)
HF_DINOV2 = Format(
    'Hugging Face DINOv2',
    NETWORK,
    (_QUERY, r'encoder\.layer\.\d+\.layer_scale1\.lambda1'),
    (
        *_OF_BERT,
        *_layers(f'{_HF_ATTENTION.format("")}, {_LAMBDAS}, norm1 = ln1, norm2 = ln2, {_MLP}'),
        *_layers('mlp.weights_in = ffn.w12, mlp.weights_out = ffn.w3'),
    ),
)
HF_DINOV3 = Format(
    'Hugging Face DINOv3',
    NETWORK,
    (r'layer\.\d+\.attention\.q_proj\.weight', r'layer\.\d+\.layer_scale1\.lambda1'),
    (
        *_TOKENS,
        *table('embeddings.patch_embeddings = patch_embed.projection, norm = ln1'),
        *table(
            f"""
            attention.q_proj+attention.k_proj?+attention.v_proj = attn.qkv, attention.o_proj = attn.proj
            {_LAMBDAS}, norm1 = ln1, norm2 = ln2
            mlp.up_proj = ffn.layers.0.0, mlp.down_proj = ffn.layers.1
            mlp.gate_proj+mlp.up_proj = ffn.w12, mlp.down_proj = ffn.w3
            """,
            'layer.{}.',
            'layers.{}.',
        ),
    ),
    without_bias=_BIAS_OF_QKV,
    rotary='dinov3',
)
HF_BEIT = Format(
    'Hugging Face BEiT',
    NETWORK,
    (_QUERY, r'encoder\.layer\.\d+\.lambda_1'),
    (
        *_OF_BERT,
        *table('pooler.layernorm = ln2'),
        *_layers(f'{_SELF}relative_position_bias.{_RELATIVE} = attn.relative.{_RELATIVE}'),
        *_layers(f'lambda_1 = attn.gamma1.weight, lambda_2 = ffn.gamma2.weight, {_HF_ATTENTION.format("?")}'),
        *_layers(_VIT_LAYER),
    ),
)

# --- CLIP and SigLIP ---

_TOWER = (
    *table('embeddings.patch_embedding = patch_embed.projection, embeddings.position_embedding.weight:2 = pos_embed'),
    *table('post_layernorm = ln1'),
    *table(
        f"""
        self_attn.q_proj+self_attn.k_proj+self_attn.v_proj = attn.qkv, self_attn.out_proj = attn.proj
        layer_norm1 = ln1, layer_norm2 = ln2, {_MLP}
        """,
        'encoder.layers.{}.',
        'layers.{}.',
    ),
)
_Q_PROJ = r'encoder\.layers\.\d+\.self_attn\.q_proj\.weight'
HF_CLIP = Format(
    'Hugging Face CLIP',
    NETWORK,
    (_Q_PROJ, 'embeddings.class_embedding'),
    # The name of the norm as it is spelled there.
    (*_TOWER, *table('embeddings.class_embedding:1 = cls_token, pre_layrnorm = pre_norm')),
)
HF_SIGLIP = Format(
    'Hugging Face SigLIP',
    NETWORK,
    (_Q_PROJ, 'embeddings.position_embedding.weight', r'head\.probe'),
    # Its head pools by attention, which no backbone does.
    (*_TOWER, *table('head = .attention_pool')),
)
OPENAI_CLIP = Format(
    'OpenAI CLIP',
    NETWORK,
    (r'transformer\.resblocks\.\d+\.attn\.in_proj_weight', 'class_embedding'),
    (
        *table('conv1 = patch_embed.projection, class_embedding:1 = cls_token, positional_embedding:2 = pos_embed'),
        *table('ln_pre = pre_norm, ln_post = ln1, proj = .proj'),
        *table(
            """
            attn.in_proj_weight = attn.qkv.weight, attn.in_proj_bias = attn.qkv.bias, attn.out_proj = attn.proj
            ln_1 = ln1, ln_2 = ln2, mlp.c_fc = ffn.layers.0.0, mlp.c_proj = ffn.layers.1
            """,
            'transformer.resblocks.{}.',
            'layers.{}.',
        ),
    ),
)

#: In the order in which they are tried, the more special first.
FORMATS = (
    *(META_DINOV3, META_DINOV2, ORIGINAL_EVA02, TIMM_EVA_REGISTERS, TIMM_EVA02_LARGE, TIMM_BEIT, TIMM_EVA02),
    *(TIMM_ROPE_REGISTERS, TIMM_DINOV3),
    *(HF_DINOV3, HF_DINOV2, HF_BEIT, HF_DEIT, HF_VIT, HF_CLIP, HF_SIGLIP, OPENAI_CLIP),
)
TIMM = (TIMM_BEIT, TIMM_EVA02_LARGE, TIMM_EVA02, TIMM_ROPE_REGISTERS, TIMM_DINOV3)
