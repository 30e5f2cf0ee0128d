"""Scenes composed of small pictures of objects, in the layouts of ImageNet, ADE20K and COCO.

A :class:`Source` gives the pictures: handwritten digits (:mod:`.digit_scenes`) or garments (:mod:`.garment_scenes`).
:func:`make_scenes` enlarges them, pastes them in random sizes and colours on random backgrounds, and writes::

    root/imagenet/{train,val}/<class>/<name>.png             one object per image, one folder per class
    root/ade/images/{training,validation}/<name>.png         scenes of several objects
    root/ade/annotations/{training,validation}/<name>.png    class of every pixel: 0 background, 1..10 the classes
    root/coco/{train,val}/<name>.png                         scenes of several objects
    root/coco/annotations/instances_{train,val}.json         COCO instances, category 1..10
    root/manifest.json                                       the arguments

A picture is called a scan here. Scans for training and for validation differ; all layouts use the same split.
"""

from __future__ import annotations

import itertools
import json
import os
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import cv2
import numpy as np

SPLITS = ('train', 'val')
MANIFEST = 'manifest.json'
MAX_BOX_OVERLAP = 0.15
MIN_VISIBLE_SHARE = 0.75
# Objects are brighter than the background: with both signs of contrast, small models would need far more steps.
MAX_BACKGROUND = 120
MIN_CONTRAST = 90
LUMINANCE = np.array([0.299, 0.587, 0.114], np.float32)

LAYOUTS = ('imagenet', 'ade', 'coco')
# Each kind of random draw has its own stream number, so that no two kinds share random numbers. Stream 0 is for splits.
SPLIT_STREAM = 0
STREAMS = {(layout, split): 1 + 2 * i + j for i, layout in enumerate(LAYOUTS) for j, split in enumerate(SPLITS)}
ADE_SPLITS = {'train': 'training', 'val': 'validation'}

Log = Callable[[str], object]


# --- scans ---


@dataclass(frozen=True)
class Pool:
    """The scans of one split.

    Attributes:
        images: Scans of shape (N, h, w).
        ids_by_class: For each class the row numbers in ``images`` that belong to this split.
        render: Draws a scan so that it fits into a box of a height and width: opacity of shape (h, w), float32 0..1,
            and the share of the object's colour in each pixel, float32 of shape (h, w). No border is empty.
    """

    images: np.ndarray
    ids_by_class: tuple[np.ndarray, ...]
    render: Callable[[np.ndarray, int, int], tuple[np.ndarray, np.ndarray]]


@dataclass(frozen=True)
class Source:
    """What the scenes show.

    Attributes:
        noun: What one object is called.
        title: Description of the data set in COCO's annotations.
        classes: Names of the classes; class ``i`` has the index ``i`` in ImageNet's layout and ``i + 1`` in the others.
        load_pools: Gives the pool of ``'train'`` and of ``'val'`` for a seed.
    """

    noun: str
    title: str
    classes: tuple[str, ...]
    load_pools: Callable[[int], dict[str, Pool]]


# --- drawing ---


@dataclass(frozen=True)
class SceneSpec:
    """Ranges for the random values of a scene, both ends included.

    Attributes:
        canvas: Sides of the image in pixels.
        objects: Number of objects.
        size: Height of an object in pixels.
        max_fill: Maximum height of an object as a share of the shorter side of the canvas.
        jitter: Maximum distance of an object from the centre, from 0 (at the centre) to 1 (at the border).
    """

    canvas: tuple[int, int]
    objects: tuple[int, int]
    size: tuple[int, int]
    max_fill: float
    jitter: float


SINGLE = SceneSpec(canvas=(32, 48), objects=(1, 1), size=(20, 40), max_fill=0.9, jitter=0.6)
SEVERAL = SceneSpec(canvas=(96, 160), objects=(3, 7), size=(28, 56), max_fill=0.45, jitter=1.0)
SPECS = {'imagenet': SINGLE, 'ade': SEVERAL, 'coco': SEVERAL}


@dataclass(frozen=True)
class Scene:
    """An image of N objects with its ground truth.

    Attributes:
        image: RGB image, uint8 of shape (H, W, 3).
        masks: Visible part of every object, bool of shape (N, H, W). Masks do not overlap.
        labels: The classes, integers of shape (N,).
        scan_ids: Row number of every object's scan in its pool, integers of shape (N,).
    """

    image: np.ndarray
    masks: np.ndarray
    labels: np.ndarray
    scan_ids: np.ndarray


