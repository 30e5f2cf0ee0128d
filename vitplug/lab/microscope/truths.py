"""Ground truth: what the data sets of a config say of images that they list."""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from mmengine.config import Config
from mmengine.dataset import BaseDataset
from mmengine.registry import DATASETS, init_default_scope

from vitplug.config.parts import loader_leaves
from vitplug.lab.microscope.places import HeldImage, ImagePlace
from vitplug.runs.checks.data import check_split

#: Where images are looked for, in this order. Training sets may be large, and show nothing of a model.
SPLITS = ('test', 'val')


class Listed(NamedTuple):
    """An image in a data set.

    Attributes:
        dataset: The data set.
        info: What it says of the image.
    """

    dataset: BaseDataset
    info: dict


def find_listed(cfg: Config, paths: Sequence[ImagePlace]) -> dict[ImagePlace, Listed]:
    """The images that the data of a test or a validation list.

    Args:
        cfg: Config of the training.
        paths: Image files, or images of data sets.

    Returns:
        By image; those that no data set lists are left out, and so are data that are not on this machine.
    """
    init_default_scope(cfg.default_scope)
    wanted = {path.resolve(): path for path in paths if isinstance(path, Path)}
    listed: dict[ImagePlace, Listed] = {
        held: Listed(held.dataset, held.info) for held in paths if isinstance(held, HeldImage)
    }
    for split in SPLITS:
        if len(listed) == len(paths) or not cfg.get(f'{split}_dataloader'):
            continue
        try:
            check_split(cfg, split)
        except (ValueError, OSError):
            continue
        for _, settings in loader_leaves(cfg, split):
            dataset = DATASETS.build(dict(settings))
            for index in range(len(dataset)):
                info = dataset.get_data_info(index)
                path = wanted.get(Path(info.get('img_path') or '.').resolve())
                if path:
                    listed.setdefault(path, Listed(dataset, info))
    return listed
