"""Images of handwritten digits in the layouts of ImageNet, ADE20K and COCO.

scikit-learn has 1,797 scans of handwritten digits, 8 by 8 pixels each. They are split into training and validation
before images are drawn; :mod:`.scenes` describes the files.
"""

from collections.abc import Mapping
from pathlib import Path

import cv2
import numpy as np

from .scenes import SPLIT_STREAM, Source, make_scenes, occupied

CLASSES = tuple('0123456789')
VAL_SHARE = 0.2
# Numbers of training and validation images of each layout.
COUNTS = dict(imagenet=(4000, 500), ade=(1600, 100), coco=(1600, 100))


def split_scans(labels: np.ndarray, seed: int) -> dict[str, list[np.ndarray]]:
    """Row numbers of the scans of each digit, by split: 80 % of each for training. ``labels`` are the digits (N,)."""
    split = {'train': [], 'val': []}
    for digit in range(len(CLASSES)):
        ids = np.random.default_rng([seed, SPLIT_STREAM, digit]).permutation(np.flatnonzero(labels == digit))
        num_val = round(VAL_SHARE * len(ids))
        split['val'].append(np.sort(ids[:num_val]))
        split['train'].append(np.sort(ids[num_val:]))
    return split


def digits(seed: int) -> Source:
    """scikit-learn's scans, float32 of shape (1797, 8, 8) from 0 (paper) to 1 (ink), split into train and val."""
    from sklearn.datasets import load_digits

    data = load_digits()
    images = data.images.astype(np.float32)
    images /= images.max(axis=(1, 2), keepdims=True)
    pools = {split: (images, ids) for split, ids in split_scans(data.target, seed).items()}
    return Source('digit', "Scenes of scikit-learn's handwritten digits", CLASSES, pools, render_digit)


def render_digit(scan: np.ndarray, height: int, width: int) -> tuple[np.ndarray, np.ndarray]:
    """A scan (8, 8), smoothly enlarged to a height and width in pixels, without its empty border.

    Returns:
        Opacity of shape (h, w), float32 0..1; it is 0.5 where the enlarged scan has half of its full intensity. And a
        shade of 1 everywhere: a digit has one colour.
    """
    # Strokes reach the edge of a scan: padding lets them fade out instead of ending in a straight cut.
    padded = np.pad(scan, 1)
    soft = cv2.resize(padded, (round(width * 10 / 8), round(height * 10 / 8)), interpolation=cv2.INTER_CUBIC)
    ink = np.clip((soft - 0.5) / 0.4 + 0.5, 0, 1)
    ink = ink[occupied(ink)]
    return ink, np.ones_like(ink)


def make_digit_scenes(root: str | Path, seed: int = 0, counts: Mapping[str, tuple[int, int]] = COUNTS) -> Path:
    """Writes images of digits into a folder; ``counts`` and errors are those of :func:`.scenes.make_scenes`."""
    return make_scenes(root, digits(seed), seed, counts)
