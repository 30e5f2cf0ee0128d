"""Where one attention is: the argument that every socket of a block receives."""

from dataclasses import dataclass

import torch
from torch import Tensor

from vitplug.compat import replace

from .grids import GridPair
from .layouts import HIDDEN, Layout


@dataclass(frozen=True)
class Site:
    """The tokens of one block: their windows, and which of them count.

    Args:
        layout: How the block's tokens lie in windows. They are the queries.
        keys: The same of the keys, where they differ from the queries (pooled keys, for instance); None where not.
        index: Block index through all stages.
        mask: Additive mask ``(B or 1, W or 1, Nq or 1, Nk)``; other than 0 for pairs that must not see each other. It
            is added last and never handed on. :meth:`in_windows` adds the mask of shifted windows where queries and
            keys have one layout, and that of hidden padding of windows.
        valid: ``(B, N)``, True for tokens that count, False for padding; None without padding.
        valid_keys: ``(B, W, Nk)``, the same of the keys, by window. :meth:`in_windows` derives it from ``valid``
            where queries and keys have one layout.
        attends_padding: Whether the softmax sees padded keys, as stock image models do. Text models set False.
        entering: Rows and columns of the tokens that enter the block, where the block pools its queries; None where
            the tokens are the queries.
    """

    layout: Layout
    keys: Layout | None = None
    index: int = 0
    mask: Tensor | None = None
    valid: Tensor | None = None
    valid_keys: Tensor | None = None
    attends_padding: bool = True
    entering: tuple[int, int] | None = None

    @property
    def entering_hw(self) -> tuple[int, int]:
        """Rows and columns of the tokens that enter the block."""
        return self.layout.hw if self.entering is None else self.entering

    @property
    def key_layout(self) -> Layout:
        """How the keys lie in windows."""
        return self.layout if self.keys is None else self.keys

    @property
    def pairs(self) -> GridPair:
        """The grids of the queries and the keys of one window."""
        return GridPair(self.layout.grid, self.key_layout.grid)

    @property
    def valid_queries(self) -> Tensor | None:
        """``(B, W, Nq)``, True for queries that count."""
        return self.valid_keys if self.keys is None else _by_window(self.layout, self.valid)

    def in_windows(self, device: torch.device) -> 'Site':
        """The same with the masks of its windows, and with ``valid_keys``.

        Raises:
            ValueError: If keys have their own layout, and ``valid`` is given without ``valid_keys``.
        """
        if self.keys is not None and self.valid is not None and self.valid_keys is None:
            raise ValueError('Site: valid without valid_keys: keys with their own layout need their own mask')
        valid_keys = _by_window(self.layout, self.valid) if self.keys is None else self.valid_keys
        shifted = self.layout.mask(device) if self.keys is None else None
        hidden = self.key_layout.hidden_keys(device)
        if shifted is None and hidden is None and valid_keys is self.valid_keys:
            return self
        found = (
            self.mask,
            None if shifted is None else shifted[None],
            None if hidden is None else hidden[None, :, None],
        )
        masks = [mask for mask in found if mask is not None]
        mask = sum(masks[1:], masks[0]) if masks else None
        return replace(self, mask=mask, valid_keys=valid_keys)

    def softmax_mask(self) -> Tensor | None:
        """The mask that is added to the logits, ``(B or 1, W or 1, 1, Nq or 1, Nk)``; None for none."""
        mask = None if self.mask is None else self.mask.unsqueeze(2)
        if self.attends_padding or self.valid_keys is None:
            return mask
        hidden = torch.where(self.valid_keys, 0.0, HIDDEN)[:, :, None, None]
        return hidden if mask is None else mask + hidden


def without_hidden(maps: Tensor, site: Site) -> Tensor:
    """Maps ``(B, W, H, Nq, Nk)`` with 0 for pairs that must not see each other, where a plug has changed it."""
    mask = site.softmax_mask()
    return maps if mask is None else maps.masked_fill(mask != 0, 0)


def _by_window(layout: Layout, valid_BN: Tensor | None) -> Tensor | None:
    return None if valid_BN is None else layout.to_windows(valid_BN.unsqueeze(-1)).squeeze(-1)
