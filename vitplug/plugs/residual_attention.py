"""Residual Attention (ReViT).

*ReViT: Enhancing Vision Transformers Feature Diversity with Attention Residual Connections*, Eq. (10):
each block blends its attention scores with those the block before handed over::

    S_0 = Q_0 K_0^T                                 scaled, before bias, mask and softmax
    S_l = alpha Q_l K_l^T + (1 - alpha) S_{l-1}     handed on with its gradient

    block l-1 --S_{l-1}--> blend --S_l--> block l+1
                             |
                          softmax(S_l + bias + mask)

Written out, S_l is a weighted sum of all earlier blocks' own scores, and so the scores of one attention whose
heads are those of all these blocks side by side::

    S_l = [c_0 Q_0, ..., c_l Q_l] [K_0, ..., K_l]^T      c_l = alpha, earlier ones times 1 - alpha at each block

That form keeps no N x N tensor and needs l + 1 times the products; `low_memory` chooses it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache, partial
from math import inf

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from vitplug.compat import is_compiling

from ..attention.carry import Carry, carrying
from ..attention.grids import TokenGrid
from ..attention.kernels import ROWS_FROM, Attention, attend_to_blend
from .checks import check_choice, check_flag, check_number
from .plug import LayerPlan, Plug

KEY = 'residual_attention'
# Tokens from which on the scores are written out, by ``low_memory``.
UNROLL_FROM = {'auto': 2048, True: 0, False: inf}


class ResidualAttention(Plug):
    """Blends each block's attention scores with those of the block before.

    ``alpha=1`` is the plain host. The first block of a chain has nothing to blend with, and no alpha.

    Args:
        alpha: Share of the block's own scores, 0 to 1 (its start, if learned).
        learnable: Whether alpha is learned.
        per_layer: Whether every block has its own alpha (Eq. 13); one serves the network by default.
        constraint: How a learned alpha is kept in [0, 1]: ``'project'`` clamps it, and in training writes the
            clamped value back before it is used, ``'sigmoid'`` learns its logit, ``'none'`` leaves it free
            (official code).
        bias_mode: Where position biases go: ``'after'`` the blend, never handed on (Eq. 10); ``'blend'``
            into it (official ReSwin); ``'after_carried'`` after it and handed on (official ReMViTv2).
        window_align: Which scores a block with windows blends with: ``'index'`` the block before's,
            window by window and place by place (official ReSwin); ``'parity'`` those of the last block of
            the same shift (or, beside windows, of global attention), which has the same tokens; ``'token'``
            the block before's, for the token pairs that shared a window there, the others being left alone.
        stage_transition: What becomes of the scores when the windows change between stages: ``'pool'``
            averages the windows that a new one covers, ``'flat_nearest'`` resizes the flattened windows
            and heads (official ReSwin), ``'reset'`` starts a new chain.
        head_transition: What becomes of them when the number of heads changes: ``'mean'`` of all heads for
            each new one, ``'repeat'`` of each head.
        low_memory: Whether the scores are written out as a sum instead of being handed on, so that memory grows
            with N and not with N^2. ``'auto'`` does so from 2048 tokens on, where every block of the plug
            blends scores of the same windows and heads; True does so always and refuses other blocks.
        layers: Blocks that get it, see :class:`Plug`.

    Raises:
        ValueError: If an argument is none of these.
    """

    name = KEY

    def __init__(
        self,
        alpha: float = 0.5,
        learnable: bool = True,
        per_layer: bool = False,
        constraint: str = 'project',
        bias_mode: str = 'after',
        window_align: str = 'index',
        stage_transition: str = 'pool',
        head_transition: str = 'mean',
        low_memory: bool | str = 'auto',
        layers: str | Sequence[int] = 'all',
    ):
        super().__init__(layers)
        self.alpha = check_number('alpha', alpha, least=0.0, most=1.0)
        self.learnable = check_flag('learnable', learnable)
        self.per_layer = check_flag('per_layer', per_layer)
        self.constraint = check_choice('constraint', constraint, ('project', 'none', 'sigmoid'))
        self.bias_mode = check_choice('bias_mode', bias_mode, ('after', 'blend', 'after_carried'))
        self.window_align = check_choice('window_align', window_align, tuple(WINDOW_ALIGNS))
        self.stage_transition = check_choice('stage_transition', stage_transition, (*STAGE_ALIGNS, 'reset'))
        self.head_transition = check_choice('head_transition', head_transition, tuple(HEAD_TRANSITIONS))
        self.low_memory = check_choice('low_memory', low_memory, ('auto', True, False))
        if constraint == 'sigmoid' and learnable and alpha in (0, 1):
            raise ValueError(f"alpha={alpha}: constraint='sigmoid' never reaches 0 or 1; choose 'project'")

    def build_layers(self, plans: Sequence[LayerPlan]) -> Sequence[Mapping[str, nn.Module]]:
        sources = [self._source(plan, plans[:i]) for i, plan in enumerate(plans)]
        unroll_from = self._unroll_from(zip(plans, sources, strict=True))
        return [{'scores': self._blend(*pair, unroll_from)} for pair in zip(plans, sources, strict=True)]

    def build_network(self, plans: Sequence[LayerPlan]) -> Mapping[str, nn.Module]:
        # Where no block blends there is no alpha: it would never get a gradient.
        blends = any(self._source(plan, plans[:i]) for i, plan in enumerate(plans))
        return {'start': SharedAlpha(self._alpha())} if blends and not self.per_layer else {}

    def _source(self, plan: LayerPlan, earlier: Sequence[LayerPlan]) -> LayerPlan | None:
        """The block whose scores this one blends with, None where it starts a chain."""
        candidates = [other for other in earlier if self._stream(other) == self._stream(plan)]
        if not candidates:
            return None
        source = candidates[-1]
        other_stage = source.stage != plan.stage
        windows = [p.grid.num_tokens if p.grid.layout else None for p in (source, plan)]
        other_window = windows[0] != windows[1]
        return None if other_window or (other_stage and self.stage_transition == 'reset') else source

    def _stream(self, plan: LayerPlan) -> str:
        """Name of the stream of scores a block belongs to."""
        if self.window_align != 'parity':
            return f'{KEY}.scores'
        return f'{KEY}.{"global" if plan.grid.layout is None else "shifted" if plan.grid.shift else "regular"}'

    def _unroll_from(self, pairs) -> float:
        """Tokens from which on the scores are written out.

        Raises:
            ValueError: If they are to be, but a block's scores are not of the same windows and heads.
        """
        moved = [(plan, source) for plan, source in pairs if source and self._align(plan, source) is not keep]
        if moved and self.low_memory is True:
            plan, source = moved[0]
            raise ValueError(
                f'ResidualAttention: low_memory=True cannot hand the scores of block {source.index} on to block '
                f"{plan.index}, whose windows or heads are others; set stage_transition='reset' (and "
                "window_align='index' or 'parity'), or low_memory='auto'"
            )
        return inf if moved else UNROLL_FROM[self.low_memory]

    def _blend(self, plan: LayerPlan, source: LayerPlan | None, unroll_from: float) -> 'Blend':
        alpha = self._alpha() if self.per_layer and source else None
        align = source and self._align(plan, source)
        return Blend(self._stream(plan), self.bias_mode, align, alpha, unroll_from)

    def _align(self, plan: LayerPlan, source: LayerPlan):
        """What brings the source's scores to this block's windows and heads."""
        same_stage = source.stage == plan.stage
        align = WINDOW_ALIGNS[self.window_align] if same_stage else STAGE_ALIGNS[self.stage_transition]
        # A block that reuses a map, or lacks attention, has no heads; the plug set refuses it with what to change.
        heads = {source.num_heads, plan.num_heads}
        if align is resize_flat or len(heads) == 1 or 0 in heads:
            return align
        if self.head_transition == 'repeat' and plan.num_heads % source.num_heads:
            raise ValueError(
                f"ResidualAttention: head_transition='repeat' cannot make {plan.num_heads} heads (block {plan.index}) "
                f"of {source.num_heads} (block {source.index}); choose 'mean'"
            )
        return partial(_with_heads, align, HEAD_TRANSITIONS[self.head_transition])

    def _alpha(self) -> 'Alpha':
        return Alpha(self.alpha, self.constraint if self.learnable else 'fixed')


class Alpha(nn.Module):
    """The share of a block's own scores: ``residual_alpha`` of shape ``(1,)``, or a constant."""

    def __init__(self, init_value: float, constraint: str):
        super().__init__()
        self.constraint = constraint
        if constraint == 'fixed':
            self.constant = init_value
        else:
            start = torch.full((1,), init_value)
            self.residual_alpha = nn.Parameter(start.logit() if constraint == 'sigmoid' else start)

    def forward(self) -> Tensor | float:
        if self.constraint == 'fixed':
            return self.constant
        if self.constraint == 'sigmoid':
            return self.residual_alpha.sigmoid()
        if self.constraint == 'none':
            return self.residual_alpha
        if not self.training:
            # A checkpoint, the last optimizer step or weight averaging may leave it outside. Evaluation uses what
            # training would, and changes no parameter.
            return self.residual_alpha.clamp(0, 1)
        # On the parameter, not in the graph: a clamp there would stop the gradient outside [0, 1].
        # Through .data, so that a second forward does not invalidate the backward of the first.
        self.residual_alpha.data.clamp_(0, 1)
        return self.residual_alpha


