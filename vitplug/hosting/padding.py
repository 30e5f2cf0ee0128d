"""Padding of image batches: from the sizes of the images to a mask of valid tokens.

Images of different sizes are padded at bottom and right to one batch: always in detection, often when segmentation is
trained. A backbone that knows the sizes gives every block a mask of the tokens that belong to images::

    sizes in pixels (B, 2)  --patch stride, merging-->  valid rows and columns (B, 2)  -->  mask (B, N) of each stage

A token is valid if the first pixel of its patch belongs to the image; after patch merging, if any of the merged tokens
was.

mmdet's detectors and mmseg's segmentors call their backbone with the batch and nothing else, so the sizes travel as an
attribute of that tensor, and no module holds them. Operations on the batch give tensors without sizes, and then all
tokens count, which is right for the crops of a sliding window. :func:`keep_padding` hands the sizes to a copy;
mmengine's strategies of FSDP and DeepSpeed, which cast a batch to half precision, lose them there.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from vitplug.attention.grids import ceil_div

_ATTRIBUTE = 'valid_sizes'


def mark_padding(images: Tensor, sizes: Sequence[Sequence[int]]) -> Tensor:
    """Attaches the sizes of its images to a padded batch.

    Args:
        images: ``(B, C, H, W)``, padded at bottom and right.
        sizes: Height and width of every image before padding, in pixels.

    Returns:
        The same tensor. Without padding nothing is attached, and the backbone builds no mask.

    Raises:
        ValueError: If the number of sizes differs from the batch's, or a size is empty or larger than the batch's.
    """
    sizes, padded = [tuple(size) for size in sizes], tuple(images.shape[-2:])
    if len(sizes) != len(images):
        raise ValueError(f'sizes={sizes} for a batch of {len(images)} images: expected height and width of each')
    if not all(len(size) == 2 and 1 <= size[0] <= padded[0] and 1 <= size[1] <= padded[1] for size in sizes):
        raise ValueError(f'sizes={sizes} of images padded to {padded}: expected heights and widths from 1 to these')
    vars(images).pop(_ATTRIBUTE, None)  # of an earlier call
    if any(size != padded for size in sizes):
        setattr(images, _ATTRIBUTE, torch.tensor(sizes, device=images.device))
    return images


def valid_sizes(images: Tensor) -> Tensor | None:
    """Heights and widths ``(B, 2)`` in pixels that :func:`mark_padding` attached; None if there is no padding."""
    return getattr(images, _ATTRIBUTE, None)


def keep_padding(copied: Tensor, images: Tensor) -> Tensor:
    """Attaches the sizes of a batch, if it has any, to a copy of it, such as one of another type; returns the copy."""
    if (sizes := valid_sizes(images)) is not None:
        setattr(copied, _ATTRIBUTE, sizes)
    return copied


class TokenMap:
    """A map of tokens, and which of them belong to the images of a padded batch.

    Args:
        hw: Rows and columns of tokens.
        sizes_B2: Valid rows and columns of each image, from the first on; None if all are.
        num_prefix: Prefix tokens, which are valid.
    """

    def __init__(self, hw: tuple[int, int], sizes_B2: Tensor | None = None, num_prefix: int = 0):
        self.hw, self.sizes_B2, self.num_prefix = (hw[0], hw[1]), sizes_B2, num_prefix
        self._valid_BN: Tensor | None = None

    def valid(self) -> Tensor | None:
        """``(B, num_prefix + h * w)``, True for valid tokens; None if all are. Made when it is first asked for."""
        if self._valid_BN is None and self.sizes_B2 is not None:
            self._valid_BN = self._mask(self.sizes_B2)
        return self._valid_BN

    def every(self, step: int) -> 'TokenMap':
        """Every ``step``-th token along both axes, from the first on."""
        if step == 1:
            return self
        return self.merged((ceil_div(self.hw[0], step), ceil_div(self.hw[1], step)), (step, step))

    def merged(self, hw: tuple[int, int], stride: tuple[int, int]) -> 'TokenMap':
        """The map ``hw`` after ``stride`` rows and columns were merged into one."""
        return TokenMap(hw, shrink(self.sizes_B2, stride), self.num_prefix)

    def _mask(self, sizes_B2: Tensor) -> Tensor:
        rows_Bh, cols_Bw = (
            torch.arange(n, device=v.device) < v[:, None] for n, v in zip(self.hw, sizes_B2.T, strict=True)
        )
        mask_BN = (rows_Bh[:, :, None] & cols_Bw[:, None]).flatten(1)
        return torch.cat((mask_BN.new_ones(mask_BN.shape[0], self.num_prefix), mask_BN), dim=1)


def shrink(sizes_B2: Tensor | None, stride: tuple[int, int]) -> Tensor | None:
    """Heights and widths after ``stride`` rows and columns are merged into one, rounded up."""
    return (
        None if sizes_B2 is None else torch.stack([ceil_div(n, s) for n, s in zip(sizes_B2.T, stride, strict=True)], 1)
    )
