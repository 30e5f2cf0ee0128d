"""Plain ViTs that the authors of the papers released: Refined-ViT, ReViT, BViT; every tensor has a place.

ReSwin has no alpha, so its weights are those of a Swin.
"""

import re
from math import isqrt

import torch
import torch.nn.functional as F
from torch import Tensor

from .format import Format, State
from .vit import NAMES, QKV

# --- Refined-ViT, which fits `scheme='official'` of the plug ---


def _complete_refiner(theirs: State) -> State:
    """Adds what the plug keeps beside the weights: tokens of the batch norms' statistics, and scales of 1.

    The first code has no scale of the MLPs' channels, which later code has. Every second block refines the map of the
    block before.
    """
    blocks, refined = _blocks(theirs, 'norm2.weight'), _blocks(theirs, 'attn.adapt_bn.weight')
    if refined != blocks[1::2] or len(blocks) % 2:
        raise ValueError(
            f'Refined-ViT: blocks {refined} of {len(blocks)} refine a map: expected every second one, from block 1 on, '
            'as in Refined-ViT-S, M and L'
        )
    tokens, unscaled = theirs['pos_embed'].shape[1], {*blocks} - {*_blocks(theirs, 'mlp.scale_channel')}
    counts = {f'blocks.{index}.attn.reference_tokens': torch.tensor([tokens]) for index in refined}
    ones = {f'blocks.{i}.mlp.scale_channel': torch.ones_like(theirs[f'blocks.{i}.norm2.weight']) for i in unscaled}
    return {**theirs, **counts, **ones}


def _blocks(theirs: State, part: str) -> list[int]:
    """The blocks that have a part."""
    matches = (re.fullmatch(rf'blocks\.(\d+)\.{re.escape(part)}', key) for key in theirs)
    return sorted(int(match[1]) for match in matches if match)


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
    strict=True,
    prepare=_complete_refiner,
)

# --- ReViT: the host's names and one alpha ---

REVIT = Format(
    'ReViT',
    f'{QKV} alpha',
    ('alpha = plugs.residual_attention.start.alpha.residual_alpha, head.projection = .head.fc', *NAMES),
    strict=True,
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
    positions = _used_positions(theirs[_TABLE])
    stem, patches = theirs[f'{_STEM}.weight'], theirs[f'{_PATCHES}.weight']
    side = isqrt(patches.shape[1] // 3)
    dtype = patches.dtype
    stem, patches = stem.double(), patches.double().unflatten(1, (side, side, 3)).movedim(-1, 1)
    weight = F.conv_transpose2d(patches, stem, stride=STEM_STRIDE)
    bias = theirs[f'{_PATCHES}.bias'].double() + patches.sum(dim=(2, 3)) @ theirs[f'{_STEM}.bias'].double()
    others = {key: value for key, value in theirs.items() if key not in _REPLACED}
    return {**others, f'{_EMBED}.weight': weight.to(dtype), f'{_EMBED}.bias': bias.to(dtype), _TABLE: positions}


def _used_positions(table: Tensor) -> Tensor:
    """Positions that the code reads: it stores one for each patch of the image, and sees patches of half the image."""
    side = isqrt(table.shape[1] - 1)
    if side * side != table.shape[1] - 1 or side % STEM_STRIDE:
        raise ValueError(f'BViT: {_TABLE} has {table.shape[1]} entries: expected one more than an even square')
    return table[:, : 1 + (side // STEM_STRIDE) ** 2]


BVIT = Format(
    'BViT',
    ' '.join(('transformer.layers.{}.0.fn.to_qkv.weight', *_REPLACED)),
    (
        f'{_EMBED}, cls_token, {_TABLE} = pos_embed, mlp_head.0 = ln1, mlp_head.1 = .head.layers.head',
        '[transformer.layers.{} = layers.{}]',
        '0.norm = ln1, 0.fn.to_qkv = attn.qkv, 0.fn.to_out.0 = attn.proj',
        '1.norm = ln2, 1.fn.net.0 = ffn.layers.0.0, 1.fn.net.3 = ffn.layers.1',
    ),
    strict=True,
    prepare=_merge_stem,
)
FORMATS = (REFINED_VIT, REVIT, BVIT)
