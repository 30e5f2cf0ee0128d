"""What one attention is computed from."""

from dataclasses import dataclass

from torch import Tensor

from vitplug.compat import is_compiling

from .grids import TokenGrid


@dataclass(frozen=True)
class Attention:
    """What one attention is computed from; see :func:`~vitplug.attention.core.attend` for the shapes.

    A position bias comes as its values for all offsets, because tiles never need all pairs at once.
    ``valid``, the mask ``(B, W, N)`` of the keys that count, goes without bias, mask and dropout.
    """

    q: Tensor
    k: Tensor
    v: Tensor
    scale: float
    grid: TokenGrid | None = None
    bias: Tensor | None = None
    mask: Tensor | None = None
    dropout_p: float = 0.0
    valid: Tensor | None = None

    def expand_bias(self) -> Tensor | None:
        """The position bias ``(H or 1, N, N)`` in the precision of the scores, None where there is none."""
        return None if self.bias is None else self.grid.expand_offsets(self.bias.to(self.q.dtype))

    def row_table(self) -> Tensor | None:
        """What rows of the bias are cut from (:meth:`~vitplug.attention.grids.TokenGrid.to_row_table`)."""
        return None if self.bias is None else self.grid.to_row_table(self.bias.to(self.q.dtype))

    def goes_by_tiles(self, tokens: int) -> bool:
        """Whether there are that many tokens, and tiles are possible.

        They are not with masks or dropout, and a graph that is being compiled is torch's to cut.
        """
        possible = self.mask is None and not self.dropout_p and not is_compiling()
        return possible and self.q.shape[-2] >= tokens


def scores_of(q: Tensor, k: Tensor, scale: float) -> Tensor:
    """Scaled dot products ``(..., N, N)`` of ``(..., N, d)``."""
    return (q * scale) @ k.transpose(-2, -1)
