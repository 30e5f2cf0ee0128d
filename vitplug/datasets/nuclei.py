"""Nuclei of the Data Science Bowl 2018 (BBBC038): from its folders of masks to COCO's format and label maps.

The training images of stage 1 come as one folder for each image, with one mask for each nucleus::

    stage1_train/IMAGE/images/IMAGE.png
    stage1_train/IMAGE/masks/*.png        0 outside of the nucleus

There is no public split, so each image is put into one by its name. The result::

    train/IMAGE.png   val/IMAGE.png
    train.json        val.json            boxes, and masks in run-length encoding
    maps/train/IMAGE.png   maps/val/IMAGE.png   label maps: 1 inside of any nucleus
"""

import hashlib
import json
from pathlib import Path

import numpy as np
from pycocotools import mask as coco

from vitplug.files.folders import files_in
from vitplug.files.whole import write_text

from .converting import check_empty, read_image, write_png

SPLITS = ('train', 'val')
# One image of so many is in ``val``.
ONE_IN = 5


def convert(source: Path, out: Path) -> None:
    """Writes the images and annotations of both splits from ``source/IMAGE`` to a new folder.

    Raises:
        FileNotFoundError: If no folder of an image is there, or one lacks its image or its masks.
        ValueError: If a mask has another size than its image.
        FileExistsError: If the result has files.
    """
    check_empty(out)
    folders = sorted(path.parent for path in source.glob('*/images'))
    if not folders:
        raise FileNotFoundError(f'{source}: expected folders IMAGE/images and IMAGE/masks, as stage1_train has them')
    for folder in folders:  # all are checked before anything is written
        read(folder)
    for split in SPLITS:
        table = dict(images=[], annotations=[], categories=[{'id': 1, 'name': 'nucleus'}])
        for number, folder in enumerate((one for one in folders if split_of(one.name) == split), 1):
            image, masks = read(folder)
            name, (height, width, _) = f'{folder.name}.png', image.shape
            table['images'].append(dict(id=number, file_name=name, width=width, height=height))
            for mask in masks:
                table['annotations'].append(annotation(mask, len(table['annotations']) + 1, number))
            write_png(out / split / name, image)
            write_png(out / 'maps' / split / name, np.any(masks, axis=0).astype(np.uint8))
        write_text(out / f'{split}.json', json.dumps(table) + '\n')
        print(f'{split}: {len(table["images"])} images, {len(table["annotations"])} nuclei in {out / split}')


def split_of(name: str) -> str:
    """The split of an image: ``'val'`` for one in five, by the SHA-256 of its name."""
    return SPLITS[int(hashlib.sha256(name.encode()).hexdigest(), 16) % ONE_IN == 0]


def read(folder: Path) -> tuple[np.ndarray, list[np.ndarray]]:
    """The image of a folder, uint8 (H, W, 3), and its masks, bool (H, W); errors are those of :func:`convert`."""
    files, masks = (files_in(folder / name, '.png') for name in ('images', 'masks'))
    if len(files) != 1 or not masks:
        raise FileNotFoundError(f'{folder} has {len(files)} images and {len(masks)} masks: expected one with masks')
    image, found = read_image(files[0], 'RGB'), [read_image(path, 'L') > 0 for path in masks]
    height, width, _ = image.shape
    for path, mask in zip(masks, found, strict=True):
        if mask.shape != (height, width):
            raise ValueError(f'{path} has {mask.shape[1]} x {mask.shape[0]} pixels, its image {width} x {height}')
    return image, found


def annotation(mask: np.ndarray, number: int, image: int) -> dict:
    """COCO's annotation of a nucleus: its box, area and mask in run-length encoding."""
    runs = coco.encode(np.asfortranarray(mask, np.uint8))
    return dict(
        id=number,
        image_id=image,
        category_id=1,
        iscrowd=0,
        bbox=coco.toBbox(runs).tolist(),
        area=int(coco.area(runs)),
        segmentation=dict(size=runs['size'], counts=runs['counts'].decode('ascii')),
    )
