"""Labels for every token (token labelling): reads them, and applies the augmentation of an image to them.

*All Tokens Matter: Token Labeling for Training Better Vision Transformers* (LV-ViT). Another network has classified
each position of each training image. A file has the top k of these scores, ``(2, k, h, w)``, scores first and classes
second::

    data/imagenet/train/n01440764/n01440764_10026.JPEG     the image
    data/token_labels/n01440764/n01440764_10026.pt         its file, as published by LV-ViT's authors

The positions of the pixels are transformed with the image when it is cropped, flipped, rotated, sheared and moved::

    token_places  (H, W, 3)     x and y in the original image, from 0 to 1, and a mark of the pixels inside it

The transforms have the names and arguments of mmpretrain's. The published code swaps x and y when it crops the label
map; these transforms keep the label of each token's own position.
"""

from collections.abc import Sequence
from pathlib import Path

import cv2
import numpy as np
import torch
from mmcv.transforms import BaseTransform
from mmcv.transforms import RandomFlip as PlainFlip
from mmpretrain.datasets.transforms import auto_augment as plain
from mmpretrain.datasets.transforms.processing import RandomResizedCrop as PlainCrop

from vitplug.registry import TRANSFORMS

LABELS = 'token_labels'
PLACES = 'token_places'
# Mark of positions inside the image. Augmentation pads with values of at most 255.
INSIDE = 1000.0
# Samples of the label map per token and axis, as in RoIAlign on maps about as fine as the tokens.
SAMPLES = 2


@TRANSFORMS.register_module()
class LoadTokenLabels(BaseTransform):
    """Reads the token labels of an image and adds the positions of its pixels; ValueError if it was resized or cropped.

    Required keys: ``img``, ``img_path``. Added keys: ``token_labels`` ``(2, k, h, w)``, ``token_places`` ``(H, W, 3)``.

    Args:
        root: Folder with one folder per class.
    """

    def __init__(self, root: str | Path):
        self.root = Path(root)

    def transform(self, results: dict) -> dict:
        height, width = size = results['img'].shape[:2]
        read = results.get('ori_shape', size)
        if tuple(read) != size:
            raise ValueError(f'an image of {size}, read as {read}: put LoadTokenLabels right after LoadImageFromFile')
        image = Path(results['img_path'])
        results[LABELS] = read_token_labels(self.root / image.parent.name / f'{image.stem}.pt')
        y, x = np.mgrid[:height, :width].astype(np.float32)
        inside = np.full_like(x, INSIDE)
        results[PLACES] = np.stack(((x + 0.5) / width, (y + 0.5) / height, inside), axis=-1)
        return results


def read_token_labels(path: Path) -> torch.Tensor:
    """Scores and classes of one image, ``(2, k, h, w)`` float32.

    Raises:
        FileNotFoundError: If there is no such file.
        ValueError: If it does not contain token labels.
    """
    labels = torch.load(path, map_location='cpu', weights_only=True).float()
    whole = labels.isfinite().all() and bool((labels[1:] >= 0).all()) and torch.equal(labels[1:], labels[1:].round())
    if labels.ndim != 4 or len(labels) != 2 or not whole:
        raise ValueError(f'{path}: expected finite scores and classes from 0, (2, k, h, w), not {tuple(labels.shape)}')
    return labels


class Followed:
    """Mixin: applies the transform of the next class also to the positions of the pixels, if they are tracked."""

    def transform(self, results: dict) -> dict:
        if PLACES in results:
            before = np.random.get_state()
            results[PLACES] = self.follow(results[PLACES])
            np.random.set_state(before)
        return super().transform(results)

    def follow(self, places: np.ndarray) -> np.ndarray:
        """The positions ``(H, W, 3)``, transformed with the same random draws."""
        return super().transform(dict(img=places))['img']


@TRANSFORMS.register_module()
class RandomResizedCrop(Followed, PlainCrop):
    """mmpretrain's ``RandomResizedCrop``, also applied to token labels."""

    def follow(self, places: np.ndarray) -> np.ndarray:
        top, left, height, width = self.rand_crop_params(places)
        size = (self.scale[1], self.scale[0])
        # mmcv's Pillow backend accepts only bytes.
        return cv2.resize(places[top : top + height, left : left + width], size, interpolation=cv2.INTER_LINEAR)


@TRANSFORMS.register_module()
class RandomFlip(Followed, PlainFlip):
    """mmcv's ``RandomFlip``, also applied to token labels."""


@TRANSFORMS.register_module()
class Rotate(Followed, plain.Rotate):
    """mmpretrain's ``Rotate``, also applied to token labels."""


@TRANSFORMS.register_module()
class Shear(Followed, plain.Shear):
    """mmpretrain's ``Shear``, also applied to token labels."""


@TRANSFORMS.register_module()
class Translate(Followed, plain.Translate):
    """mmpretrain's ``Translate``, also applied to token labels."""


@TRANSFORMS.register_module()
class RandAugment(plain.RandAugment):
    """mmpretrain's ``RandAugment`` with the same arguments, geometric operations also applied to token labels."""

    MOVING = ('Rotate', 'Shear', 'Translate')

    def __init__(self, policies: str | Sequence[dict], **settings):
        super().__init__(policies, **settings)
        for i, policy in enumerate(self.policies):
            if policy['type'] in self.MOVING:
                self.transforms[i] = TRANSFORMS.build({**policy, 'type': f'vitplug.{policy["type"]}'})


@TRANSFORMS.register_module()
class SampleTokenPlaces(BaseTransform):
    """Replaces the positions of an image's pixels by those of its tokens.

    Modified key: ``token_places``, then ``(2 h, 2 w, 2)``: x and y from -1 to 1 of 2 x 2 positions in each token, NaN
    outside the image. ValueError if a transform has moved the image's pixels alone and so changed its size.

    Args:
        size: Number of tokens per side, or ``(h, w)``.
    """

    def __init__(self, size: int | Sequence[int]):
        self.size = (size, size) if isinstance(size, int) else tuple(size)

    def transform(self, results: dict) -> dict:
        tracked, size = results[PLACES].shape[:2], results['img'].shape[:2]
        if tracked != size:
            raise ValueError(
                f'SampleTokenPlaces: positions of {tracked} pixels in an image of {size}: transforms that move pixels '
                "after LoadTokenLabels must be vitplug's, such as type='vitplug.RandomResizedCrop'"
            )
        height, width = (SAMPLES * side for side in self.size)
        sampled = cv2.resize(results[PLACES], (width, height), interpolation=cv2.INTER_LINEAR)
        sampled[np.abs(sampled[..., 2] - INSIDE) > 0.5] = np.nan
        results[PLACES] = torch.from_numpy(2 * sampled[..., :2] - 1)
        return results
