"""The inputs of one attention."""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from vitplug.compat import replace

from . import tuning
from .bias import DenseBias, OffsetBias, PairBias, QueryBias, expand_all


@dataclass(frozen=True)
class ExtraKeys:
    """Keys and values that belong to no token and that every query sees.

    Args:
        k: Keys ``(B or 1, W or 1, H, E, d)``.
        v: Values ``(B or 1, W or 1, H, E, e)``.
        logits: What is added to their scores, ``(H or 1, E)``; None for 0.
    """

    k: Tensor
    v: Tensor
    logits: Tensor | None = None


@dataclass(frozen=True)
class Attention:
    """The inputs of ``softmax(scale * q @ k^T + biases + mask) @ v``.

    Args:
        q: Queries ``(B, W, H, Nq, d)``; windows are apart from each other.
        k: Keys ``(B, W, H, Nk, d)``.
        v: Values ``(B, W, H, Nk, e)``.
        scale: Factor of the dot products.
        biases: Position biases, at most one of each kind.
        mask: Additive mask ``(B or 1, W or 1, H or 1, Nq or 1, Nk)``.
        dropout_p: Drop rate of the probabilities.
        valid: True for the keys that count, ``(B, W, Nk)``; without biases, mask and dropout only.
        num_padded: Keys and values of zeros at the end, which get no attention.
    """

    q: Tensor
    k: Tensor
    v: Tensor
    scale: float
    biases: tuple[PairBias, ...] = ()
    mask: Tensor | None = None
    dropout_p: float = 0.0
    valid: Tensor | None = None
    num_padded: int = 0

    @property
    def num_keys(self) -> int:
        """Keys without padding, ``Nk``."""
        return self.k.shape[-2] - self.num_padded

    def with_extra(self, extra: ExtraKeys) -> 'Attention':
        """The same with keys and values after the tokens'. Biases become one of all pairs where there are any.

        Logits that need a gradient are products where there is no bias beside them: a bias with a gradient would form
        maps, which is faster only for the few tokens of small images on a CPU. Queries then have one more channel, of
        1, and keys one of the logits.
        """
        wider = self.k.shape[-1] - extra.k.shape[-1]  # by the logits of keys that were added before
        extra = replace(extra, k=F.pad(extra.k, (0, wider))) if wider else extra
        if extra.logits is not None and self._multiplies(extra.logits):
            more = 1 if tuning.on_cpu(self.q.device) else tuning.WIDTH_OF_CALL
            of_keys = extra.logits.to(extra.k.dtype)[:, :, None].expand(*extra.k.shape[:4], 1) / self.scale
            k = torch.cat((extra.k, F.pad(of_keys, (0, more - 1))), dim=-1)
            q = torch.cat((self.q, F.pad(torch.ones_like(self.q[..., :1]), (0, more - 1))), dim=-1)
            return replace(self, q=q, k=F.pad(self.k, (0, more))).with_extra(ExtraKeys(k, extra.v))
        k, v = (
            torch.cat((t, more.to(t.dtype).expand(*t.shape[:2], -1, -1, -1)), dim=-2)
            for t, more in ((self.k, extra.k), (self.v, extra.v))
        )
        count = k.shape[-2] - self.k.shape[-2]
        bias, mask = self.expand_bias(), self.mask
        if extra.logits is not None:
            tokens = bias if bias is not None else extra.logits.new_zeros(1, 1, self.num_keys)
            added = extra.logits[:, None].expand(-1, tokens.shape[-2], -1)
            heads = max(tokens.shape[-3], len(added))
            tokens, added = tokens.expand(*tokens.shape[:-3], heads, -1, -1), added.expand(heads, -1, -1)
            bias = torch.cat((tokens, added.expand(*tokens.shape[:-1], -1)), dim=-1)
        elif bias is not None:
            bias = F.pad(bias, (0, count))
        return replace(
            self,
            k=k,
            v=v,
            biases=() if bias is None else (DenseBias(bias[(None,) * (5 - bias.ndim)]),),
            mask=None if mask is None else F.pad(mask, (0, count)),
        )

    def _multiplies(self, logits: Tensor) -> bool:
        """Whether logits of extra keys become a channel of q and k."""
        if self.biases or not (torch.is_grad_enabled() and logits.requires_grad):
            return False
        return not tuning.on_cpu(self.q.device) or self.q.shape[-2] * self.num_keys >= tuning.TILES_FROM**2

    @property
    def offset_bias(self) -> OffsetBias | None:
        """The bias by offset, in the precision of the scores; None where there is none."""
        for bias in self.biases:
            if isinstance(bias, OffsetBias):
                same = bias.table.dtype == self.q.dtype
                return bias if same else replace(bias, table=bias.table.to(self.q.dtype))
        return None

    @property
    def query_bias(self) -> QueryBias | None:
        """The bias by query; None where there is none."""
        for bias in self.biases:  # torch 2.5's compiler has no generators
            if isinstance(bias, QueryBias):
                return bias
        return None

    @property
    def width(self) -> int:
        """Width of q and k once a bias by query has widened them."""
        bias = self.query_bias
        return self.q.shape[-1] + (0 if bias is None else sum(bias.pairs.keys.hw))

    @property
    def has_offset_bias_only(self) -> bool:
        """Whether there is no bias of another kind."""
        return all(isinstance(bias, OffsetBias) for bias in self.biases)

    def expand_bias(self) -> Tensor | None:
        """The sum of the biases of all pairs, ``(..., H or 1, Nq, Nk)``; None where there is none."""
        return expand_all(self.biases)

    def folded(self, widen: bool = True) -> 'Attention':
        """The same with fewer biases: dense ones join the mask, those by query widen q and k; one by offset stays.

        Args:
            widen: Whether biases by query widen q and k. They stay otherwise.
        """
        folds = (DenseBias, QueryBias) if widen else DenseBias
        if not any(isinstance(bias, folds) for bias in self.biases):
            return self
        attention, kept = self, []
        for bias in self.biases:
            if isinstance(bias, QueryBias) and widen:
                attention = attention._widened(bias)
            elif isinstance(bias, DenseBias):
                mask = attention.mask
                attention = replace(attention, mask=bias.values if mask is None else bias.values + mask)
            else:
                kept.append(bias)
        return replace(attention, biases=tuple(kept))

    def _widened(self, bias: QueryBias) -> 'Attention':
        of_queries, of_keys = bias.widening(self.q.dtype)
        if not tuning.on_cpu(self.q.device):
            more = -(self.q.shape[-1] + of_keys.shape[-1]) % tuning.WIDTH_OF_CALL
            of_queries, of_keys = (F.pad(t, (0, more)) for t in (of_queries, of_keys))
        more_k = of_keys.expand(*self.k.shape[:3], -1, -1)
        q = torch.cat((self.q, of_queries / self.scale), dim=-1)
        return replace(self, q=q, k=torch.cat((self.k, more_k), dim=-1))

    def unpadded(self) -> 'Attention':
        """The same without the padded keys."""
        if not self.num_padded:
            return self
        k, v = (t[..., : self.num_keys, :] for t in (self.k, self.v))
        return replace(self, k=k, v=v, num_padded=0)

    def goes_by_tiles(self, tokens: int) -> bool:
        """Whether the maps are at least ``tokens x tokens`` large, and tiles are possible.

        They are not with masks or dropout, and torch cuts a graph that is being compiled.
        """
        possible = self.mask is None and not self.dropout_p and not torch.compiler.is_compiling()
        return possible and self.q.shape[-2] * self.num_keys >= tokens**2


def scores_of(q: Tensor, k: Tensor, scale: float) -> Tensor:
    """Scaled dot products ``(..., Nq, Nk)`` of ``(..., Nq, d)`` and ``(..., Nk, d)``."""
    return (q if scale == 1 else q * scale) @ k.transpose(-2, -1)
