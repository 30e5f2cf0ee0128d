"""Scenes composed of small pictures of objects, in the layouts of ImageNet, ADE20K and COCO.

A :class:`Source` gives the pictures: handwritten digits (:mod:`.digit_scenes`) or garments (:mod:`.garment_scenes`).
:func:`make_scenes` enlarges them, pastes them in random sizes and colours on random backgrounds, and writes::

    root/imagenet/{train,val}/<class>/<name>.png             one object per image, one folder per class
    root/ade/images/{training,validation}/<name>.png         scenes of several objects
    root/ade/annotations/{training,validation}/<name>.png    class of every pixel: 0 background, 1..10 the classes
    root/coco/{train,val}/<name>.png                         scenes of several objects
    root/coco/annotations/instances_{train,val}.json         COCO instances, category 1..10
    root/manifest.json                                       arguments, and size, SHA-256 and scans of every file

A picture is called a scan here. Scans for training and for validation differ; all layouts use the same split.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from numbers import Integral
from pathlib import Path

import cv2
import numpy as np

SPLITS = ('train', 'val')
FORMAT_VERSION = 1
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
        format: Name of the format in the manifest.
        classes: Names of the classes; class ``i`` has the index ``i`` in ImageNet's layout and ``i + 1`` in the others.
        load_pools: Gives the pool of ``'train'`` and of ``'val'`` for a seed.
    """

    noun: str
    title: str
    format: str
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
    """Paint a dark background: one colour or a gradient, with or without texture.

    Args:
        shape: Height and width in pixels.
        rng: Random number generator.

    Returns:
        RGB image of shape (H, W, 3), float32 0..255.
    """
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
    """Pick a random colour that is much brighter than a patch of background.

    Args:
        patch: Background, RGB 0..255 of shape (H, W, 3).
        rng: Random number generator.

    Returns:
        RGB colour of shape (3,), float32 0..255. Its luminance is at least ``MIN_CONTRAST`` above 95 % of the patch;
        if no drawn colour is that bright, it is white.
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


def compose_scene(pool: Pool, spec: SceneSpec, rng: np.random.Generator, label: int | None = None) -> Scene:
    """Draw one scene.

    Args:
        pool: Scans to draw from.
        spec: Ranges of canvas, number and size of the objects.
        rng: Random number generator.
        label: The class for the whole scene; None draws random classes.

    Returns:
        The scene, with at least ``spec.objects[0]`` objects. At least ``MIN_VISIBLE_SHARE`` of each object is visible.
    """
    objects: list[_Object] = []
    while len(objects) < spec.objects[0]:
        height, width = (int(side) for side in rng.integers(spec.canvas[0], spec.canvas[1] + 1, 2))
        count = rng.integers(spec.objects[0], spec.objects[1] + 1)
        labels = rng.integers(0, len(pool.ids_by_class), count) if label is None else [label] * count
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


def draw_scene(pools: dict[str, Pool], seed: int, layout: str, split: str, index: int) -> Scene:
    """Draw the image that :func:`make_scenes` writes at a position of a layout and split.

    It depends only on these arguments: larger data sets begin with the images of smaller ones.

    Args:
        pools: The pools of a source for ``seed``.
        seed: Seed of the data set.
        layout: ``'imagenet'``, ``'ade'`` or ``'coco'``.
        split: ``'train'`` or ``'val'``.
        index: Position of the image, from 0.

    Returns:
        The scene. In the layout ``'imagenet'`` it has one object, of class ``index %`` number of classes.
    """
    rng = np.random.default_rng([seed, STREAMS[layout, split], index])
    label = index % len(pools[split].ids_by_class) if layout == 'imagenet' else None
    return compose_scene(pools[split], SPECS[layout], rng, label)


# --- encoding ---


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


def _encode_png(image: np.ndarray) -> bytes:
    """PNG of an RGB image (H, W, 3) or a single channel (H, W), both uint8."""
    ok, data = cv2.imencode('.png', image[..., ::-1] if image.ndim == 3 else image)
    if not ok:
        raise OSError(f'OpenCV could not encode an image of shape {image.shape} as PNG')
    return data.tobytes()


def _encode_json(value: object) -> bytes:
    return (json.dumps(value, separators=(',', ':')) + '\n').encode()


# --- writing ---


def _write_bytes(path: Path, data: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)


class _Writer:
    """Writes files into a folder and records the manifest's entry for each."""

    def __init__(self, folder: Path, source: Source):
        self.folder, self.source = folder, source
        self.files: dict[str, dict] = {}

    def write(self, name: str, data: bytes, scene: Scene | None = None) -> None:
        _write_bytes(self.folder / name, data)
        entry = {'size': len(data), 'sha256': hashlib.sha256(data).hexdigest()}
        if scene is not None:
            entry['scan_ids'] = scene.scan_ids.tolist()
        self.files[name] = entry


