"""What a model says of its blocks, and what follows of it: where their tokens lie, and their maps on images."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from vitplug.attention import Carry, GlobalLayout, LayerRecord, Layout, Site
from vitplug.attention.site import Valid, by_window
from vitplug.plugs import INTERMEDIATES, NETWORK_SOCKETS, BlockShape, LayerPlugs

from .maps import attention_received, check_fit, choose_maps, choose_query
from .padding import TokenMap
from .pixels import PixelGrid


@dataclass(frozen=True)
class Section:
    """Some blocks in a row, after which a host may give an output.

    Args:
        embed_dims: Width of their tokens, ``D``.
        stage: Stage of a hierarchical backbone, 0 elsewhere.
        merge: What makes the next stage's tokens of these, see :class:`Merge`; None for nothing.
    """

    blocks: Sequence['Block']
    embed_dims: int
    stage: int = 0
    merge: 'Merge | None' = None


class Block(Protocol):
    """A block of a model; see :class:`PluggedModel`."""

    shape: BlockShape
    plugs: LayerPlugs
    with_cp: bool

    @property
    def sockets(self) -> tuple[str, ...]:
        """The sockets that it offers."""

    def __call__(self, x_BND: Tensor, site: Site, carry: Carry, record: LayerRecord | None) -> tuple[Tensor, Carry]:
        """Tokens ``(B, N, D)`` and carry, in and out."""


class Merge(Protocol):
    """From the tokens of one stage to those of the next: merging of patches, a convolution with a stride, pooling."""

    #: Rows and columns of tokens that become one.
    stride: tuple[int, int]

    def __call__(self, x_BND: Tensor, hw: tuple[int, int]) -> tuple[Tensor, tuple[int, int]]:
        """Tokens ``(B, N, D)``, the host's prefix tokens first, and the grid of the others, in and out."""

    def place(self, pixels: PixelGrid) -> PixelGrid:
        """Where the new tokens lie in the image, of where the old ones do."""


