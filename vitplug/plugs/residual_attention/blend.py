"""The share of a block's own scores, and the blending."""

from collections.abc import Sequence
from functools import partial
from math import inf

import torch
from torch import Tensor, nn

from vitplug.compat import is_exporting

from ...attention.bias import PairBias, merged
from ...attention.carry import Carry, carrying
from ...attention.cpu import ByHeads, goes_by_heads
from ...attention.inputs import Attention, FastForm
from ...attention.site import Site
from ..learned import LearnedVectors
from .transitions import Align

# From a learned parameter to alpha. The bounds have its type: ONNX's exporter cannot convert others.
CONSTRAINTS = {'project': lambda raw: raw.clamp(0.0, 1.0), 'none': lambda raw: raw, 'sigmoid': torch.sigmoid}

# A summand of the scores: its factor, its queries and its keys.
Term = tuple[float | Tensor, Tensor, Tensor]


class Alpha(LearnedVectors):
    """The share of a block's own scores: ``residual_alpha`` of shape ``(1,)``, or a constant."""

    residual_alpha: nn.Parameter

    def __init__(self, constant: float, constraint: str):
        start = torch.tensor(constant, device='cpu').logit().item() if constraint == 'sigmoid' else constant
        super().__init__(1, **({} if constraint == 'fixed' else dict(residual_alpha=start)))
        self.constant, self.constraint = constant, constraint

    def forward(self) -> Tensor | float:
        if self.constraint == 'fixed':
            return self.constant
        if self.constraint != 'project' or not self.training:
            # A checkpoint, the last optimizer step or weight averaging may leave it outside of [0, 1]. Evaluation
            # clamps as training does, and changes no parameter.
            return CONSTRAINTS[self.constraint](self.residual_alpha)
        self.project_parameters()
        return self.residual_alpha

    def project_parameters(self) -> None:
        """Brings alpha back that the last step left outside of [0, 1]; sharded trainings call it on the shards.

        On the parameter, not in the graph: a clamp there would stop the gradient outside.
        """
        if self.constraint == 'project':
            # Through .data, so that a second forward does not invalidate the backward of the first.
            self.residual_alpha.data.clamp_(0, 1)

    @torch.no_grad()
    def fold(self) -> None:
        """Keeps alpha as a constant."""
        if self.constraint != 'fixed':
            self.constant = CONSTRAINTS[self.constraint](self.residual_alpha).item()
            del self.residual_alpha
            self.starts, self.constraint = {}, 'fixed'


class SharedAlpha(nn.Module):
    """Puts the network's alpha into the carry of a new forward, under ``key``."""

    def __init__(self, key: str, alpha: Alpha):
        super().__init__()
        self.key, self.alpha = key, alpha

    def forward(self, carry: Carry) -> Carry:
        return carrying(carry, self.key, self.alpha())


class Blend(nn.Module):
    """Blends one block's scores ``(B, W, H, Nq, Nk)`` with those handed on in the carry under ``stream``.

    ``align`` brings these to the block's windows, grids and heads; None starts a chain. ``alpha`` is the block's own or
    the key of the network's in the carry. From ``sum_from`` queries on the scores are written out as a sum.
    """

    def __init__(self, stream: str, bias_mode: str, align: Align | None, alpha: Alpha | str, sum_from: float = inf):
        super().__init__()
        self.stream = stream
        self.bias_mode = bias_mode
        self.align = align
        self.alpha = alpha
        self.sum_from = sum_from

    def widens(self, site: Site) -> bool:
        """Whether the scores are written out as a sum for these tokens; one form for all sizes in an exported graph."""
        if is_exporting():
            return self.sum_from == 0
        return site.layout.grid.num_tokens >= self.sum_from

    def widen(self, inputs: Attention, carry: Carry) -> tuple[Attention, Carry]:
        """q and k ``(G, H, N, (l + 1) d)`` and biases such that the plain logits equal the blended ones."""
        terms: tuple[Term, ...] = ((1.0, inputs.q, inputs.k),)
        handed: tuple[PairBias, ...] = ()
        own_biases = inputs.biases
        if self.align is not None:
            alpha = self._share(carry)
            before, handed = carry[self.stream]
            terms = (*((c * (1 - alpha), q, k) for c, q, k in before), (alpha, inputs.q, inputs.k))
            handed = tuple(bias.scaled(1 - alpha) for bias in handed)
            if self.bias_mode == 'blend':
                own_biases = tuple(bias.scaled(alpha) for bias in own_biases)
        biases = merged((*handed, *own_biases))
        handed_on = (terms, () if self.bias_mode == 'after' else biases)
        q = torch.cat([q * (c.to(q.dtype) if isinstance(c, Tensor) else c) for c, q, _ in terms], dim=-1)
        k = torch.cat([k for *_, k in terms], dim=-1)
        return inputs._replace(q=q, k=k, biases=biases), carrying(carry, self.stream, handed_on)

    def fast_form(self, inputs: Attention, site: Site) -> FastForm | None:
        """By heads on a CPU, where nothing but handed-over scores is added."""
        adds = inputs.windows > 1 or len(inputs.biases) > 0 or inputs.mask is not None
        pays = not adds and goes_by_heads(inputs.q, inputs.k, inputs.v, inputs.dropout_p)
        return partial(self._by_heads, site) if pays else None

    def _by_heads(self, site: Site, inputs: Attention, carry: Carry) -> tuple[Tensor, Carry]:
        q, before, rest = inputs.q * inputs.scale, None, None
        if self.align is not None:
            before = self._before(self.align, (len(q), 1, *q.shape[1:3], inputs.num_keys), q, site, carry).squeeze(1)
            alpha = torch.as_tensor(self._share(carry)).to(q).view(1)
            q, rest = q * alpha, 1 - alpha
        out, scores = ByHeads.apply(q, inputs.k, inputs.v, before, rest, True)
        return out, carrying(carry, self.stream, (scores.unsqueeze(1), site))

    def forward(self, scores: Tensor, bias: Tensor | None, site: Site, carry: Carry) -> tuple[Tensor, Carry]:
        """The logits without mask, and the carry with the scores for the next block."""
        biased = (lambda s: s) if bias is None else (lambda s: s + bias)
        now = biased(scores) if self.bias_mode == 'blend' else scores
        blended = now if self.align is None else self._blend(self.align, now, site, carry)
        logits = blended if self.bias_mode == 'blend' else biased(blended)
        # With where they are; the mask in there is added to no scores that are handed on.
        return logits, carrying(carry, self.stream, (blended if self.bias_mode == 'after' else logits, site))

    def _blend(self, align: Align, now: Tensor, site: Site, carry: Carry) -> Tensor:
        before, alpha = self._before(align, now.shape, now, site, carry), self._share(carry)
        return torch.lerp(before, now, alpha.to(now.dtype) if isinstance(alpha, Tensor) else alpha)

    def _before(self, align: Align, shape: Sequence[int], like: Tensor, site: Site, carry: Carry) -> Tensor:
        """Handed-over scores of the shape of a block's own, ``(B, W, H, Nq, Nk)``, in the type of another tensor."""
        handed, source = carry[self.stream]
        before = align(handed, source, site, shape[2])
        if before.shape != shape:
            raise ValueError(
                f'ResidualAttention: handed-over scores of shape {tuple(before.shape)} do not fit a block with '
                f"{tuple(shape)} (B, W, H, Nq, Nk); give the plug fewer layers, or stage_transition='reset'"
            )
        return before.to(like.dtype)

    def _share(self, carry: Carry) -> Tensor | float:
        return carry[self.alpha] if isinstance(self.alpha, str) else self.alpha()
