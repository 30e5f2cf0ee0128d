"""The plug as configured."""

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from math import inf

from torch import Tensor, nn

from ...attention.site import Site
from ..checks import check_choice, check_flag, check_number
from ..plug import LayerPlan, Plug
from .blend import CONSTRAINTS, Alpha, Blend, SharedAlpha
from .transitions import HEAD_TRANSITIONS, STAGE_ALIGNS, Align, keep, resize, resize_flat, with_heads

# Tokens from which on the scores are written out as a sum, by ``low_memory``; 'auto': so that memory grows with N.
SUM_FROM = {'auto': 2048, True: 0, False: inf}


class ResidualAttention(Plug):
    """Blends each block's attention scores with the scores of the block before.

    ``alpha=1`` is the plain host. The first block of a chain has nothing to blend with, and no alpha. A chain of one
    block stays as it is.

    Where attention is global, or pools its queries and keys in windows, and these lie on other grids than in the block
    before (pooling attention, or a new stage), its scores are resized by rows and columns, over the queries and over
    the keys: means of those that a new one covers where there are fewer, the nearest where there are more. Class tokens
    keep their scores. Between windows and global attention no scores pass.

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
            window by window and place by place (official ReSwin); ``'parity'`` the scores of the last block of
            the same shift (or, beside windows, of global attention), which has the same tokens.
        stage_transition: How scores pass from one stage to the next: ``'pool'`` averages the windows that a new
            one covers, or resizes the scores of global attention as above (official ReMViTv2),
            ``'flat_nearest'`` resizes the flattened windows and heads (official ReSwin; windows only),
            ``'reset'`` starts a new chain.
        head_transition: How scores pass to a block with another number of heads: ``'mean'`` of all heads for
            each new one, ``'repeat'`` of each head.
        low_memory: Whether the scores are written out as a sum instead of being handed on, so that memory grows
            with N and not with N^2. ``'auto'`` does so from 2048 tokens on, where every block of the plug
            blends scores of the same windows, grids and heads; True does so always and refuses other blocks.

    Raises:
        ValueError: If an argument is none of these, no block would blend, or scores cannot be brought to a block.
    """

    name = 'residual_attention'
    short_name = 'residual'
    watched = {'residual_alpha': 'alpha'}
    #: Key of the network's alpha in the carry.
    alpha_key = f'{name}.alpha'

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
        self.identity_start = alpha == 1
        self.learnable = check_flag('learnable', learnable)
        self.per_layer = check_flag('per_layer', per_layer)
        self.constraint = check_choice('constraint', constraint, tuple(CONSTRAINTS))
        self.bias_mode = check_choice('bias_mode', bias_mode, ('after', 'blend', 'after_carried'))
        self.window_align = check_choice('window_align', window_align, ('index', 'parity'))
        self.stage_transition = check_choice('stage_transition', stage_transition, (*STAGE_ALIGNS, 'reset'))
        self.head_transition = check_choice('head_transition', head_transition, tuple(HEAD_TRANSITIONS))
        self.low_memory = check_choice('low_memory', low_memory, ('auto', True, False))
        if constraint == 'sigmoid' and learnable and alpha in (0, 1):
            raise ValueError(f"alpha={alpha}: constraint='sigmoid' never reaches 0 or 1; choose 'project'")

    def build_layers(self, plans: Sequence[LayerPlan]) -> Sequence[Mapping[str, nn.Module]]:
        pairs = list(zip(plans, self._sources(plans), strict=True))
        # Where nothing is blended or handed on, attention stays as it is, fused.
        blends = {index for plan, source in pairs if source for index in (plan.index, source.index)}
        sum_from = self._sum_from(pairs)
        return [{'scores': self._blend(*pair, sum_from)} if pair[0].index in blends else {} for pair in pairs]

    def build_network(self, plans: Sequence[LayerPlan]) -> Mapping[str, nn.Module]:
        return {'start': SharedAlpha(self.alpha_key, self._alpha())} if plans and not self.per_layer else {}

    def _sources(self, plans: Sequence[LayerPlan]) -> list[LayerPlan | None]:
        """The block whose scores each one blends with, None where it starts a chain."""
        sources = [self._source(plan, plans[:i]) for i, plan in enumerate(plans)]
        if plans and not any(sources):
            raise ValueError(
                f'ResidualAttention: layers={self.layers!r} changes nothing: no block of {[p.index for p in plans]} '
                'has scores of an earlier one of them to blend with, of the same windows or of global attention; name '
                f'more blocks, or another window_align than {self.window_align!r} (parity, where windows and global '
                f'attention take turns) or stage_transition than {self.stage_transition!r}'
            )
        return sources

    def _source(self, plan: LayerPlan, earlier: Sequence[LayerPlan]) -> LayerPlan | None:
        """The block whose scores this one blends with, None where it starts a chain."""
        source = next((other for other in reversed(earlier) if self._stream(other) == self._stream(plan)), None)
        if source is None or (source.stage != plan.stage and self.stage_transition == 'reset'):
            return None
        return source if _can_pass(source.site, plan.site) else None

    def _stream(self, plan: LayerPlan) -> str:
        """Name of the stream of scores a block belongs to."""
        if self.window_align != 'parity':
            return f'{self.name}.scores'
        layout = plan.site.layout
        return f'{self.name}.{("shifted" if layout.shift else "regular") if layout.is_windowed else "global"}'

    def _sum_from(self, pairs: Iterable[tuple[LayerPlan, LayerPlan | None]]) -> float:
        """Tokens from which on the scores are written out."""
        moved = [(plan, source) for plan, source in pairs if source and self._moves(plan, source)]
        if moved and self.low_memory is True:
            plan, source = moved[0]
            raise ValueError(
                f'ResidualAttention: low_memory=True cannot hand the scores of block {source.index} on to block '
                f'{plan.index}, which has other windows, grids or heads; choose '
                "stage_transition='reset', layers that have the same, or low_memory='auto'"
            )
        return inf if moved else SUM_FROM[self.low_memory]

    def _moves(self, plan: LayerPlan, source: LayerPlan) -> bool:
        """Whether the source's scores have other windows, grids or heads, at this image size or another."""
        align = self._align(plan, source)
        stays = source.stage == plan.stage and source.site.pairs == plan.site.pairs
        return align is not keep and not (align is resize and stays)

    def _blend(self, plan: LayerPlan, source: LayerPlan | None, sum_from: float) -> Blend:
        alpha = self._alpha() if self.per_layer and source else self.alpha_key
        align = self._align(plan, source) if source else None
        return Blend(self._stream(plan), self.bias_mode, align, alpha, sum_from)

    def _align(self, plan: LayerPlan, source: LayerPlan) -> Align:
        """The function that maps the source's scores to this block's windows, grids and heads."""
        align = self._align_pairs(plan, source)
        # A block that reuses a map, or lacks attention, has no heads; the plug set refuses it.
        heads = {source.num_heads, plan.num_heads}
        if align is resize_flat or len(heads) == 1 or 0 in heads:
            return align
        if self.head_transition == 'repeat' and plan.num_heads % source.num_heads:
            raise ValueError(
                f"ResidualAttention: head_transition='repeat' cannot make {plan.num_heads} heads (block {plan.index}) "
                f"of {source.num_heads} (block {source.index}); choose 'mean'"
            )
        return partial(with_heads, align, HEAD_TRANSITIONS[self.head_transition])

    def _align_pairs(self, plan: LayerPlan, source: LayerPlan) -> Align:
        """The same without heads."""
        same_stage = source.stage == plan.stage
        is_windowed = plan.site.layout.is_windowed
        if is_windowed and not _pools(source.site, plan.site):
            return keep if same_stage else STAGE_ALIGNS[self.stage_transition]
        if not same_stage and self.stage_transition == 'flat_nearest':
            attention = 'windows of the same part of the image' if is_windowed else 'global attention'
            raise ValueError(
                f"ResidualAttention: stage_transition='flat_nearest' resizes windows, and blocks {source.index} and "
                f"{plan.index}, of two stages, have {attention}; choose 'pool' or 'reset'"
            )
        return resize

    def learned_values(self, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        return {name: CONSTRAINTS[self.constraint](value) for name, value in super().learned_values(tensors).items()}

    def _alpha(self) -> Alpha:
        return Alpha(self.alpha, self.constraint if self.learnable else 'fixed')


def _pools(*sites: Site) -> bool:
    """Whether some queries or keys are pooled tokens; windows of pooling attention stay where they are in the image."""
    return any(site.keys is not None or site.entering is not None for site in sites)


def _can_pass(source: Site, site: Site) -> bool:
    """Whether scores can be brought from one site to another: both of windows, or both of global attention.

    Windows have one size in tokens, or, where queries or keys are pooled, show the same part of the image.
    """
    if source.layout.is_windowed != site.layout.is_windowed:
        return False
    if site.layout.is_windowed:
        return source.pairs == site.pairs or (_pools(source, site) and source.layout.windows == site.layout.windows)
    # Which of them a prefix token corresponds to is unknown where their numbers differ.
    prefixes = [[grid.num_prefix for grid in (pairs.queries, pairs.keys)] for pairs in (source.pairs, site.pairs)]
    return prefixes[0] == prefixes[1]
