"""The images of an analysis: chosen once, read as a test reads them."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from mmengine.config import Config
from mmengine.registry import DATASETS, init_default_scope

from vitplug.config.parts import loader_leaves
from vitplug.files.folders import IMAGE_SUFFIXES, files_below
from vitplug.files.picture_sources import Unreadable, read_picture
from vitplug.runs.checks.data import check_data
from vitplug.runs.prediction import Predictor
from vitplug.statistics.images import evenly_spaced

from .loaded import Loaded, as_picture
from .places import HeldImage, ImagePlace

SPLITS = ('val', 'test')


def find_images(cfg: Config, where: str | Path, num: int) -> list[ImagePlace]:
    """Evenly spaced images of a split or a folder: the same ones in every call.

    Args:
        cfg: Config of the training.
        where: ``'val'`` or ``'test'`` for that split of the config; otherwise an image file, or a folder with images at
            any depth.
        num: How many; all if there are fewer.

    Returns:
        Paths, or images that the data set keeps in memory, in its order or that of their names.

    Raises:
        FileNotFoundError: If there is no such file or folder, or it has no images.
        ValueError: If ``num`` is below 1, the file is no image, or the split is missing or has no images.
    """
    if num < 1:
        raise ValueError(f'--num {num}: expected at least 1')
    paths: Sequence[ImagePlace] = _of_split(cfg, str(where)) if str(where) in SPLITS else _below(Path(where))
    return [paths[index] for index in evenly_spaced(len(paths), num)]


def _of_split(cfg: Config, split: str) -> list[ImagePlace]:
    """The images of a split of the config, checked as before a test."""
    if not cfg.get(f'{split}_dataloader'):
        raise ValueError(
            f'--images {split}: {cfg.filename} has no {split}_dataloader; name a folder of images, or one of '
            f'{", ".join(name for name in SPLITS if cfg.get(f"{name}_dataloader")) or "other configs"}'
        )
    check_data(cfg, (split,))
    init_default_scope(cfg.default_scope)
    places: list[ImagePlace] = []
    for setting, settings in loader_leaves(cfg, split):
        dataset = DATASETS.build(dict(settings))
        for index in range(len(dataset)):
            info = dataset.get_data_info(index)
            if info.get('img_path') is not None:
                places.append(Path(info['img_path']))
            elif info.get('img') is not None:
                places.append(HeldImage(f'{split} {len(places):05}', dataset, index))
            else:
                raise ValueError(
                    f'--images {split}: {setting} ({settings["type"]}) gives neither img_path nor img: name a folder'
                )
    if not places:
        raise ValueError(f'--images {split}: {split}_dataloader has no images')
    return places


def _below(path: Path) -> list[Path]:
    """An image, or all below a folder, in the order of their names."""
    if not path.exists():
        raise FileNotFoundError(f'--images: no such file or folder: {path}; or name a split, {" or ".join(SPLITS)}')
    if path.is_dir():
        files = (Path(folder, name) for folder, names in files_below(path) for name in names)
        images = sorted(file for file in files if file.suffix.lower() in IMAGE_SUFFIXES)
        if not images:
            raise FileNotFoundError(f'--images: {path} has no image in it, of {", ".join(IMAGE_SUFFIXES)}')
        return images
    if path.suffix.lower() not in IMAGE_SUFFIXES:
        raise ValueError(f'--images: {path} is no image, of {", ".join(IMAGE_SUFFIXES)}')
    return [path]


def read_image(predictor: Predictor, place: ImagePlace, max_pixels: int) -> np.ndarray:
    """The pixels of an image: of a file as the predictor reads it, of a data set as it has them.

    Raises:
        Unreadable: If the file cannot be read, or has more pixels; says why.
    """
    if isinstance(place, HeldImage):
        return place.pixels
    return read_picture(place, predictor.read, max_pixels)


def load_image(predictor: Predictor, place: ImagePlace, max_pixels: int) -> Loaded:
    """Reads an image through the test pipeline of the predictor's config.

    Args:
        predictor: The model, with its pipeline.
        place: The image.
        max_pixels: Larger images are refused.

    Raises:
        Unreadable: If it cannot be read, or the pipeline fails on it; says why.
    """
    pixels = read_image(predictor, place, max_pixels)
    try:
        batch = predictor.collate([pixels])
        before = batch['inputs'][0]
        inputs = predictor.model.data_preprocessor(batch, training=False)['inputs']
    except Exception as error:  # transforms of any kind
        raise Unreadable(f'{type(error).__name__}: {" ".join(str(error).split())}') from error
    if isinstance(place, HeldImage):
        before = before.flip(0)
    return Loaded(place, inputs, as_picture(before, tuple(inputs.shape[-2:])))
