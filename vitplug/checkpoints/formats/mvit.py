"""MViTv2 of its authors, timm and mmpretrain."""

import re

from torch import Tensor

from .format import Format, State, table

NETWORK = 'MViT'
#: The key by which MViT is recognised, by the names of its authors and of mmpretrain.
POOL = r'blocks\.\d+\.attn\.pool_k\.weight'

_OUTSIDE = table('patch_embed.proj = patch_embed.projection, cls_token, pos_embed, norm = norm{last}')
_BLOCK = table(
    """
    norm1, norm2, attn.qkv, attn.proj, attn.rel_pos_h, attn.rel_pos_w, mlp.fc1, mlp.fc2
    attn.pool_q, attn.norm_q, attn.pool_k, attn.norm_k, attn.pool_v, attn.norm_v
    """,
    'blocks.{}.',
    'blocks.{}.',
)
_SHORTCUT = 'shortcut_proj_'


def _last_stage(state: State) -> int:
    """Each stage after the first begins with a block, or ends the one before with one, that widens the tokens."""
    return sum(bool(re.fullmatch(r'.*\d\.(?:shortcut_proj_\w+|proj)\.weight', key)) for key in state)


def _through_stages(theirs: State) -> dict[str, Tensor]:
    """timm counts blocks by stages: the keys with blocks counted through all stages."""
    blocks = sorted({tuple(map(int, match.groups())) for key in theirs if (match := _BLOCK_OF_STAGE.match(key))})
    places = {block: number for number, block in enumerate(blocks)}

    def renamed(match: re.Match) -> str:
        return f'blocks.{places[int(match[1]), int(match[2])]}.'

    return {_BLOCK_OF_STAGE.sub(renamed, key): value for key, value in theirs.items()}


_BLOCK_OF_STAGE = re.compile(r'^stages\.(\d+)\.blocks\.(\d+)\.')


def _by_stages(theirs: dict[str, Tensor]) -> dict[str, Tensor]:
    """The inverse of :func:`_through_stages`. A projection is named after the branch that it goes around."""
    widening = [int(match[1]) for key in theirs if (match := re.match(rf'blocks\.(\d+)\.{_SHORTCUT}attn\.weight', key))]
    branch = 'attn' if all(_widens_in_attention(theirs, index) for index in widening[:1]) else 'mlp'
    starts = [0, *(index + (branch == 'mlp') for index in sorted(widening))]

    def renamed(match: re.Match) -> str:
        block = int(match[1])
        stage = max(number for number, start in enumerate(starts) if start <= block)
        return f'stages.{stage}.blocks.{block - starts[stage]}.'

    named = {key.replace(f'{_SHORTCUT}attn', _SHORTCUT + branch): value for key, value in theirs.items()}
    return {re.sub(r'^blocks\.(\d+)\.', renamed, key): value for key, value in named.items()}


def _widens_in_attention(theirs: State, index: int) -> bool:
    qkv = theirs.get(f'blocks.{index}.attn.qkv.weight')
    return qkv is None or len(qkv) == 3 * len(theirs[f'blocks.{index}.{_SHORTCUT}attn.weight'])


_SHORTCUTS = table(f'{_SHORTCUT}attn = proj, {_SHORTCUT}mlp = proj', 'blocks.{}.', 'blocks.{}.')
#: The names of its authors; mmpretrain names blocks alike.
NAMES = (*_OUTSIDE, *_BLOCK, *table('blocks.{}.proj, head.projection = .head.fc'))
RELEASED = dict(network=NETWORK, last=_last_stage, strict=True)

MVIT = Format('original MViT', anchors=(POOL, r'patch_embed\.proj\.weight'), rules=NAMES, **RELEASED)
TIMM_MVIT = Format(
    'timm MViT',
    NETWORK,
    (r'stages\.\d+\.blocks\.\d+\.attn\.pool_k\.weight',),
    (*_OUTSIDE, *_BLOCK, *_SHORTCUTS, *table('head.fc = .head.fc')),
    last=_last_stage,
    prepare=_through_stages,
    restore=_by_stages,
)
MM_MVIT = Format('OpenMMLab MViT', NETWORK, (POOL, r'patch_embed\.projection\.weight'))