class SharedAlpha(nn.Module):
    """Puts the network's alpha into the carry of a new forward."""

    def __init__(self, alpha: Alpha):
        super().__init__()
        self.alpha = alpha

    def forward(self, carry: Carry) -> Carry:
        return carrying(carry, f'{KEY}.alpha', self.alpha())


class Blend(nn.Module):
    """Blends one block's scores ``(B, W, H, N, N)`` with the handed-over ones.

    Args:
        stream: Key in the carry under which the scores are handed on.
        bias_mode: Where the position bias goes.
        align: Brings the handed-over scores to this block's windows and heads; None starts a chain.
        alpha: The block's own alpha; None takes the network's.
        unroll_from: Tokens from which on the scores are written out as a sum.
    """

    def __init__(self, stream: str, bias_mode: str, align, alpha: 'Alpha | None', unroll_from: float = inf):
        super().__init__()
        self.stream = stream
        self.bias_mode = bias_mode
        self.align = align
        self.alpha = alpha
        self.unroll_from = unroll_from

    def unrolls(self, grid: TokenGrid) -> bool:
        """Whether the scores are written out on this grid."""
        return grid.num_tokens >= self.unroll_from

    def unroll(
        self, q: Tensor, k: Tensor, bias_Hyx: Tensor | None, grid: TokenGrid, carry: Carry
    ) -> tuple[Tensor, Tensor, Tensor | None, Carry]:
        """Queries and keys ``(B, W, H, N, (l + 1) d)`` and the bias whose sum are the blended scores."""
        terms, handed_bias = ((1.0, q, k),), None
        if self.align is not None:
            alpha = self._share(carry)
            before, handed_bias = carry[self.stream]
            terms = (*((c * (1 - alpha), *qk) for c, *qk in before), (alpha, q, k))
            handed_bias = None if handed_bias is None else (1 - alpha) * handed_bias
            if self.bias_mode == 'blend' and bias_Hyx is not None:
                bias_Hyx = alpha * bias_Hyx
        if handed_bias is not None:
            bias_Hyx = handed_bias if bias_Hyx is None else bias_Hyx + handed_bias
        handed_on = (terms, None if self.bias_mode == 'after' else bias_Hyx)
        all_q = torch.cat([q * (c.to(q.dtype) if isinstance(c, Tensor) else c) for c, q, _ in terms], dim=-1)
        all_k = torch.cat([k for *_, k in terms], dim=-1)
        return all_q, all_k, bias_Hyx, carrying(carry, self.stream, handed_on)

    def fast_form(self, inputs: Attention):
        """Blending by rows on a CPU, where the scores are handed on as they are; None elsewhere."""
        kept = self.bias_mode == 'after' and self.align in (None, keep)
        by_rows = inputs.q.device.type == 'cpu' and inputs.goes_by_rows(ROWS_FROM)
        return self._by_rows if kept and by_rows else None

    def _by_rows(self, inputs: Attention, carry: Carry) -> tuple[Tensor, Carry]:
        before = alpha = None
        if self.align is not None:
            before, alpha = carry[self.stream][0], torch.as_tensor(self._share(carry)).view(1)
        out, scores = attend_to_blend(inputs, before, alpha)
        return out, carrying(carry, self.stream, (scores, inputs.grid))

    def forward(self, scores: Tensor, bias_HNN: Tensor | None, grid: TokenGrid, carry: Carry) -> tuple[Tensor, Carry]:
        """The logits without mask, and the carry with the scores for the next block."""
        biased = (lambda s: s) if bias_HNN is None else (lambda s: s + bias_HNN)
        own = biased(scores) if self.bias_mode == 'blend' else scores
        blended = own if self.align is None else self._blend(own, grid, carry)
        logits = blended if self.bias_mode == 'blend' else biased(blended)
        handed_on = blended if self.bias_mode == 'after' else logits
        return logits, carrying(carry, self.stream, (handed_on, grid))

    def _blend(self, own: Tensor, grid: TokenGrid, carry: Carry) -> Tensor:
        before, known = self.align(*carry[self.stream], grid, own.shape[2])
        if before.shape != own.shape:
            raise ValueError(
                f'ResidualAttention: handed-over scores of shape {tuple(before.shape)} do not fit a block with '
                f"{tuple(own.shape)} (B, W, H, N, N); give the plug fewer layers, or stage_transition='reset'"
            )
        alpha = self._share(carry)
        blended = torch.lerp(before.to(own.dtype), own, alpha.to(own.dtype) if isinstance(alpha, Tensor) else alpha)
        return blended if known is None else torch.where(known, blended, own)

    def _share(self, carry: Carry) -> Tensor | float:
        return carry[f'{KEY}.alpha'] if self.alpha is None else self.alpha()