class Placed(nn.Module):
    """The base of :class:`~vitplug.hosting.PluggedModel`: what a model implements, and the places of its blocks."""

    #: Names of the tokens before those of the grid, such as ``'cls_token'``.
    prefix_names: tuple[str, ...] = ()
    #: Sockets for the whole network that the host offers.
    network_sockets: tuple[str, ...] = NETWORK_SOCKETS
    #: Rows and columns of tokens at the configured image size.
    patch_resolution: tuple[int, int]
    #: Sections whose output is returned.
    out_indices: Sequence[int]

    #: Pixels from one row, and from one column, of the first block's tokens to the next.
    image_stride: tuple[int, int]

    def check_images(self, images: Tensor) -> None:
        """Checks an image batch before its first convolution.

        Raises:
            ValueError: If the images have other channels, another type, or are too small.
        """

    def pixels(self, image_size: tuple[int, int]) -> PixelGrid:
        """Where the tokens of the first block lie in an image of ``(height, width)``."""
        raise NotImplementedError

    def embed(self, images: Tensor, **settings: Any) -> tuple[Tensor, tuple[int, int]]:
        """Images ``(B, C, H, W)`` to tokens ``(B, N, D)``, the host's prefix tokens first, and their grid."""
        raise NotImplementedError

    def sections(self) -> list[Section]:
        """The blocks in order, cut where an output may be taken."""
        raise NotImplementedError

    def strides(self, index: int) -> tuple[int, int]:
        """Rows, and columns, from one query and from one key of block ``index`` to the next, in tokens that enter it.

        A block whose queries are further apart than its tokens hands on as many tokens as it has queries.
        """
        return 1, 1

    def key_pixels(self, index: int, entering: PixelGrid) -> PixelGrid:
        """Where the keys of block ``index`` lie in the image, of where the tokens that enter it do."""
        return entering.every(self.strides(index)[1])

    def layout(self, index: int, hw: tuple[int, int]) -> Layout:
        """How the queries of block ``index`` lie in windows, for a map of ``hw`` queries."""
        return GlobalLayout(*hw, self.num_prefix)

    def key_layout(self, index: int, hw: tuple[int, int]) -> Layout:
        """How the keys of block ``index`` lie in windows, for a map of ``hw`` keys, where they are not the queries."""
        return GlobalLayout(*hw, self.num_prefix)

    def planned_layout(self, index: int, hw: tuple[int, int]) -> Layout:
        """The same at the configured image size, for plugs."""
        return self.layout(index, hw)

    def format_output(self, section: int, x_BND: Tensor, hw: tuple[int, int]) -> Tensor | tuple[Tensor, ...]:
        """The output after a section."""
        raise NotImplementedError

    #: Whether outputs are those after the merging of patches.
    out_after_downsample = False
    #: The only height and width of images that the host takes; None for any.
    fixed_size: tuple[int, int] | None = None

    def reset_parameters(self) -> None:
        """Gives the model's own parameters, not those of its modules, the start of the constructor: 0."""
        for parameter in self.parameters(recurse=False):
            nn.init.zeros_(parameter)

    @property
    def num_extra_tokens(self) -> int:
        """The host's own tokens before those of the grid."""
        return len(self.prefix_names)

    @property
    def num_placed_tokens(self) -> int:
        """How many of them, the first ones, have a position in the host's table."""
        return self.num_extra_tokens

    #: Tokens before those of the grid, those of plugs included.
    num_prefix = 0

    # --- what follows ---

    def plugged_blocks(self) -> list[Block]:
        """The blocks of all stages in order."""
        return [block for section in self.sections() for block in section.blocks]

    def _placed(self, entering: PixelGrid) -> Iterator[tuple[Block, Section, PixelGrid]]:
        """Every block, its section, and where the tokens that enter it lie in the image."""
        index = 0
        for section in self.sections():
            for block in section.blocks:
                yield block, section, entering
                entering = entering.every(self.strides(index)[0])
                index += 1
            if section.merge is not None:
                entering = section.merge.place(entering)

    def site(self, layout: Callable[[int, tuple[int, int]], Layout], index: int, tokens: TokenMap) -> Site:
        """The site of a block, of the tokens that enter it; ``layout`` makes that of the queries, as :meth:`layout`."""
        of_queries, of_keys = self.strides(index)
        entering = None if of_queries == 1 else tokens.hw
        keys = None if of_keys == of_queries else self.key_layout(index, tokens.every(of_keys).hw)
        valid, valid_keys = self.valid(index, tokens)
        queries = layout(index, tokens.every(of_queries).hw)
        return Site(queries, keys, index, valid=valid, valid_keys=valid_keys, entering=entering)

    def valid(self, index: int, tokens: TokenMap) -> tuple[Valid, Valid]:
        """What makes the masks of valid queries ``(B, N)``, and of valid keys by window where they are others."""
        if tokens.sizes_B2 is None:
            return None, None
        of_queries, of_keys = self.strides(index)
        queries, keys = tokens.every(of_queries), tokens.every(of_keys)
        if of_keys == of_queries:
            return queries.valid, None
        key_layout = self.key_layout(index, keys.hw)
        return queries.valid, lambda: by_window(key_layout, keys.valid())

    def place_maps(
        self, index: int, image_size: tuple[int, int], name: str = 'probs'
    ) -> tuple[tuple[Layout, PixelGrid], tuple[Layout, PixelGrid]]:
        """The layouts of the queries and of the keys of some maps, and where they lie in an image.

        Args:
            index: Block index.
            image_size: Height and width in pixels.
            name: Name of the maps. Those of plugs are of all tokens of the last block, without windows.
        """
        of_queries, of_keys = self.strides(index)
        entering = self._entering(index, self.pixels(image_size))
        queries = keys = entering.every(of_queries)
        if of_keys != of_queries:
            keys = self.key_pixels(index, entering)
        if name in INTERMEDIATES:
            num_prefix = 0 if self.sections()[-1].stage else self.num_prefix
            return (GlobalLayout(*queries.hw, num_prefix), queries), (GlobalLayout(*keys.hw, num_prefix), keys)
        layout = self.layout(index, queries.hw)
        return (layout, queries), (layout if keys is queries else self.key_layout(index, keys.hw), keys)

    def grid_of(self, index: int, image_size: tuple[int, int] | None = None) -> tuple[int, int]:
        """Rows and columns of a block's queries, in an image of ``(height, width)`` or of the configured size."""
        first = PixelGrid(self.patch_resolution) if image_size is None else self.pixels(image_size)
        return self._entering(index, first).every(self.strides(index)[0]).hw

    def _entering(self, index: int, first: PixelGrid) -> PixelGrid:
        """Where the tokens that enter a block lie, of where those of the first block do."""
        return list(self._placed(first))[index][2]

    @torch.no_grad()
    def maps_to_image(
        self,
        found: Mapping[str, Mapping[int, Tensor]],
        layer: int,
        image_size: Sequence[int],
        query: Sequence[int] | str | None = None,
        name: str = 'probs',
    ) -> Tensor:
        """Attention maps of one block, laid over the image: windows, shift, padding and prefix tokens are undone.

        Args:
            found: The intermediates that :meth:`forward_intermediates` gave.
            layer: Block index.
            image_size: Height and width in pixels of the images that the backbone was given.
            query: Whose attention: that of the token at a pixel ``(y, x)``, or that of a prefix token, ``'cls_token'``.
                None sums over all queries: the attention that each key receives. Where attention is uniform, it is the
                number of queries for each key, 1 unless the block pools one of them more than the other.
            name: Which maps: ``'scores'``, ``'logits'``, ``'probs'``, ``'maps'`` or those of a plug.

        Returns:
            ``(B, H, height, width)``, the value of the key at each pixel; 0 outside of the query's window.

        Raises:
            ValueError: If there are no such maps or queries, or if the maps are not those of images of this size.
        """
        maps = choose_maps(found, name, layer)
        size = (image_size[0], image_size[1])
        (layout, pixels), (key_layout, key_pixels) = self.place_maps(layer, size, name)
        check_fit(maps, layout, key_layout, name, size)
        token = choose_query(query, pixels, size, self.prefix_names, layout.num_prefix)
        return key_pixels.to_image(attention_received(maps, layout, key_layout, token), size)
