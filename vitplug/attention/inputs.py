"""The inputs of one attention."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from .bias import DenseBias, PairBias, expand_all
from .carry import Carry
from .tuning import WIDTH_OF_CALL, surplus_of


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


class Attention(NamedTuple):
    """The inputs of ``softmax(scale * q @ k^T + biases + mask) @ v``.

    Args:
        q: Queries ``(G, H, Nq, d)``, G the windows of all images, those of one image in a row.
        k: Keys ``(G, H, Nk, d)``.
        v: Values ``(G, H, Nk, e)``.
        scale: Factor of the dot products.
        windows: Windows of one image, ``W``.
        biases: Position biases, at most one of each kind after :func:`~vitplug.attention.bias.merged`.
        mask: Additive mask ``(B or 1, W or 1, H or 1, Nq or 1, Nk or more)``; columns after the keys mean nothing.
        dropout_p: Drop rate of the probabilities.
    """

    q: Tensor
    k: Tensor
    v: Tensor
    scale: float
    windows: int = 1
    biases: tuple[PairBias, ...] = ()
    mask: Tensor | None = None
    dropout_p: float = 0.0

    @property
    def num_keys(self) -> int:
        return self.k.shape[-2]

    def by_window(self, t: Tensor) -> Tensor:
        """``(G, ...)`` as ``(B, W, ...)``."""
        return t.unsqueeze(1) if self.windows == 1 else t.unflatten(0, (-1, self.windows))

    def with_extra(self, extra: ExtraKeys) -> 'Attention':
        """The same with keys and values after the tokens'. Biases become one of all pairs where there are any.

        Logits are products where there is no bias beside them, which would be a tensor of all pairs: queries have one
        more channel, of 1, and keys one of the logits.
        """
        wider = self.k.shape[-1] - extra.k.shape[-1]  # by the logits of keys that were added before
        of_keys = F.pad(extra.k, (0, wider)) if wider else extra.k
        if extra.logits is not None and not self.biases:
            logits = extra.logits.to(of_keys.dtype)[:, :, None].expand(*of_keys.shape[:4], 1) / self.scale
            k = torch.cat((of_keys, F.pad(logits, (0, WIDTH_OF_CALL - 1))), dim=-1)
            q = torch.cat((self.q, F.pad(torch.ones_like(self.q[..., :1]), (0, WIDTH_OF_CALL - 1))), dim=-1)
            return self._replace(q=q, k=F.pad(self.k, (0, WIDTH_OF_CALL))).with_extra(ExtraKeys(k, extra.v))
        images = self.q.shape[0] // self.windows
        k, v = (
            torch.cat((t, more.to(t.dtype).expand(images, self.windows, -1, -1, -1).flatten(0, 1)), dim=-2)
            for t, more in ((self.k, of_keys), (self.v, extra.v))
        )
        count, bias, mask = k.shape[-2] - self.num_keys, expand_all(self.biases), self.mask
        surplus = surplus_of(k.shape[-2])
        if bias is not None:
            bias = F.pad(bias, (0, count))
            if extra.logits is not None:
                bias = bias + F.pad(extra.logits[:, None], (self.num_keys, 0))
        return self._replace(
            k=k,
            v=v,
            biases=() if bias is None else (DenseBias(bias),),
            mask=None if mask is None else F.pad(mask[..., : self.num_keys], (0, count + surplus)),
        )


#: An attention and the carry, to the output (G, H, Nq, d) and the next carry.
FastForm = Callable[[Attention, Carry], tuple[Tensor, Carry]]


def scores_of(q: Tensor, k: Tensor, scale: float) -> Tensor:
    """Scaled dot products ``(..., Nq, Nk)`` of ``(..., Nq, d)`` and ``(..., Nk, d)``."""
    return (q if scale == 1 else q * scale) @ k.transpose(-2, -1)
