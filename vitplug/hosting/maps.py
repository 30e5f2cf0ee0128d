"""Attention maps laid over images: where the tokens of a block lie, and what each key receives there."""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from vitplug.attention import Layout
from vitplug.plugs import INTERMEDIATES

from .pixels import PixelGrid

PAIRWISE = 'scores', 'logits', 'probs', 'maps'


def choose_maps(found: Mapping[str, Mapping[int, Tensor]], name: str, layer: int) -> Tensor:
    """The maps ``(B, W, H, N, N)`` of one block among recorded intermediates.

    Raises:
        ValueError: If the name is none of maps, or they were not recorded.
    """
    if name not in (known := [*PAIRWISE, *INTERMEDIATES]):
        raise ValueError(f'name={name!r}: expected one of {known}')
    if layer not in found.get(name, {}):
        recorded = {kind: sorted(by_block) for kind, by_block in found.items()}
        raise ValueError(
            f'found has no {name!r} of block {layer}, only {recorded}: ask forward_intermediates for names=[{name!r}] '
            f"and layers=[{layer}]; a block that reuses another's maps has 'maps' alone"
        )
    return found[name][layer]


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
    """Index of a token, counting prefix tokens first: at a pixel, or by the name of a prefix token; None for all.

    ``prefix`` are names of the host's own prefix tokens, which come first of ``num_prefix``, those of plugs included.

    Raises:
        ValueError: If there is no such token.
    """
    if query is None:
        return None
    prefix = prefix[:num_prefix]
    if isinstance(query, str):
        if query in prefix:
            return prefix.index(query)
    elif len(query) == 2 and all(0 <= place < side for place, side in zip(query, image_size, strict=True)):
        return num_prefix + pixels.token_at(query, image_size)
    raise ValueError(
        f'query={query!r}: expected a pixel (y, x) of an image of {image_size}, None or one of {list(prefix)}'
    )


def attention_received(maps_BWHNN: Tensor, layout: Layout, key_layout: Layout, query: int | None) -> Tensor:
    """The attention of one query, or of all, to each key, ``(B, H, rows, columns)`` of the map of keys.

    Queries and keys lie as the two layouts say; ``query`` counts prefix tokens first.
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