@dataclass(frozen=True)
class _Object:
    """A placed object: opacity 0..1 and shade of shape (h, w), its upper left pixel at (``top``, ``left``)."""

    label: int
    scan_id: int
    opacity: np.ndarray
    shade: np.ndarray
    top: int
    left: int

    @property
    def window(self) -> tuple[slice, slice]:
        height, width = self.opacity.shape
        return slice(self.top, self.top + height), slice(self.left, self.left + width)

    def box_overlap(self, other: _Object) -> float:
        """Common area of the two boxes as a share of the smaller one."""
        sides = [min(a.stop, b.stop) - max(a.start, b.start) for a, b in zip(self.window, other.window, strict=True)]
        return max(sides[0], 0) * max(sides[1], 0) / min(self.opacity.size, other.opacity.size)

    def mask(self, shape: tuple[int, int]) -> np.ndarray:
        mask = np.zeros(shape, bool)
        mask[self.window] = self.opacity >= 0.5
        return mask


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


def _try_place(
    pool: Pool, label: int, shape: tuple[int, int], spec: SceneSpec, max_size: float, rng: np.random.Generator
) -> _Object | None:
    scan_id = int(rng.choice(pool.ids_by_class[label]))
    size = rng.uniform(spec.size[0], max_size)
    opacity, shade = pool.render(pool.images[scan_id], round(size), round(size * rng.uniform(0.85, 1.2)))
    free = np.subtract(shape, opacity.shape)
    if free.min() < 0:
        return None
    top, left = np.rint(free / 2 * (1 + spec.jitter * rng.uniform(-1, 1, 2))).astype(int)
    return _Object(label, scan_id, opacity, shade, int(top), int(left))


def visible_masks(objects: Sequence[_Object], shape: tuple[int, int]) -> np.ndarray:
    """Masks of shape (N, H, W) of the visible parts of objects that are drawn one after another."""
    masks = np.zeros((len(objects), *shape), bool)
    for i, placed in enumerate(objects):
        mask = placed.mask(shape)
        masks[:i] &= ~mask
        masks[i] = mask
    return masks


def _is_crowded(objects: Sequence[_Object], shape: tuple[int, int]) -> bool:
    """True if the last object covers too much of the others."""
    *others, last = objects
    if any(last.box_overlap(other) > MAX_BOX_OVERLAP for other in others):
        return True
    # Several small overlaps add up: enough of each object must stay visible.
    seen = visible_masks(objects, shape).sum(axis=(1, 2))
    whole = np.array([placed.mask(shape).sum() for placed in objects])
    return bool((seen < MIN_VISIBLE_SHARE * whole).any())


def _lay_out(
    pool: Pool, labels: Sequence[int], shape: tuple[int, int], spec: SceneSpec, rng: np.random.Generator
) -> list[_Object]:
    """Place objects one after another; skip an object that does not fit."""
    objects: list[_Object] = []
    max_size = max(spec.size[0], min(spec.size[1], spec.max_fill * min(shape)))
    for label in labels:
        # Each try is smaller, until the object fits into the free space.
        for limit in np.linspace(max_size, spec.size[0], 30):
            placed = _try_place(pool, int(label), shape, spec, limit, rng)
            if placed is not None and not _is_crowded([*objects, placed], shape):
                objects.append(placed)
                break
    return objects


def draw_scene(pools: dict[str, Pool], seed: int, layout: str, split: str, index: int) -> Scene:
    """Draw the image that :func:`make_scenes` writes at a position of a layout and split.

    It depends only on these arguments: larger data sets begin with the images of smaller ones. In the layout
    ``'imagenet'`` it has one object, of class ``index %`` number of classes.
    """
    rng = np.random.default_rng([seed, STREAMS[layout, split], index])
    pool, spec = pools[split], SPECS[layout]
    num_classes, objects = len(pool.ids_by_class), []
    while len(objects) < spec.objects[0]:
        height, width = (int(side) for side in rng.integers(spec.canvas[0], spec.canvas[1] + 1, 2))
        count = rng.integers(spec.objects[0], spec.objects[1] + 1)
        labels = [index % num_classes] if layout == 'imagenet' else rng.integers(0, num_classes, count)
        objects = _lay_out(pool, labels, (height, width), spec, rng)
    background = paint_background((height, width), rng)
    canvas = background.copy()
    for placed in objects:
        colour = pick_contrasting_colour(background[placed.window], rng) * placed.shade[..., None]
        canvas[placed.window] += placed.opacity[..., None] * (colour - canvas[placed.window])
    return Scene(
        image=np.rint(canvas).astype(np.uint8),
        masks=visible_masks(objects, (height, width)),
        labels=np.array([placed.label for placed in objects]),
        scan_ids=np.array([placed.scan_id for placed in objects]),
    )


# --- files ---


def segmentation_map(scene: Scene) -> np.ndarray:
    """Class of every pixel of a scene, uint8 of shape (H, W): 0 for background, then the classes from 1."""
    return ((scene.labels + 1)[:, None, None] * scene.masks).sum(axis=0).astype(np.uint8)


def encode_rle(mask: np.ndarray) -> dict:
    """Encode a bool mask of shape (H, W) as COCO's uncompressed run-length encoding: by columns, zeros first."""
    flat = mask.ravel(order='F').astype(np.int8)
    changes = np.flatnonzero(np.diff(flat, prepend=0))
    counts = np.diff(np.concatenate([[0], changes, [flat.size]]))
    return {'size': list(mask.shape), 'counts': counts.tolist()}


