"""Where one attention is: the argument that every socket of a block receives."""

from collections.abc import Callable
from math import prod

import torch
import torch.nn.functional as F
from torch import Tensor

from .grids import GridPair
from .layouts import HIDDEN, Layout, Slots
from .tuning import surplus_of

#: A mask of tokens that count, what makes it when it is first read, or None for all.
Valid = Tensor | Callable[[], Tensor | None] | None


class Site:
    """The tokens of one block: their windows, and which of them count.

    What follows of its arguments is made where something first reads it: most blocks read no mask of padding.

    Args:
        layout: How the block's tokens lie in windows. They are the queries.
        keys: The same of the keys, where they differ from the queries (pooled keys, for instance); None where not.
        index: Block index through all stages.
        mask: Additive mask ``(B or 1, W or 1, Nq or 1, Nk)``; other than 0 for pairs that must not see each other. It
            is added last and never handed on. :meth:`in_windows` adds the mask of shifted windows where queries and
            keys have one layout, and that of hidden padding of windows.
        valid: ``(B, N)``, True for tokens that count, False for padding; None without padding. A function makes it
            when it is first read.
        valid_keys: ``(B, W, Nk)``, the same of the keys, by window; derived from ``valid`` where queries and keys have
            one layout.
        attends_padding: Whether the softmax sees padded keys, as stock image models do. Text models set False.
        entering: Rows and columns of the tokens that enter the block, where the block pools its queries; None where
            the tokens are the queries.
    """

    __match_args__ = ('layout', 'keys', 'index', 'mask', 'valid', 'valid_keys', 'attends_padding', 'entering')
    #: Whether it is one of :meth:`in_windows`, which gives it what follows.
    is_placed = False
    #: Windows of one image.
    num_windows: int
    #: Which places in windows the tokens have; None for global attention.
    slots: Slots | None

    def __init__(
        self,
        layout: Layout,
        keys: Layout | None = None,
        index: int = 0,
        mask: Tensor | None = None,
        valid: Valid = None,
        valid_keys: Valid = None,
        attends_padding: bool = True,
        entering: tuple[int, int] | None = None,
    ):
        self.layout, self.keys, self.index, self.mask = layout, keys, index, mask
        self.attends_padding, self.entering = attends_padding, entering
        self._valid, self._valid_keys = valid, valid_keys
        #: The grids of the queries and the keys of one window.
        self.pairs = GridPair(layout.grid, self.key_layout.grid)
        self._softmax_mask: Tensor | None = None
        self._call_mask: Tensor | None = None

    @property
    def entering_hw(self) -> tuple[int, int]:
        """Rows and columns of the tokens that enter the block."""
        return self.layout.hw if self.entering is None else self.entering

    @property
    def key_layout(self) -> Layout:
        """How the keys lie in windows."""
        return self.layout if self.keys is None else self.keys

    @property
    def valid(self) -> Tensor | None:
        """``(B, N)``, True for tokens that count; None without padding."""
        if callable(self._valid):
            self._valid = self._valid()
        return self._valid

    @property
    def valid_keys(self) -> Tensor | None:
        """``(B, W, Nk)``, True for keys that count; None without padding."""
        if callable(self._valid_keys):
            self._valid_keys = self._valid_keys()
        if self._valid_keys is None and self.keys is None:
            self._valid_keys = by_window(self.layout, self.valid)
        return self._valid_keys

    @property
    def valid_queries(self) -> Tensor | None:
        """``(B, W, Nq)``, True for queries that count."""
        return self.valid_keys if self.keys is None else by_window(self.layout, self.valid)

    def in_windows(self, device: torch.device) -> 'Site':
        """The same with the masks of its windows.

        Raises:
            ValueError: If keys have their own layout, and ``valid`` is given without ``valid_keys``.
        """
        if self.is_placed:
            return self
        if self.keys is not None and self._valid is not None and self._valid_keys is None:
            raise ValueError('Site: valid without valid_keys: keys with their own layout need their own mask')
        shifted = self.layout.mask(device) if self.keys is None else None
        hidden = self.key_layout.hidden_keys(device)
        found = (
            self.mask,
            None if shifted is None else shifted[None],
            None if hidden is None else hidden[None, :, None],
        )
        masks = [mask for mask in found if mask is not None]
        placed = self._copy()
        placed.mask = sum(masks[1:], masks[0]) if masks else None
        placed.num_windows = prod(self.layout.windows)
        placed.slots = self.layout.slots(device)
        placed.is_placed = True
        return placed

    def at(self, index: int) -> 'Site':
        """The same of another block with the same layouts."""
        other = self._copy()
        other.index = index
        return other

    def with_valid(self, valid: Valid, valid_keys: Valid) -> 'Site':
        """The same of a padded batch; its arguments are those of the constructor."""
        padded = self._copy()
        padded._valid, padded._valid_keys = valid, valid_keys
        if not self.attends_padding:
            padded._softmax_mask = padded._call_mask = None
        return padded

    def _copy(self) -> 'Site':
        copied = Site.__new__(Site)
        copied.__dict__.update(self.__dict__)
        return copied

    def softmax_mask(self) -> Tensor | None:
        """The mask that is added to the logits, ``(B or 1, W or 1, 1, Nq or 1, Nk)``; None for none."""
        if self.mask is None and (self.attends_padding or self.valid_keys is None):
            return None
        if self._softmax_mask is None:
            mask = None if self.mask is None else self.mask.unsqueeze(2)
            if not self.attends_padding and self.valid_keys is not None:
                hidden = torch.where(self.valid_keys, 0.0, HIDDEN)[:, :, None, None]
                mask = hidden if mask is None else mask + hidden
            self._softmax_mask = mask
        return self._softmax_mask

    def call_mask(self) -> Tensor | None:
        """The same with as many keys as torch's fused call wants of rows; those after Nk do not exist."""
        if self._call_mask is None:
            mask = self.softmax_mask()
            if mask is None:
                return None
            keys, surplus = mask.shape[-1], surplus_of(mask.shape[-1])
            self._call_mask = F.pad(mask, (0, surplus)) if surplus else mask
            if surplus and (self.attends_padding or self.valid_keys is None):  # one memory for all forms of the mask
                self._softmax_mask = self._call_mask[..., :keys]
                self.mask = self._softmax_mask.squeeze(2)
        return self._call_mask


def without_hidden(maps: Tensor, site: Site) -> Tensor:
    """Maps ``(B, W, H, Nq, Nk)`` with 0 for pairs that must not see each other, where a plug has changed it."""
    mask = site.softmax_mask()
    return maps if mask is None else maps.masked_fill(mask != 0, 0)


def by_window(layout: Layout, valid_BN: Tensor | None) -> Tensor | None:
    """A mask of tokens ``(B, N)`` as one of windows ``(B, W, N)``; None for none."""
    return None if valid_BN is None else layout.to_windows(valid_BN.unsqueeze(-1)).squeeze(-1)
