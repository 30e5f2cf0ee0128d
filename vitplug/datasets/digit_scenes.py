"""Images composed of scikit-learn's 1,797 scans of handwritten digits, in the layouts of ImageNet, ADE20K and COCO.

:func:`make_digit_scenes` enlarges the scans, 8 by 8 pixels each, pastes them in random sizes and colours on random
backgrounds, and writes::

    root/imagenet/{train,val}/<digit>/<name>.png             one digit per image, one folder per class
    root/ade/images/{training,validation}/<name>.png         scenes of several digits
    root/ade/annotations/{training,validation}/<name>.png    class of every pixel: 0 background, 1..10 the digits 0..9
    root/coco/{train,val}/<name>.png                         scenes of several digits
    root/coco/annotations/instances_{train,val}.json         COCO instances, category 1..10
    root/manifest.json                                       the arguments

Scans for training and for validation differ; all layouts use the same split.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import NamedTuple

import cv2
import numpy as np
from sklearn.datasets import load_digits

from vitplug.files.whole import write_text

from .converting import check_empty, write_png

CLASSES = tuple('0123456789')
TITLE = "Scenes of scikit-learn's handwritten digits"
SPLITS = ('train', 'val')
VAL_SHARE = 0.2
# Numbers of training and validation images of each layout.
COUNTS = dict(imagenet=(4000, 500), ade=(1600, 100), coco=(1600, 100))
MAX_BOX_OVERLAP = 0.15
MIN_VISIBLE_SHARE = 0.75
# Digits are brighter than the background: with both signs of contrast, small models would need far more steps.
MAX_BACKGROUND = 120
MIN_CONTRAST = 90
LUMINANCE = np.array([0.299, 0.587, 0.114], np.float32)

# Folders of the images of each layout.
FOLDERS = {'imagenet': 'imagenet/{split}/{label}', 'ade': 'ade/images/{ade_split}', 'coco': 'coco/{split}'}
ADE_SPLITS = {'train': 'training', 'val': 'validation'}
# Each kind of random draw has its own stream number, so that no two kinds share random numbers. Stream 0 is for splits.
SPLIT_STREAM = 0
compact_json = json.JSONEncoder(separators=(',', ':')).encode
STREAMS = {place: number for number, place in enumerate(itertools.product(FOLDERS, SPLITS), 1)}


@cache
def load_scans() -> tuple[np.ndarray, np.ndarray]:
    """The scans, float32 of shape (1797, 8, 8) from 0 (paper) to 1 (ink), and their digits (1797,)."""
    data = load_digits()
    images = data.images.astype(np.float32)
    return images / images.max(axis=(1, 2), keepdims=True), data.target


@cache
def split_scans(seed: int) -> dict[str, list[np.ndarray]]:
    """Row numbers of the scans of each digit, by split: 80 % of each for training."""
    _, labels = load_scans()
    split = {name: [] for name in SPLITS}
    for digit in range(len(CLASSES)):
        ids = np.random.default_rng([seed, SPLIT_STREAM, digit]).permutation(np.flatnonzero(labels == digit))
        num_val = round(VAL_SHARE * len(ids))
        split['val'].append(np.sort(ids[:num_val]))
        split['train'].append(np.sort(ids[num_val:]))
    return split


# --- drawing ---


@dataclass(frozen=True)
class SceneSpec:
    """Ranges of the random values of a scene, both ends included; lengths in pixels."""

    canvas: tuple[int, int]  # sides of the image
    objects: tuple[int, int]  # number of digits
    size: tuple[int, int]  # height of a digit
    max_fill: float  # largest height of a digit, as a share of the shorter side of the image
    jitter: float  # largest distance of a digit from the centre, from 0 to 1 at the border


SEVERAL = SceneSpec(canvas=(96, 160), objects=(3, 7), size=(28, 56), max_fill=0.45, jitter=1.0)
SINGLE = SceneSpec(canvas=(32, 48), objects=(1, 1), size=(20, 40), max_fill=0.9, jitter=0.6)


class Placed(NamedTuple):
    """A digit in an image: the window that it fills, (h, w) pixels, and its opacity 0..1 there, float32 (h, w)."""

    label: int
    scan_id: int
    window: tuple[slice, slice]
    opacity: np.ndarray


def occupied(pixels: np.ndarray) -> tuple[slice, slice]:
    """Rows and columns of the box around the pixels ``(H, W)`` that are not 0."""
    lines = (np.flatnonzero(pixels.any(axis=axis)) for axis in (1, 0))
    return tuple(slice(int(line[0]), int(line[-1]) + 1) for line in lines)


def render_digit(scan: np.ndarray, height: int, width: int) -> np.ndarray:
    """A scan (8, 8), smoothly enlarged to a height and width in pixels, without its empty border.

    Returns:
        Opacity of shape (h, w), float32 0..1; it is 0.5 where the enlarged scan has half of its full intensity.
    """
    # Strokes reach the edge of a scan: padding lets them fade out instead of ending in a straight cut.
    padded = np.pad(scan, 1)
    soft = cv2.resize(padded, (round(width * 10 / 8), round(height * 10 / 8)), interpolation=cv2.INTER_CUBIC)
    ink = np.clip((soft - 0.5) / 0.4 + 0.5, 0, 1)
    return ink[occupied(ink)]


def paint_background(shape: tuple[int, int], rng: np.random.Generator) -> np.ndarray:
    """A dark background (H, W, 3), float32 RGB 0..255: one colour or a gradient, with or without texture."""
    height, width = shape
    canvas = np.tile(rng.uniform(0, MAX_BACKGROUND, 3).astype(np.float32), (height, width, 1))
    if rng.random() < 0.5:
        angle = rng.uniform(0, 2 * np.pi)
        ramp = np.cos(angle) * np.linspace(-1, 1, height)[:, None] + np.sin(angle) * np.linspace(-1, 1, width)
        canvas += ramp[..., None].astype(np.float32) * rng.uniform(-35, 35, 3).astype(np.float32)
    texture = rng.choice(['plain', 'grain', 'blotches'])
    if texture == 'grain':
        canvas += rng.normal(0, rng.uniform(2, 8), (height, width, 1)).astype(np.float32)
    elif texture == 'blotches':
        coarse = rng.uniform(-16, 16, (*rng.integers(3, 9, 2), 3)).astype(np.float32)
        canvas += cv2.resize(coarse, (width, height), interpolation=cv2.INTER_CUBIC)
    return np.clip(canvas, 0, 255)


def pick_contrasting_colour(patch: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """A random RGB colour, float32 0..255, that is much brighter than a patch of background (H, W, 3).

    Its luminance is at least ``MIN_CONTRAST`` above 95 % of the patch; if no drawn colour is that bright, it is white.
    """
    high = np.percentile(patch @ LUMINANCE, 95)
    colours = np.concatenate([rng.uniform(60, 255, (64, 3)), np.full((1, 3), 255)]).astype(np.float32)
    stands_out = colours @ LUMINANCE >= high + MIN_CONTRAST
    stands_out[-1] = True
    return colours[np.argmax(stands_out)]


def visible_masks(objects: Sequence[Placed], shape: tuple[int, int]) -> np.ndarray:
    """Masks of shape (N, H, W) of the visible parts of digits that are drawn one after another."""
    masks = np.zeros((len(objects), *shape), bool)
    for i, placed in enumerate(objects):
        masks[i][placed.window] = placed.opacity >= 0.5
        masks[:i] &= ~masks[i]
    return masks


def _is_crowded(objects: Sequence[Placed], shape: tuple[int, int]) -> bool:
    """True if the last digit covers too much of the others."""
    *others, last = objects
    for other in others:
        sides = [min(a.stop, b.stop) - max(a.start, b.start) for a, b in zip(last.window, other.window, strict=True)]
        common = max(sides[0], 0) * max(sides[1], 0)
        if common / min(last.opacity.size, other.opacity.size) > MAX_BOX_OVERLAP:
            return True
    # Several small overlaps add up: enough of each digit must stay visible.
    seen = visible_masks(objects, shape).sum(axis=(1, 2))
    whole = np.array([(placed.opacity >= 0.5).sum() for placed in objects])
    return bool((seen < MIN_VISIBLE_SHARE * whole).any())


def lay_out(
    ids: Sequence[np.ndarray], labels: Sequence[int], shape: tuple[int, int], spec: SceneSpec, rng: np.random.Generator
) -> list[Placed]:
    """Places digits one after another, each by a scan of the row numbers of its digit; skips one that does not fit."""
    objects: list[Placed] = []
    scans, _ = load_scans()
    max_size = max(spec.size[0], min(spec.size[1], spec.max_fill * min(shape)))
    for label in labels:
        # Each try is smaller, until the digit fits into the free space.
        for limit in np.linspace(max_size, spec.size[0], 30):
            scan_id = int(rng.choice(ids[label]))
            size = rng.uniform(spec.size[0], limit)
            opacity = render_digit(scans[scan_id], round(size), round(size * rng.uniform(0.85, 1.2)))
            free = np.subtract(shape, opacity.shape)
            if free.min() < 0:
                continue
            start = np.rint(free / 2 * (1 + spec.jitter * rng.uniform(-1, 1, 2))).astype(int)
            window = tuple(slice(first, first + side) for first, side in zip(start, opacity.shape, strict=True))
            placed = Placed(int(label), scan_id, window, opacity)
            if not _is_crowded([*objects, placed], shape):
                objects.append(placed)
                break
    return objects


def draw_scene(seed: int, layout: str, split: str, index: int) -> tuple[np.ndarray, list[Placed]]:
    """The RGB image (H, W, 3) that :func:`make_digit_scenes` writes at a position of a layout and split; its digits.

    It depends only on these arguments: larger data sets begin with the images of smaller ones. In the layout
    ``'imagenet'`` it has one digit, ``index % 10``.
    """
    rng = np.random.default_rng([seed, STREAMS[layout, split], index])
    spec, objects = SINGLE if layout == 'imagenet' else SEVERAL, []
    while len(objects) < spec.objects[0]:
        height, width = (int(side) for side in rng.integers(spec.canvas[0], spec.canvas[1] + 1, 2))
        count = rng.integers(spec.objects[0], spec.objects[1] + 1)
        labels = [index % len(CLASSES)] if layout == 'imagenet' else rng.integers(0, len(CLASSES), count)
        objects = lay_out(split_scans(seed)[split], labels, (height, width), spec, rng)
    background = paint_background((height, width), rng)
    canvas = background.copy()
    for placed in objects:
        colour = pick_contrasting_colour(background[placed.window], rng)
        canvas[placed.window] += placed.opacity[..., None] * (colour - canvas[placed.window])
    return np.rint(canvas).astype(np.uint8), objects


# --- files ---


def encode_rle(mask: np.ndarray) -> dict:
    """Encodes a bool mask of shape (H, W) as COCO's uncompressed run-length encoding: by columns, zeros first."""
    flat = mask.ravel(order='F')
    changes = np.flatnonzero(np.diff(flat, prepend=False))
    return dict(size=list(mask.shape), counts=np.diff(changes, prepend=0, append=flat.size).tolist())