# --- from one block's windows and heads to another's ---
# Each takes the scores (B, W, H, N, N), their grid, the new grid and the new number of heads, and returns
# the scores as the new block sees them, and where they are known (None: everywhere).


def keep(scores: Tensor, source: TokenGrid, grid: TokenGrid, heads: int) -> tuple[Tensor, None]:
    """Window by window and place by place."""
    return scores, None


def align_tokens(scores: Tensor, source: TokenGrid, grid: TokenGrid, heads: int) -> tuple[Tensor, Tensor | None]:
    """Token by token: of every pair that shared a window before, the score it had there."""
    if grid.layout is None or source.shift == grid.shift:
        return scores, None
    find = _find_tokens if is_compiling() else _cached_find_tokens
    window_WN, place_WN = find(source.layout, grid.layout, scores.device)
    # Advanced indices around the slice of heads: B W N N H.
    found = scores.movedim(2, -1)[:, window_WN[:, :, None], place_WN[:, :, None], place_WN[:, None, :]]
    known_WNN = window_WN[:, :, None] == window_WN[:, None, :]
    return found.movedim(-1, 2), known_WNN[:, None]


def _find_tokens(source, layout, device: torch.device) -> tuple[Tensor, Tensor]:
    """For every place of every new window the window and the place its token had before, ``(W, N)`` each."""
    # Inference tensors could not be used by a later training forward.
    with torch.inference_mode(False):
        area = layout.window**2
        # Padding counts as tokens, which have their scores too.
        before, now = (
            replace(each, height=layout.padded[0], width=layout.padded[1]).slots(device)[0] for each in (source, layout)
        )
        slots_WN = torch.empty_like(now).scatter_(0, now, before).view(-1, area)
        return slots_WN // area, slots_WN % area


