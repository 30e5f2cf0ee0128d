"""Attention maps of windows on the grid of the whole image."""

import torch
from torch import Tensor

from .places import Place


def to_image(maps_BWHNN: Tensor, place: Place, queries: Tensor | None = None) -> Tensor:
    """The attention of patches to patches, windows, shift and padding undone.

    Args:
        maps_BWHNN: Recorded maps, ``(B, W, H, Nq, Nk)``.
        place: Where they are.
        queries: Indices ``(nq,)`` of the queries on their map in reading order; None for all of them. All queries of a
            map with N patches make N x N numbers for each head.

    Returns:
        ``(B, H, nq, h, w)`` on the map of keys; 0 outside of the query's window.

    Raises:
        ValueError: If the maps are of another place, or a query is outside of the map.
    """
    place.check(maps_BWHNN)
    height, width = place.layout.hw
    chosen = torch.arange(height * width) if queries is None else torch.as_tensor(queries).flatten().cpu()
    if len(chosen) and not 0 <= chosen.min() <= chosen.max() < height * width:
        raise ValueError(f'queries={chosen.tolist()}: expected indices of a map of {height} x {width} patches')
    windows, slots = place.queries.of_patches
    device = maps_BWHNN.device
    rows_qBHN = maps_BWHNN[:, windows[chosen].to(device), :, slots[chosen].to(device)]
    # The last number collects what is no patch, and is cut off.
    num_keys = place.key_layout.hw[0] * place.key_layout.hw[1]
    targets_WN = torch.where(place.keys.is_patch, place.keys.patch, num_keys)
    targets_qN = targets_WN[windows[chosen]].to(device)
    whole_qBHN = rows_qBHN.new_zeros(*rows_qBHN.shape[:3], num_keys + 1)
    whole_qBHN.scatter_(3, targets_qN[:, None, None].expand(rows_qBHN.shape), rows_qBHN)
    return whole_qBHN[..., :num_keys].permute(1, 2, 0, 3).unflatten(3, place.key_layout.hw)


def dense_maps(maps_BWHNN: Tensor, place: Place) -> Tensor:
    """The attention of all tokens to all tokens, ``(B, H, Nq, Nk)``: prefix tokens first, then patches by rows.

    Args:
        maps_BWHNN: Recorded maps, ``(B, W, H, Nq, Nk)``.
        place: Where they are.

    Raises:
        ValueError: If the maps are of another place.
    """
    place.check(maps_BWHNN)
    if not place.layout.is_windowed:
        return maps_BWHNN[:, 0]
    return to_image(maps_BWHNN, place).flatten(3)