def coco_annotation(placed: Placed, mask: np.ndarray, **ids: int) -> dict:
    """COCO's annotation of a digit with the mask of its visible part, and the additional key ``scan_id``."""
    return dict(
        **ids,
        category_id=placed.label + 1,
        segmentation=encode_rle(mask),
        area=int(mask.sum()),
        bbox=list(cv2.boundingRect(mask.astype(np.uint8))),
        iscrowd=0,
        scan_id=placed.scan_id,
    )


def _write_layout(root: Path, seed: int, layout: str, split: str, count: int) -> None:
    """Draws and writes the images and the ground truth of a split."""
    images: list[dict] = []
    annotations: list[dict] = []
    for index in range(count):
        image, objects = draw_scene(seed, layout, split, index)
        name, label, ade_split = f'{split}_{index:06d}.png', CLASSES[objects[0].label], ADE_SPLITS[split]
        write_png(root / FOLDERS[layout].format(split=split, label=label, ade_split=ade_split) / name, image)
        images.append(dict(id=index + 1, file_name=name, height=image.shape[0], width=image.shape[1]))
        classes = np.zeros(image.shape[:2], np.uint8)
        for placed, mask in zip(objects, visible_masks(objects, image.shape[:2]), strict=True):
            classes[mask] = placed.label + 1
            annotations.append(coco_annotation(placed, mask, id=len(annotations) + 1, image_id=index + 1))
        if layout == 'ade':
            write_png(root / 'ade/annotations' / ade_split / name, classes)
    if layout == 'coco':
        content = dict(
            info=dict(description=TITLE, version='1'),
            licenses=[],
            images=images,
            annotations=annotations,
            categories=[dict(id=i, name=name, supercategory='digit') for i, name in enumerate(CLASSES, 1)],
        )
        write_text(root / f'coco/annotations/instances_{split}.json', compact_json(content) + '\n')


def make_digit_scenes(root: str | Path, seed: int = 0, counts: Mapping[str, tuple[int, int]] = COUNTS) -> Path:
    """Writes images of digits into a folder; the same arguments give the same bytes. A folder of them is kept.

    Args:
        root: The folder to make, which is returned.
        seed: Seed of all images, at least 0.
        counts: Numbers of (training, validation) images of each layout; others are left out.

    Raises:
        FileExistsError: If the folder has anything else in it.
    """
    root = Path(root).resolve()
    manifest, arguments = root / 'manifest.json', compact_json(dict(title=TITLE, seed=seed, counts=dict(counts))) + '\n'
    if manifest.is_file() and manifest.read_text() == arguments:
        print(f'{root} is complete already')
        return root
    check_empty(root)
    for layout, pair in counts.items():
        for split, count in zip(SPLITS, pair, strict=True):
            _write_layout(root, seed, layout, split, count)
            print(f'{layout}/{split}: {count} images')
    write_text(manifest, arguments)  # the last file: a folder without it is incomplete
    print(f'{root} is complete')
    return root
