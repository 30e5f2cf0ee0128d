"""Plain ViTs of timm, OpenMMLab, Meta, OpenAI and Hugging Face, foundation models too; they differ in names alone."""

from dataclasses import replace

import torch.nn.functional as F

from .format import Format, State, is_gated

#: The key by which timm's ViT and its descendants are recognised.
QKV = 'blocks.{}.attn.qkv.weight'
# Of q, k and v: networks of DINOv3 may have none, timm leaves out those that are 0.
_QKV_BIAS = r'layers\.\d+\.attn\.qkv'
#: The setting for the rotary positions of Heo et al.
ROTARY_PLUG = "plugs=[dict(type='RotaryPosition')]"

_MLP = 'mlp.fc1 = ffn.layers.0.0, mlp.fc2 = ffn.layers.1'

# --- OpenMMLab ---

MM_VIT = Format('OpenMMLab ViT', 'layers.{}.attn.qkv.weight')
MMSEG_VIT = Format(
    'mmseg ViT',
    'layers.{}.attn.attn.in_proj_weight',
    (
        'patch_embed, cls_token, pos_embed, ln1, plugs',
        '[layers.{}]',
        'ln1, ln2, ffn, plugs',
        'attn.attn.in_proj_weight = attn.qkv.weight, attn.attn.in_proj_bias = attn.qkv.bias',
        'attn.attn.out_proj = attn.proj',
    ),
    may_lack_bias=r'patch_embed\.projection',
)

# --- timm, Meta, BAAI ---

#: timm's names, which most code of the papers has, too, and those of DINOv2, DINOv3 and EVA-02 by their authors.
NAMES = (
    'mask_token, local_cls_norm, cls_token, dist_token',
    'reg_token = storage_tokens, register_tokens = storage_tokens, pos_embed',
    'rope_embed.periods = rotary.periods, patch_embed.proj = patch_embed.projection, norm_pre = pre_norm',
    # SigLIP pools by attention, which no backbone does.
    'norm = ln1, fc_norm = ln2, pre_logits.fc = .head.layers.pre_logits, attn_pool = .attention_pool',
    'head_dist = .head.layers.head_dist, head = .head.layers.head',
    '[blocks.{} = layers.{}]',
    'norm1 = ln1, norm2 = ln2, attn.qkv, attn.proj',
    'attn.q_bias+attn.k_bias+attn.v_bias = attn.qkv.bias, attn.q_proj+attn.k_proj+attn.v_proj = attn.qkv',
    'ls1.gamma = attn.gamma1.weight, ls2.gamma = ffn.gamma2.weight',
    'gamma_1 = attn.gamma1.weight, gamma_2 = ffn.gamma2.weight',
    f'{_MLP}, mlp.fc1 = ffn.w12, mlp.fc2 = ffn.w3, mlp.norm = ffn.norm, mlp.ffn_ln = ffn.norm',
    'mlp.w12 = ffn.w12, mlp.w1+mlp.w2 = ffn.w12, mlp.fc1_g+mlp.fc1_x = ffn.w12, mlp.w3 = ffn.w3',
    'attn.rel_pos.mlp = plugs.rel_pos_mlp.bias, attn.gate = plugs.gated_attention.heads.gate',
    'attn.sub_norm = plugs.differential_attention.map',
    '[blocks.{}.attn = layers.{}.plugs.differential_attention.map]',
    'lambda_q1, lambda_k1, lambda_q2, lambda_k2',
)


def _place_class(theirs: State) -> State:
    """timm adds the position of the class token to the token where there are registers.

    Refuses the networks `vit_pe_*`, which have CLIP's names and rotary positions of another kind than vitplug's.
    """
    has_last_norm = 'norm.weight' in theirs or 'fc_norm.weight' in theirs
    if 'norm_pre.weight' in theirs and ('attn_pool.latent' in theirs or not has_last_norm):
        raise ValueError(
            "names of timm's Perception Encoder, whose rotary positions no tensor shows and vitplug has not, or of "
            'CLIP without its last norm, which cannot be told from it; vitplug.plug_in takes a model of timm'
        )
    if not {'reg_token', 'cls_token', 'pos_embed'} <= theirs.keys():
        return theirs
    return {**theirs, 'pos_embed': F.pad(theirs['pos_embed'], (0, 0, 1, 0))}


