"""The images of a probe: of the training data and the test data of a config, through the pipeline of a test."""

import copy
import hashlib
import os
from collections.abc import Mapping, Sequence

import numpy as np
from mmengine.config import Config
from mmengine.registry import DATASETS, init_default_scope
from torch import Tensor

from vitplug.analysis.study.loaded import as_picture
from vitplug.config.parts import loader_leaves, pipeline_of
from vitplug.statistics.images import evenly_spaced

SPLITS = ('train', 'test')


class Images:
    """Some images of a split, evenly spaced.

    No image is augmented: those of the training data, too, go through the test pipeline of the model's config.

    Args:
        cfg: The config that has the data.
        split: ``'train'`` or ``'test'``.
        number: How many; None for all.
        reader: The config whose test pipeline reads them, that of the model.

    Raises:
        ValueError: If there are none.
    """

    def __init__(self, cfg: Config, split: str, number: int | None, reader: Config):
        init_default_scope(cfg.default_scope)
        self.pipeline = copy.deepcopy(list(pipeline_of(reader.test_dataloader)[1]))
        self._sets = [
            DATASETS.build(dict(settings, pipeline=copy.deepcopy(self.pipeline), test_mode=True))
            for _, settings in loader_leaves(cfg, split)
        ]
        places = [(part, index) for part, dataset in enumerate(self._sets) for index in range(len(dataset))]
        if not places:
            raise ValueError(f'{split}_dataloader has no images')
        self._places = [places[index] for index in evenly_spaced(len(places), number or len(places))]

    def __len__(self) -> int:
        return len(self._places)

    def __getitem__(self, index: int) -> dict:
        """``inputs`` ``(C, H, W)`` and ``data_samples``, as the pipeline packs them."""
        part, position = self._places[index]
        return self._sets[part][position]

    def picture(self, index: int, pixels: Tensor) -> np.ndarray:
        """The pixels ``(3, H, W)`` of an image, as its item has them, as ``(H, W, 3)``, 8 bit, red first."""
        part, position = self._places[index]
        # Data sets keep images red first; files are read blue first.
        in_memory = not self._sets[part].get_data_info(position).get('img_path')
        return as_picture(pixels.flip(0) if in_memory else pixels, tuple(pixels.shape[-2:]))

    @property
    def metainfo(self) -> Mapping:
        """Names of the classes, and colours."""
        return self._sets[0].metainfo

    def names(self) -> list[str]:
        """The files, or hashes of images that are in memory."""
        return [_name(self._sets[part].get_data_info(index)) for part, index in self._places]

    def fingerprint(self) -> str:
        """A hash of names, sizes and times of all files, and of classes; changes if a file does."""
        digest = hashlib.sha256()
        for (part, index), name in zip(self._places, self.names(), strict=True):
            info = self._sets[part].get_data_info(index)
            files = [info[key] for key in ('img_path', 'seg_map_path') if info.get(key)]
            state = [f'{(stat := os.stat(file)).st_size} {stat.st_mtime_ns}' for file in files]
            digest.update(os.fsencode('\0'.join([name, str(info.get('gt_label')), *state, '\n'])))
        return digest.hexdigest()[:16]


def check_apart(train: Images, test: Images) -> None:
    """Checks that no test image is a training image.

    Raises:
        ValueError: If one is; names how many and one of them.
    """
    both = sorted(set(train.names()) & set(test.names()))
    if both:
        raise ValueError(
            f'{len(both)} images are in train_dataloader and in test_dataloader, such as {both[0]}: a probe that has '
            'learned from test images measures nothing; name other data'
        )


def class_names(images: Images) -> Sequence[str]:
    """Names of the classes.

    Raises:
        ValueError: If the data set knows none.
    """
    names = images.metainfo.get('classes')
    if not names:
        raise ValueError('train_dataloader.dataset: names no classes; set its metainfo=dict(classes=...)')
    return [str(name) for name in names]


def _name(info: Mapping) -> str:
    if info.get('img_path'):
        return os.path.realpath(info['img_path'])
    return hashlib.sha256(np.ascontiguousarray(info['img']).tobytes()).hexdigest()