def _write_imagenet(writer: _Writer, split: str, scenes: Iterator[Scene]) -> None:
    for index, scene in enumerate(scenes):
        name = f'imagenet/{split}/{writer.source.classes[scene.labels[0]]}/{split}_{index:06d}.png'
        writer.write(name, _encode_png(scene.image), scene)


def _write_ade(writer: _Writer, split: str, scenes: Iterator[Scene]) -> None:
    for index, scene in enumerate(scenes):
        name = f'{ADE_SPLITS[split]}/{split}_{index:06d}.png'
        writer.write(f'ade/images/{name}', _encode_png(scene.image), scene)
        writer.write(f'ade/annotations/{name}', _encode_png(segmentation_map(scene)), scene)


def _write_coco(writer: _Writer, split: str, scenes: Iterator[Scene]) -> None:
    images: list[dict] = []
    annotations: list[dict] = []
    for index, scene in enumerate(scenes):
        name = f'{split}_{index:06d}.png'
        height, width = scene.image.shape[:2]
        writer.write(f'coco/{split}/{name}', _encode_png(scene.image), scene)
        images.append({'id': index + 1, 'file_name': name, 'height': height, 'width': width})
        annotations += coco_annotations(scene, image_id=index + 1, first_id=len(annotations) + 1)
    source = writer.source
    content = {
        'info': {'description': source.title, 'version': str(FORMAT_VERSION)},
        'licenses': [],
        'images': images,
        'annotations': annotations,
        'categories': [
            {'id': i + 1, 'name': name, 'supercategory': source.noun} for i, name in enumerate(source.classes)
        ],
    }
    writer.write(f'coco/annotations/instances_{split}.json', _encode_json(content))


_WRITERS = {'imagenet': _write_imagenet, 'ade': _write_ade, 'coco': _write_coco}


# --- arguments ---


@dataclass(frozen=True)
class Request:
    """What is to be written.

    Attributes:
        seed: Seed of all images.
        counts: Numbers of (training, validation) images of each layout; others are left out.
        arguments: The arguments in the manifest, which tell data sets apart.
    """

    seed: int
    counts: Mapping[str, tuple[int, int]]
    arguments: Mapping[str, object]

    def count(self, layout: str, split: str) -> int:
        return self.counts[layout][SPLITS.index(split)]


def checked_int(name: str, value: object, least: int) -> int:
    """An integer.

    Raises:
        ValueError: If the value is no integer of at least ``least``; names the argument.
    """
    if isinstance(value, bool) or not isinstance(value, Integral) or value < least:
        raise ValueError(f'{name} = {value!r}: must be an integer >= {least}')
    return int(value)


def checked_pair(name: str, value: object, least: int) -> tuple[int, int]:
    """Two integers, for training and validation.

    Raises:
        ValueError: If the value is no pair of integers of at least ``least``; names the argument.
    """
    if not isinstance(value, (tuple, list)) or len(value) != 2:
        raise ValueError(f'{name} = {value!r}: must be a pair of integers >= {least}, (train, val)')
    train, val = (checked_int(f'{name} ({which})', v, least) for which, v in zip(SPLITS, value, strict=True))
    return train, val


# --- the folder ---


