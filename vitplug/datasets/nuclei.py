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

from vitplug.files.folders import files_in

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
    parts = {split: [folder for folder in folders if split_of(folder.name) == split] for split in SPLITS}
    tables = {split: coco_of(part) for split, part in parts.items()}
    for split, table in tables.items():
        for folder in parts[split]:
            write_png(out / split / f'{folder.name}.png', read_image(only_image(folder), 'RGB'))
            masks = [read_image(path, 'L') > 0 for path in files_in(folder / 'masks', '.png')]
            write_png(out / 'maps' / split / f'{folder.name}.png', np.any(masks, axis=0).astype(np.uint8))
        (out / f'{split}.json').write_text(json.dumps(table) + '\n')
        print(f'{split}: {len(table["images"])} images, {len(table["annotations"])} nuclei in {out / split}')


def split_of(name: str) -> str:
    """The split of an image: ``'val'`` for one in five, by the SHA-256 of its name."""
    return SPLITS[int(hashlib.sha256(name.encode()).hexdigest(), 16) % ONE_IN == 0]


def only_image(folder: Path) -> Path:
    """The image of a folder; FileNotFoundError if there is not exactly one, with masks."""
    files, masks = (files_in(folder / name, '.png') for name in ('images', 'masks'))
    if len(files) != 1 or not masks:
        raise FileNotFoundError(f'{folder} has {len(files)} images and {len(masks)} masks: expected one with masks')
    return files[0]


def coco_of(folders: list[Path]) -> dict:
    """Images and annotations in COCO's format: boxes, areas and run-length encodings of masks."""
    from pycocotools import mask as coco  # comes with mmdet

    images: list[dict] = []
    annotations: list[dict] = []
    for number, folder in enumerate(folders, 1):
        height, width = read_image(only_image(folder)).shape[:2]
        images.append(dict(id=number, file_name=f'{folder.name}.png', width=width, height=height))
        for path in files_in(folder / 'masks', '.png'):
            mask = read_image(path, 'L') > 0
            if mask.shape != (height, width):
                raise ValueError(f'{path} has {mask.shape[1]} x {mask.shape[0]} pixels, its image {width} x {height}')
            runs = coco.encode(np.asfortranarray(mask, np.uint8))
            annotation = dict(
                id=len(annotations) + 1,
                image_id=number,
                category_id=1,
                iscrowd=0,
                bbox=coco.toBbox(runs).tolist(),
                area=int(coco.area(runs)),
                segmentation=dict(size=runs['size'], counts=runs['counts'].decode('ascii')),
            )
            annotations.append(annotation)
    return dict(images=images, annotations=annotations, categories=[{'id': 1, 'name': 'nucleus'}])
