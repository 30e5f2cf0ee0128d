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
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import cv2
import numpy as np

from .converting import check_empty

SPLITS = ('train', 'val')
MANIFEST = 'manifest.json'
MAX_BOX_OVERLAP = 0.15
MIN_VISIBLE_SHARE = 0.75
# Objects are brighter than the background: with both signs of contrast, small models would need far more steps.
MAX_BACKGROUND = 120
MIN_CONTRAST = 90
LUMINANCE = np.array([0.299, 0.587, 0.114], np.float32)

# Folders of the images of each layout.
FOLDERS = {'imagenet': 'imagenet/{split}/{label}', 'ade': 'ade/images/{ade_split}', 'coco': 'coco/{split}'}
ADE_SPLITS = {'train': 'training', 'val': 'validation'}
# Each kind of random draw has its own stream number, so that no two kinds share random numbers. Stream 0 is for splits.
SPLIT_STREAM = 0
STREAMS = {place: number for number, place in enumerate(itertools.product(FOLDERS, SPLITS), 1)}


@dataclass(frozen=True)
class Source:
    """The objects of the scenes.

    Attributes:
        noun: Name of one object.
        title: Description of the data set in COCO's annotations.
        classes: Names of the classes; class ``i`` has the index ``i`` in ImageNet's layout and ``i + 1`` in the others.
        pools: For each split the scans, ``(N, h, w)``, and for each class the row numbers of its scans.
        render: Draws a scan so that it fits into a box of a height and width: opacity of shape (h, w), float32 0..1,
            and the share of the object's colour in each pixel, float32 of shape (h, w).
    """

    noun: str
    title: str
    classes: tuple[str, ...]
    pools: Mapping[str, tuple[np.ndarray, Sequence[np.ndarray]]]
    render: Callable[[np.ndarray, int, int], tuple[np.ndarray, np.ndarray]]


def occupied(pixels: np.ndarray) -> tuple[slice, slice]:
    """Rows and columns of the box around the pixels ``(H, W)`` that are not 0."""
    lines = (np.flatnonzero(pixels.any(axis=axis)) for axis in (1, 0))
    return tuple(slice(int(line[0]), int(line[-1]) + 1) for line in lines)


# --- drawing ---


@dataclass(frozen=True)
class SceneSpec:
    """Ranges of the random values of a scene, both ends included; lengths in pixels."""

    canvas: tuple[int, int]  # sides of the image
    objects: tuple[int, int]  # number of objects
    size: tuple[int, int]  # height of an object
    max_fill: float  # largest height of an object, as a share of the shorter side of the image
    jitter: float  # largest distance of an object from the centre, from 0 to 1 at the border


SEVERAL = SceneSpec(canvas=(96, 160), objects=(3, 7), size=(28, 56), max_fill=0.45, jitter=1.0)
SINGLE = SceneSpec(canvas=(32, 48), objects=(1, 1), size=(20, 40), max_fill=0.9, jitter=0.6)


@dataclass(frozen=True)
class Scene:
    """An image of N objects with its ground truth."""

    image: np.ndarray  # RGB, uint8 (H, W, 3)
    masks: np.ndarray  # visible part of every object, bool (N, H, W); masks do not overlap
    labels: np.ndarray  # classes, (N,)
    scan_ids: np.ndarray  # row numbers of the scans in the split's pool, (N,)


@dataclass(frozen=True)
class Placed:
    """An object in an image: opacity 0..1 and shade of shape (h, w), its upper left pixel at (``top``, ``left``)."""

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

    def box_overlap(self, other: Placed) -> float:
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


def visible_masks(objects: Sequence[Placed], shape: tuple[int, int]) -> np.ndarray:
    """Masks of shape (N, H, W) of the visible parts of objects that are drawn one after another."""
    masks = np.zeros((len(objects), *shape), bool)
    for i, placed in enumerate(objects):
        masks[i] = placed.mask(shape)
        masks[:i] &= ~masks[i]
    return masks


def _is_crowded(objects: Sequence[Placed], shape: tuple[int, int]) -> bool:
    """True if the last object covers too much of the others."""
    *others, last = objects
    if any(last.box_overlap(other) > MAX_BOX_OVERLAP for other in others):
        return True
    # Several small overlaps add up: enough of each object must stay visible.
    seen = visible_masks(objects, shape).sum(axis=(1, 2))
    whole = np.array([placed.mask(shape).sum() for placed in objects])
    return bool((seen < MIN_VISIBLE_SHARE * whole).any())


def lay_out(
    source: Source, split: str, labels: Sequence[int], shape: tuple[int, int], spec: SceneSpec, rng: np.random.Generator
) -> list[Placed]:
    """Places objects one after another; skips an object that does not fit."""
    objects: list[Placed] = []
    scans, ids_by_class = source.pools[split]
    max_size = max(spec.size[0], min(spec.size[1], spec.max_fill * min(shape)))
    for label in labels:
        # Each try is smaller, until the object fits into the free space.
        for limit in np.linspace(max_size, spec.size[0], 30):
            scan_id = int(rng.choice(ids_by_class[label]))
            size = rng.uniform(spec.size[0], limit)
            opacity, shade = source.render(scans[scan_id], round(size), round(size * rng.uniform(0.85, 1.2)))
            free = np.subtract(shape, opacity.shape)
            if free.min() < 0:
                continue
            top, left = np.rint(free / 2 * (1 + spec.jitter * rng.uniform(-1, 1, 2))).astype(int)
            placed = Placed(int(label), scan_id, opacity, shade, int(top), int(left))
            if not _is_crowded([*objects, placed], shape):
                objects.append(placed)
                break
    return objects