def _read_manifest(root: Path, source: Source) -> dict | None:
    """The manifest of a folder; None if it is missing, damaged or of another source."""
    try:
        manifest = json.loads((root / MANIFEST).read_bytes())
    except (OSError, ValueError):
        return None
    ours = isinstance(manifest, dict) and manifest.get('format') == source.format
    return manifest if ours and isinstance(manifest.get('files'), dict) else None


def _made_by(manifest: dict, request: Request) -> bool:
    return manifest.get('version') == FORMAT_VERSION and manifest.get('arguments') == request.arguments


def has_scenes(root: Path, source: Source, request: Request) -> bool:
    """True if a folder has all files of a request, each of its size; contents are not read."""
    manifest = _read_manifest(root, source)
    if manifest is None or not _made_by(manifest, request):
        return False
    sizes = {root / name: entry['size'] for name, entry in manifest['files'].items()}
    return all(path.is_file() and path.stat().st_size == size for path, size in sizes.items())


def _check_replaceable(root: Path, source: Source, request: Request, overwrite: bool) -> None:
    """Refuses a folder that has anything else than a data set that may be replaced.

    Raises:
        ValueError: If it has other files, or a data set of other arguments and ``overwrite`` is False.
    """
    if not root.exists():
        return
    if not root.is_dir():
        raise ValueError(f"root = '{root}': must be a folder, but a file is there; choose another folder")
    manifest = _read_manifest(root, source)
    ours = {MANIFEST, *manifest['files']} if manifest else set()
    others = (path.relative_to(root).as_posix() for path in root.rglob('*') if path.is_symlink() or not path.is_dir())
    if foreign := next((name for name in others if name not in ours), None):
        raise ValueError(
            f"root = '{root}': must be new, empty or the folder of an earlier data set, but it holds {foreign}, "
            'which this converter did not write; choose another folder or move that file away'
        )
    if manifest and not _made_by(manifest, request) and not overwrite:
        raise ValueError(
            f"root = '{root}': holds a data set made with other arguments ({manifest.get('arguments')}, format version "
            f'{manifest.get("version")}); requested are {dict(request.arguments)}, format version {FORMAT_VERSION}; '
            'choose another folder, or replace it with --overwrite (overwrite=True)'
        )


def _write_data_set(folder: Path, source: Source, request: Request, log: Log) -> None:
    pools = source.load_pools(request.seed)
    writer = _Writer(folder, source)
    for layout, split in ((layout, split) for layout in request.counts for split in SPLITS):
        start, count = time.perf_counter(), request.count(layout, split)
        scenes = (draw_scene(pools, request.seed, layout, split, index) for index in range(count))
        _WRITERS[layout](writer, split, scenes)
        log(f'{layout}/{split}: {count} images in {time.perf_counter() - start:.1f} s')
    manifest = {
        'format': source.format,
        'version': FORMAT_VERSION,
        'arguments': request.arguments,
        'files': writer.files,
    }
    _write_bytes(folder / MANIFEST, _encode_json(manifest))


def make_scenes(
    root: str | os.PathLike, source: Source, request: Request, overwrite: bool = False, log: Log = print
) -> Path:
    """Write scenes into a folder.

    The same request gives the same bytes. The folder is written under a temporary name and renamed at the end. A
    complete folder is kept, a damaged one is made again.

    Args:
        root: The folder to make.
        source: What the scenes show.
        request: How many images of which layouts.
        overwrite: If True, a data set made with other arguments is replaced.
        log: Called with each line of progress.

    Returns:
        The folder, with links resolved.

    Raises:
        ValueError: If the folder has files that this function does not write, or if it has a data set made with other
            arguments and ``overwrite`` is False.
    """
    # A link to a folder stays a link: its target is replaced.
    root = Path(root).resolve()
    if has_scenes(root, source, request):
        log(f'{root} is complete already')
        return root
    _check_replaceable(root, source, request, overwrite)
    partial = root.with_name(f'.{root.name}.{os.getpid()}.partial')
    try:
        _write_data_set(partial, source, request, log)
        if root.exists():
            log(f'replacing {root}')
            shutil.rmtree(root)
        partial.rename(root)
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    log(f'{root} is complete')
    return root