_cached_find_tokens = lru_cache(maxsize=16)(_find_tokens)


def pool_windows(scores: Tensor, source: TokenGrid, grid: TokenGrid, heads: int) -> tuple[Tensor, None]:
    """Every new window gets the average of the windows it covers on the grid of windows."""
    if source.windows == grid.windows:
        return scores, None
    shape = scores.shape[2:]
    # B W H N N  ->  B (H N N) rows cols
    maps = scores.flatten(2).transpose(1, 2).unflatten(2, source.windows)
    return F.adaptive_avg_pool2d(maps, grid.windows).flatten(2).transpose(1, 2).unflatten(2, shape), None


def resize_flat(scores: Tensor, source: TokenGrid, grid: TokenGrid, heads: int) -> tuple[Tensor, None]:
    """Windows and heads as one axis, window-major, resized to the nearest entry."""
    rows, cols = grid.windows
    before, after = scores.shape[1] * scores.shape[2], rows * cols * heads
    nearest = torch.arange(after, device=scores.device) * before // after
    return scores.flatten(1, 2)[:, nearest].unflatten(1, (rows * cols, heads)), None


def _with_heads(align, match_heads, scores: Tensor, source: TokenGrid, grid: TokenGrid, heads: int):
    aligned, known = align(scores, source, grid, heads)
    return match_heads(aligned, heads), known


def mean_of_heads(scores: Tensor, heads: int) -> Tensor:
    """Each new head gets the mean of all."""
    return scores.mean(dim=2, keepdim=True).expand(-1, -1, heads, -1, -1)


def repeat_heads(scores: Tensor, heads: int) -> Tensor:
    """Each head serves as many new heads."""
    return scores.repeat_interleave(heads // scores.shape[2], dim=2)


WINDOW_ALIGNS = {'index': keep, 'parity': keep, 'token': align_tokens}
STAGE_ALIGNS = {'pool': pool_windows, 'flat_nearest': resize_flat}
HEAD_TRANSITIONS = {'mean': mean_of_heads, 'repeat': repeat_heads}