def draw_scene(source: Source, seed: int, layout: str, split: str, index: int) -> Scene:
    """Draws the image that :func:`make_scenes` writes at a position of a layout and split.

    It depends only on these arguments: larger data sets begin with the images of smaller ones. In the layout
    ``'imagenet'`` it has one object, of class ``index %`` number of classes.
    """
    rng = np.random.default_rng([seed, STREAMS[layout, split], index])
    spec = SINGLE if layout == 'imagenet' else SEVERAL
    num_classes, objects = len(source.classes), []
    while len(objects) < spec.objects[0]:
        height, width = (int(side) for side in rng.integers(spec.canvas[0], spec.canvas[1] + 1, 2))
        count = rng.integers(spec.objects[0], spec.objects[1] + 1)
        labels = [index % num_classes] if layout == 'imagenet' else rng.integers(0, num_classes, count)
        objects = lay_out(source, split, labels, (height, width), spec, rng)
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


def encode_rle(mask: np.ndarray) -> dict:
    """Encodes a bool mask of shape (H, W) as COCO's uncompressed run-length encoding: by columns, zeros first."""
    flat = mask.ravel(order='F').astype(np.int8)
    changes = np.flatnonzero(np.diff(flat, prepend=0))
    counts = np.diff(np.concatenate([[0], changes, [flat.size]]))
    return {'size': list(mask.shape), 'counts': counts.tolist()}


def coco_annotation(mask: np.ndarray, label: int, scan_id: int, **ids: int) -> dict:
    """COCO's annotation of an object, with the additional key ``scan_id``."""
    rows, cols = occupied(mask)
    return dict(
        **ids,
        category_id=int(label) + 1,
        segmentation=encode_rle(mask),
        area=int(mask.sum()),
        bbox=[cols.start, rows.start, cols.stop - cols.start, rows.stop - rows.start],
        iscrowd=0,
        scan_id=int(scan_id),
    )


def _write(path: Path, content: np.ndarray | dict) -> None:
    """Writes uint8, of an RGB image (H, W, 3) or one channel (H, W), as PNG by OpenCV; else JSON."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if isinstance(content, dict):
        path.write_text(json.dumps(content, separators=(',', ':')) + '\n')
    elif not cv2.imwrite(str(path), content[..., ::-1] if content.ndim == 3 else content):
        raise OSError(f'{path} cannot be written')


def _write_layout(root: Path, source: Source, layout: str, split: str, scenes: Iterable[Scene]) -> None:
    """Writes the images and the ground truth of a split."""
    images: list[dict] = []
    annotations: list[dict] = []
    for index, scene in enumerate(scenes):
        name, label, ade_split = f'{split}_{index:06d}.png', source.classes[scene.labels[0]], ADE_SPLITS[split]
        _write(root / FOLDERS[layout].format(split=split, label=label, ade_split=ade_split) / name, scene.image)
        if layout == 'ade':
            classes = ((scene.labels + 1)[:, None, None] * scene.masks).sum(axis=0)
            _write(root / 'ade/annotations' / ade_split / name, classes.astype(np.uint8))
        elif layout == 'coco':
            height, width = scene.image.shape[:2]
            images.append({'id': index + 1, 'file_name': name, 'height': height, 'width': width})
            for each in zip(scene.masks, scene.labels, scene.scan_ids, strict=True):
                annotations.append(coco_annotation(*each, id=len(annotations) + 1, image_id=index + 1))
    if layout == 'coco':
        names = enumerate(source.classes, 1)
        content = {
            'info': {'description': source.title, 'version': '1'},
            'licenses': [],
            'images': images,
            'annotations': annotations,
            'categories': [{'id': i, 'name': name, 'supercategory': source.noun} for i, name in names],
        }
        _write(root / f'coco/annotations/instances_{split}.json', content)


def make_scenes(root: str | Path, source: Source, seed: int, counts: Mapping[str, tuple[int, int]]) -> Path:
    """Writes scenes into a folder; the same arguments give the same bytes. A folder with these arguments is kept.

    Args:
        root: The folder to make, which is returned.
        source: The objects.
        seed: Seed of all images, at least 0.
        counts: Numbers of (training, validation) images of each layout; others are left out.

    Raises:
        FileExistsError: If the folder has anything else in it.
    """
    root = Path(root).resolve()
    manifest = dict(title=source.title, seed=seed, counts={layout: list(pair) for layout, pair in counts.items()})
    if (root / MANIFEST).is_file() and json.loads((root / MANIFEST).read_text()) == manifest:
        print(f'{root} is complete already')
        return root
    check_empty(root)
    for layout, pair in counts.items():
        for split, count in zip(SPLITS, pair, strict=True):
            scenes = (draw_scene(source, seed, layout, split, index) for index in range(count))
            _write_layout(root, source, layout, split, scenes)
            print(f'{layout}/{split}: {count} images')
    _write(root / MANIFEST, manifest)  # the last file: a folder without it is incomplete
    print(f'{root} is complete')
    return root
