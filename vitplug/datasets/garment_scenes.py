"""Scenes of garments in the layouts of ADE20K and COCO, composed as those of digits from Fashion-MNIST's photographs.

Training scenes show the 60,000 photographs for training, validation scenes the 10,000 for tests. Single garments need
no scenes: mmpretrain's ``FashionMNIST`` reads the photographs.
"""

from pathlib import Path

import cv2
import numpy as np
from scipy import ndimage
from torchvision.datasets.mnist import FashionMNIST, read_image_file, read_label_file

from .scenes import Source, occupied

CLASSES = tuple(FashionMNIST.classes)
# Fashion-MNIST's names of the splits, in its files.
PARTS = {'train': 'train', 'val': 't10k'}
# Grey levels from this share of the brightest one belong to the garment, and what they enclose.
GARMENT = 0.04
# A garment's darkest pixels have this share of its colour: brighter than the background, as digits are.
DARKEST = 0.55


def silhouette(photo: np.ndarray) -> np.ndarray:
    """Pixels of a garment, prints and gaps in it included: bool (28, 28) of a photograph from 0 (background) to 255."""
    return ndimage.binary_fill_holes(photo >= max(1.0, GARMENT * photo.max()))


def render_garment(photo: np.ndarray, height: int, width: int) -> tuple[np.ndarray, np.ndarray]:
    """A garment of a photograph (28, 28), smoothly enlarged until its longer side fills a box of height and width.

    Returns:
        Opacity of shape (h, w), float32 0..1, 0.5 at the outline, and the share of the garment's colour in each pixel,
        ``DARKEST`` to 1.
    """
    shape = silhouette(photo)
    box = occupied(shape)
    # A border lets the outline fade out; grey levels are continued into it, so that the outline is not dark.
    shape, grey = np.pad(shape[box].astype(np.float32), 1), np.pad(photo[box].astype(np.float32), 1, mode='edge')
    longer = max(shape.shape) - 2
    size = round(width * shape.shape[1] / longer), round(height * shape.shape[0] / longer)
    opacity = np.clip((cv2.resize(shape, size, interpolation=cv2.INTER_CUBIC) - 0.5) / 0.4 + 0.5, 0, 1)
    grey = np.clip(cv2.resize(grey, size, interpolation=cv2.INTER_CUBIC) / photo.max(), 0, 1)
    box = occupied(opacity)
    return opacity[box], DARKEST + (1 - DARKEST) * grey[box]


def garments(folder: str | Path) -> Source:
    """The photographs of both splits, from a folder with Fashion-MNIST's four files, unpacked."""
    pools = {}
    for split, part in PARTS.items():
        images = read_image_file(f'{folder}/{part}-images-idx3-ubyte').numpy()
        labels = read_label_file(f'{folder}/{part}-labels-idx1-ubyte').numpy()
        pools[split] = images, [np.flatnonzero(labels == label) for label in range(len(CLASSES))]
    return Source('garment', "Scenes of Fashion-MNIST's garments", CLASSES, pools, render_garment)