def _split_frequencies(theirs: State) -> State:
    """Mixed rotary positions (Heo et al.) are one tensor of all blocks in timm, ``(2, L, H, d / 2)``."""
    by_block = dict(_place_class(theirs))
    frequencies = by_block.pop('rope.freqs', None)
    for index, block in enumerate(() if frequencies is None else frequencies.unbind(1)):
        by_block[f'layers.{index}.plugs.rotary_position.qkv.frequencies'] = block
    return by_block


TIMM_VIT = Format('timm ViT', QKV, NAMES, prepare=_place_class)
TIMM_ROPE_VIT = Format(
    'timm ViT with rotary positions',
    f'{QKV} blocks.{{}}.gamma_1',
    ('layers.{}.plugs.rotary_position.qkv.frequencies', *NAMES),
    rotary=ROTARY_PLUG,
    prepare=_split_frequencies,
)


def _check_eva02(theirs: State) -> State:
    """EVA and EVA-02-E have the same keys, without SwiGLU, and norms in other places."""
    if not is_gated(theirs) or 'reg_token' in theirs:
        raise ValueError('timm EVA without SwiGLU or with registers: vitplug has EVA-02-T, S, B and L')
    return theirs


_DINOV3 = dict(may_lack_bias=_QKV_BIAS, rotary="rotary='dinov3'")
# Others of timm with rotary positions have no such norm.
TIMM_DINOV3 = Format('timm DINOv3', f'{QKV} blocks.{{}}.gamma_1 reg_token norm.weight', NAMES, **_DINOV3)
TIMM_ROPE_REGISTERS = Format(
    'timm ViT with registers and rotary positions',
    # Without a class token and a norm of all tokens: vit_*_rope_reg*_gap_*.
    f'{QKV} blocks.{{}}.gamma_1 reg_token fc_norm.weight',
    NAMES,
    may_lack_bias=_QKV_BIAS,
    rotary="rotary='eva02'",
)
TIMM_EVA02 = Format(
    'timm EVA-02 or original',
    'blocks.{}.attn.(?:q_bias|q_proj.weight) pos_embed',
    NAMES,
    rotary="rotary='eva02'",
    prepare=_check_eva02,
)


def _apply_masks(theirs: State) -> State:
    """Biases of keys are masked; a masked entry may be anything, NaN as well."""
    plain = {key: value for key, value in theirs.items() if not key.endswith('.qkv.bias_mask')}
    masks = {key.removesuffix('_mask'): theirs[key] for key in theirs if key not in plain}
    return plain | {key: plain[key].masked_fill(mask == 0, 0) for key, mask in masks.items()}


META_DINOV2 = Format('Meta DINOv2', f'{QKV} blocks.{{}}.ls1.gamma mask_token pos_embed', NAMES)
META_DINOV3 = Format('Meta DINOv3', f'{QKV} rope_embed.periods', NAMES, **_DINOV3, prepare=_apply_masks)

# --- Hugging Face ---