def coco_annotations(scene: Scene, image_id: int, first_id: int) -> list[dict]:
    """COCO annotations of a scene, with the additional key ``scan_id``, the number of the scan."""
    annotations = []
    for i, (mask, label, scan_id) in enumerate(zip(scene.masks, scene.labels, scene.scan_ids, strict=True)):
        rows, cols = np.flatnonzero(mask.any(axis=1)), np.flatnonzero(mask.any(axis=0))
        annotations.append(
            {
                'id': first_id + i,
                'image_id': image_id,
                'category_id': int(label) + 1,
                'segmentation': encode_rle(mask),
                'area': int(mask.sum()),
                'bbox': [int(v) for v in (cols[0], rows[0], cols[-1] - cols[0] + 1, rows[-1] - rows[0] + 1)],
                'iscrowd': 0,
                'scan_id': int(scan_id),
            }
        )
    return annotations


def _write_png(path: Path, image: np.ndarray) -> None:
    """Writes an RGB image (H, W, 3) or a single channel (H, W), both uint8."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if not cv2.imwrite(str(path), image[..., ::-1] if image.ndim == 3 else image):
        raise OSError(f'{path} cannot be written')


def _write_json(path: Path, value: object) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value, separators=(',', ':')) + '\n')


def _write_imagenet(folder: Path, split: str, source: Source, scenes: Iterator[Scene]) -> None:
    for index, scene in enumerate(scenes):
        name = f'{split}/{source.classes[scene.labels[0]]}/{split}_{index:06d}.png'
        _write_png(folder / 'imagenet' / name, scene.image)


def _write_ade(folder: Path, split: str, source: Source, scenes: Iterator[Scene]) -> None:
    for index, scene in enumerate(scenes):
        name = f'{ADE_SPLITS[split]}/{split}_{index:06d}.png'
        _write_png(folder / 'ade/images' / name, scene.image)
        _write_png(folder / 'ade/annotations' / name, segmentation_map(scene))


def _write_coco(folder: Path, split: str, source: Source, scenes: Iterator[Scene]) -> None:
    images: list[dict] = []
    annotations: list[dict] = []
    for index, scene in enumerate(scenes):
        name = f'{split}_{index:06d}.png'
        height, width = scene.image.shape[:2]
        _write_png(folder / 'coco' / split / name, scene.image)
        images.append({'id': index + 1, 'file_name': name, 'height': height, 'width': width})
        annotations += coco_annotations(scene, image_id=index + 1, first_id=len(annotations) + 1)
    categories = enumerate(source.classes, 1)
    content = {
        'info': {'description': source.title, 'version': '1'},
        'licenses': [],
        'images': images,
        'annotations': annotations,
        'categories': [{'id': i, 'name': name, 'supercategory': source.noun} for i, name in categories],
    }
    _write_json(folder / f'coco/annotations/instances_{split}.json', content)


_WRITERS = {'imagenet': _write_imagenet, 'ade': _write_ade, 'coco': _write_coco}


def make_scenes(
    root: str | os.PathLike, source: Source, seed: int, counts: Mapping[str, tuple[int, int]], log: Log = print
) -> Path:
    """Write scenes into a folder; the same arguments give the same bytes.

    The folder is written under a temporary name and renamed at the end. One with these arguments is kept.

    Args:
        root: The folder to make.
        source: What the scenes show.
        seed: Seed of all images, at least 0.
        counts: Numbers of (training, validation) images of each layout; others are left out.
        log: Called with each line of progress.

    Returns:
        The folder.

    Raises:
        ValueError: If the seed is negative, a split would be empty, or the folder has anything else in it.
    """
    root = Path(root).resolve()
    if seed < 0 or min(number for pair in counts.values() for number in pair) < 1:
        raise ValueError(f'seed {seed}, images (train, val) {dict(counts)}: expected a seed of 0 or more, and images')
    manifest = dict(title=source.title, seed=seed, counts={layout: list(pair) for layout, pair in counts.items()})
    if root.exists() and any(root.iterdir()):
        made = root / MANIFEST
        if made.is_file() and json.loads(made.read_text()) == manifest:
            log(f'{root} is complete already')
            return root
        raise ValueError(f'{root} has other files than those of {manifest}: choose another folder, or remove it')
    partial = root.with_name(f'.{root.name}.{os.getpid()}.partial')
    pools = source.load_pools(seed)
    try:
        for layout, split in itertools.product(counts, SPLITS):
            count = counts[layout][SPLITS.index(split)]
            scenes = (draw_scene(pools, seed, layout, split, index) for index in range(count))
            _WRITERS[layout](partial, split, source, scenes)
            log(f'{layout}/{split}: {count} images')
        _write_json(partial / MANIFEST, manifest)
        partial.rename(root)
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    log(f'{root} is complete')
    return root
