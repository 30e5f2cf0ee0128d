"""The images of an analysis: chosen once, read as a test reads them."""

from pathlib import Path

import numpy as np
from mmengine.config import Config
from mmengine.registry import DATASETS, init_default_scope

from vitplug.config.parts import loader_leaves
from vitplug.files.folders import IMAGE_SUFFIXES, files_below
from vitplug.files.picture_sources import Source, Unreadable, read_pictures
from vitplug.runs.checks.data import check_data
from vitplug.runs.prediction import Predictor

from .loaded import Loaded, as_picture

SPLITS = ('val', 'test')


def find_images(cfg: Config, where: str | Path, num: int) -> list[Path]:
    """Evenly spaced images of a split or a folder: the same ones in every call.

    Args:
        cfg: Config of the training.
        where: ``'val'`` or ``'test'`` for that split of the config; otherwise an image file, or a folder with images at
            any depth.
        num: How many; all if there are fewer.

    Returns:
        Paths, in the order of the data set, or of their names.

    Raises:
        FileNotFoundError: If there is no such file or folder, or it has no images.
        ValueError: If ``num`` is below 1, the file is no image, or the split is missing or keeps no image files.
    """
    if num < 1:
        raise ValueError(f'--num {num}: expected at least 1')
    paths = _of_split(cfg, str(where)) if str(where) in SPLITS else _below(Path(where))
    chosen = np.linspace(0, len(paths) - 1, min(num, len(paths))).round().astype(int)
    return [paths[index] for index in chosen]


def _of_split(cfg: Config, split: str) -> list[Path]:
    """The images of a split of the config, checked as before a test."""
    if not cfg.get(f'{split}_dataloader'):
        raise ValueError(
            f'--images {split}: {cfg.filename} has no {split}_dataloader; name a folder of images, or one of '
            f'{", ".join(name for name in SPLITS if cfg.get(f"{name}_dataloader")) or "other configs"}'
        )
    check_data(cfg, (split,))
    init_default_scope(cfg.default_scope)
    paths = []
    for setting, settings in loader_leaves(cfg, split):
        dataset = DATASETS.build(dict(settings))
        files = [dataset.get_data_info(index).get('img_path') for index in range(len(dataset))]
        if None in files:
            raise ValueError(
                f'--images {split}: {setting} ({settings["type"]}) keeps images in memory, not in files: name a folder'
            )
        paths += map(Path, files)
    if not paths:
        raise ValueError(f'--images {split}: {split}_dataloader has no images')
    return paths


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


def load_image(predictor: Predictor, path: Path, max_pixels: int) -> Loaded:
    """Reads an image through the test pipeline of the predictor's config.

    Args:
        predictor: The model, with its pipeline.
        path: The image file.
        max_pixels: Larger images are refused.

    Raises:
        Unreadable: If it cannot be read, or the pipeline fails on it; says why.
    """
    [image] = read_pictures(Source(path, path.stem), predictor.read, max_pixels)
    try:
        batch = predictor.task.collate([image.pixels])
        before = batch['inputs'][0]
        inputs = predictor.model.data_preprocessor(batch, training=False)['inputs']
    except Exception as error:  # transforms of any kind
        raise Unreadable(f'{type(error).__name__}: {" ".join(str(error).split())}') from error
    return Loaded(path, inputs, as_picture(before, tuple(inputs.shape[-2:])))
