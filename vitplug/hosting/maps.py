"""Attention maps laid over images: where the tokens of a block lie, and what each key receives there."""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from vitplug.attention import Layout
from vitplug.plugs import INTERMEDIATES

from .pixels import PixelGrid

PAIRWISE = ('scores', 'logits', 'probs', 'maps', *INTERMEDIATES)


def check_name(name: str) -> None:
    """Checks that a name is that of maps.

    Raises:
        ValueError: If it is none.
    """
    if name not in PAIRWISE:
        raise ValueError(f'name={name!r}: expected one of {list(PAIRWISE)}')


def choose_maps(found: Mapping[str, Mapping[int, Tensor]], name: str, layer: int) -> Tensor:
    """The maps ``(B, W, H, N, N)`` of one block among recorded intermediates.

    Raises:
        ValueError: If the name is none of maps, or they were not recorded.
    """
    check_name(name)
    if layer not in found.get(name, {}):
        recorded = {kind: sorted(by_block) for kind, by_block in found.items()}
        raise ValueError(
            f'found has no {name!r} of block {layer}, only {recorded}: ask forward_intermediates for names=[{name!r}] '
            f"and layers=[{layer}]; a block that reuses another's maps has 'maps' alone"
        )
    return found[name][layer]


def check_image_size(image_size: Sequence[int]) -> tuple[int, int]:
    """Height and width.

    Raises:
        ValueError: If it is no pair of positive integers.
    """
    is_pair = isinstance(image_size, Sequence) and len(image_size) == 2
    if not is_pair or not all(isinstance(side, int) and side > 0 for side in image_size):
        raise ValueError(f'image_size={image_size!r}: expected height and width in pixels, such as images.shape[-2:]')
    return image_size[0], image_size[1]


def check_fit(maps: Tensor, layout: Layout, key_layout: Layout, name: str, image_size: tuple[int, int]) -> None:
    """Checks that maps belong to images of a size.

    Raises:
        ValueError: If they are of other windows or tokens.
    """
    rows, columns = layout.windows
    expected = (rows * columns, layout.grid.num_tokens, key_layout.grid.num_tokens)
    shape = (maps.shape[1], *maps.shape[3:])
    if shape != expected:
        raise ValueError(
            f'{name} are of {shape[0]} windows and {shape[1:]} tokens, but images of {image_size} have {expected[0]} '
            f'and {expected[1:]}: give the size of the images that the backbone was given'
        )


def choose_query(
    query: Sequence[int] | str | None,
    pixels: PixelGrid,
    image_size: tuple[int, int],
    prefix: Sequence[str],
    num_prefix: int,
) -> int | None:
    """Index of a token, counting prefix tokens first; None for all.

    Args:
        query: A pixel, the name of a prefix token, or None.
        pixels: Where the tokens lie in the image.
        image_size: Height and width of the images.
        prefix: Names of the host's own prefix tokens, which come first.
        num_prefix: Number of all prefix tokens, those of plugs included.

    Raises:
        ValueError: If there is no such token.
    """
    if query is None:
        return None
    if isinstance(query, str):
        if query not in prefix:
            raise ValueError(f'query={query!r}: expected a pixel (y, x), None or one of {list(prefix)}')
        return prefix.index(query)
    is_pixel = isinstance(query, Sequence) and len(query) == 2 and all(isinstance(place, int) for place in query)
    if not is_pixel or not all(0 <= place < side for place, side in zip(query, image_size, strict=True)):
        raise ValueError(f'query={query!r}: expected a pixel (y, x) of an image of {image_size}')
    return num_prefix + pixels.token_at(query, image_size)


def attention_received(maps_BWHNN: Tensor, layout: Layout, key_layout: Layout, query: int | None) -> Tensor:
    """The attention of one query, or of all, to each key, ``(B, H, rows, columns)`` of the map of keys.

    Args:
        maps_BWHNN: Maps, ``(B, W, H, Nq, Nk)``.
        layout: How the queries lie in windows.
        key_layout: The same of the keys.
        query: Index of the query, counting prefix tokens first; None for the sum over all.
    """
    num_queries = layout.num_prefix + layout.hw[0] * layout.hw[1]
    chosen = range(num_queries) if query is None else [query]
    weights_1N1 = maps_BWHNN.new_zeros(1, num_queries, 1)
    weights_1N1[:, chosen] = 1
    # Padding of windows is no query, and its columns go with the windows.
    weights_WN = layout.to_windows(weights_1N1)[0, :, :, 0]
    received_BWNH = torch.einsum('bwhqk,wq->bwkh', maps_BWHNN, weights_WN)
    keys_BHN = key_layout.from_windows(received_BWNH)[:, key_layout.num_prefix :].transpose(1, 2)
    return keys_BHN.unflatten(2, key_layout.hw)