_SELF = 'attention.attention'
_HF_BLOCK = (
    f'{_SELF}.query+{_SELF}.key+{_SELF}.value = attn.qkv, attention.output.dense = attn.proj',
    'attention.q_proj+attention.k_proj+attention.v_proj = attn.qkv, attention.o_proj = attn.proj',
    'layernorm_before = ln1, layernorm_after = ln2, norm1 = ln1, norm2 = ln2',
    'layer_scale1.lambda1 = attn.gamma1.weight, layer_scale2.lambda1 = ffn.gamma2.weight',
    'intermediate.dense = ffn.layers.0.0, output.dense = ffn.layers.1, mlp.up_proj = ffn.layers.0.0',
    f'{_MLP}, mlp.weights_in = ffn.w12, mlp.weights_out = ffn.w3',
    'mlp.gate_proj+mlp.up_proj = ffn.w12, mlp.down_proj = ffn.layers.1, mlp.down_proj = ffn.w3',
)
_HF_NAMES = (
    'embeddings.cls_token = cls_token, embeddings.distillation_token = dist_token, layernorm = ln1, norm = ln1',
    'embeddings.register_tokens = storage_tokens, embeddings.mask_token = mask_token',
    'embeddings.position_embeddings = pos_embed, embeddings.patch_embeddings.projection = patch_embed.projection',
    'embeddings.patch_embeddings = patch_embed.projection, pooler.layernorm = ln2, pooler = .pooler',
    # Of files, of modules of ViT from transformers 5 on, and of DINOv3.
    *('[encoder.layer.{} = layers.{}]', *_HF_BLOCK, '[layers.{}]', *_HF_BLOCK, '[layer.{} = layers.{}]', *_HF_BLOCK),
    *('[model.layer.{} = layers.{}]', *_HF_BLOCK),
)
HF_VIT = Format(
    'Hugging Face ViT or DINOv2',
    f'(?:encoder.layer.{{}}.{_SELF}.query|(?:encoder.layer|layers).{{}}.attention.q_proj).weight embeddings.cls_token',
    _HF_NAMES,
)
HF_DINOV3 = Format(
    'Hugging Face DINOv3',
    # DINOv2 may have the first of these, too, but its patches are embedded by a module with a `projection`.
    'layer.{}.attention.q_proj.weight embeddings.patch_embeddings.weight',
    _HF_NAMES,
    **_DINOV3,
)
# By the names of its modules, as `state_dict()` has them.
HF_DINOV3_MODULES = replace(HF_DINOV3, anchors=f'model.{HF_DINOV3.anchors}')

# --- CLIP and SigLIP ---

HF_CLIP = Format(
    'Hugging Face CLIP or SigLIP',
    'encoder.layers.{}.self_attn.q_proj.weight embeddings.patch_embedding.weight',
    (
        'embeddings.patch_embedding = patch_embed.projection, embeddings.position_embedding.weight:matrix = pos_embed',
        # The name of the norm as it is spelled there. SigLIP's head pools by attention, which no backbone does.
        'embeddings.class_embedding:vector = cls_token, pre_layrnorm = pre_norm, head = .attention_pool',
        'post_layernorm = ln1',
        '[encoder.layers.{} = layers.{}]',
        'self_attn.q_proj+self_attn.k_proj+self_attn.v_proj = attn.qkv, self_attn.out_proj = attn.proj',
        f'layer_norm1 = ln1, layer_norm2 = ln2, {_MLP}',
    ),
)
OPENAI_CLIP = Format(
    'OpenAI CLIP',
    'transformer.resblocks.{}.attn.in_proj_weight class_embedding',
    (
        'conv1 = patch_embed.projection, class_embedding:vector = cls_token, positional_embedding:matrix = pos_embed',
        'ln_pre = pre_norm, ln_post = ln1, proj = .proj',
        '[transformer.resblocks.{} = layers.{}]',
        'attn.in_proj_weight = attn.qkv.weight, attn.in_proj_bias = attn.qkv.bias, attn.out_proj = attn.proj',
        'ln_1 = ln1, ln_2 = ln2, mlp.c_fc = ffn.layers.0.0, mlp.c_proj = ffn.layers.1',
    ),
)

#: In the order in which they are tried, the more special first.
FORMATS = (
    *(MM_VIT, MMSEG_VIT, META_DINOV3, META_DINOV2, TIMM_EVA02, TIMM_ROPE_REGISTERS),
    *(TIMM_DINOV3, HF_DINOV3, HF_DINOV3_MODULES, HF_VIT, HF_CLIP, OPENAI_CLIP, TIMM_ROPE_VIT, TIMM_VIT),
)
