"""Images of handwritten digits in the layouts of ImageNet, ADE20K and COCO.

scikit-learn has 1,797 scans of handwritten digits, 8 by 8 pixels each. They are split into training and validation
before images are drawn; :mod:`.scenes` says what is written.
"""

import os
from pathlib import Path

import cv2
import numpy as np

from .scenes import SPLIT_STREAM, Log, Pool, Source, make_scenes

CLASSES = tuple('0123456789')
VAL_SHARE = 0.2


def split_scans(labels: np.ndarray, seed: int) -> dict[str, tuple[np.ndarray, ...]]:
    """Split scans into training (80 %) and validation (20 %), digit by digit.

    Args:
        labels: Digit of every scan, integers of shape (N,).
        seed: Seed of the shuffling.

    Returns:
        For ``'train'`` and ``'val'`` ten arrays of row numbers, one for each digit. No row number occurs twice.
    """
    split = {'train': [], 'val': []}
    for digit in range(len(CLASSES)):
        ids = np.random.default_rng([seed, SPLIT_STREAM, digit]).permutation(np.flatnonzero(labels == digit))
        num_val = round(VAL_SHARE * len(ids))
        split['val'].append(np.sort(ids[:num_val]))
        split['train'].append(np.sort(ids[num_val:]))
    return {name: tuple(ids) for name, ids in split.items()}


def load_pools(seed: int) -> dict[str, Pool]:
    """scikit-learn's scans, float32 of shape (1797, 8, 8) from 0 (paper) to 1 (ink), split into train and val."""
    from sklearn.datasets import load_digits

    digits = load_digits()
    images = digits.images.astype(np.float32)
    images /= images.max(axis=(1, 2), keepdims=True)
    return {split: Pool(images, ids, render_digit) for split, ids in split_scans(digits.target, seed).items()}


def render_digit(scan: np.ndarray, height: int, width: int) -> tuple[np.ndarray, np.ndarray]:
    """Enlarge a scan smoothly and crop the empty border.

    Args:
        scan: Scan of shape (8, 8), 0 (paper) to 1 (ink).
        height: Height to which the 8 rows are enlarged, in pixels.
        width: Width to which the 8 columns are enlarged, in pixels.

    Returns:
        Opacity of shape (h, w), float32 0..1; it is 0.5 where the enlarged scan has half of its full intensity. And a
        shade of 1 everywhere: a digit has one colour.
    """
    # Strokes reach the edge of a scan: padding lets them fade out instead of ending in a straight cut.
    padded = np.pad(scan, 1)
    soft = cv2.resize(padded, (round(width * 10 / 8), round(height * 10 / 8)), interpolation=cv2.INTER_CUBIC)
    ink = np.clip((soft - 0.5) / 0.4 + 0.5, 0, 1)
    rows, cols = np.flatnonzero(ink.any(axis=1)), np.flatnonzero(ink.any(axis=0))
    ink = ink[rows[0] : rows[-1] + 1, cols[0] : cols[-1] + 1]
    return ink, np.ones_like(ink)


DIGITS = Source('digit', "Scenes of scikit-learn's handwritten digits", CLASSES, load_pools)


def make_digit_scenes(
    root: str | os.PathLike,
    *,
    seed: int = 0,
    num_classification: tuple[int, int] = (4000, 500),
    num_scenes: tuple[int, int] = (1600, 100),
    log: Log = print,
) -> Path:
    """Write digit images in ImageNet, ADE20K and COCO layout into one folder.

    Args:
        root: The folder to make.
        seed: Seed of the split and of all images, at least 0.
        num_classification: Numbers of (training, validation) images in ImageNet layout, each at least 10.
        num_scenes: Numbers of (training, validation) scenes for each of ADE20K and COCO layout, each at least 1.
        log: Called with each line of progress.

    Returns:
        The folder.

    Raises:
        ValueError: If there are too few images, and as :func:`.scenes.make_scenes`.
    """
    # Readers number the folders of classes that exist.
    if min(num_classification) < len(CLASSES):
        raise ValueError(f'num_classification={num_classification}: expected at least {len(CLASSES)}, one for a class')
    return make_scenes(root, DIGITS, seed, dict(imagenet=num_classification, ade=num_scenes, coco=num_scenes), log)
