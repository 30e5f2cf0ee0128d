"""Steps of a config's schedule, and the images that its loader must give."""

from collections.abc import Mapping
from dataclasses import dataclass
from math import ceil

from mmengine.config import Config

# Images of an epoch: ImageNet-1k, and COCO train2017 without images that have no box.
IMAGES = {'ImageNet': 1_281_167, 'CocoDataset': 117_266, 'ADE20KDataset': 20_210, 'CIFAR10': 50_000, 'CIFAR100': 50_000}
# The annotation file that makes a class of any data that data set.
FILES = {'CocoDataset': 'instances_train2017.json'}


@dataclass(frozen=True)
class Schedule:
    """How long a config trains.

    Args:
        steps: Number of steps.
        source: Where the number is from.
    """

    steps: int
    source: str


def read_schedule(cfg: Config, total_batch: int, images: int | None = None) -> Schedule:
    """The steps of a config's training.

    Args:
        cfg: The config.
        total_batch: Images of a step, of all processes together.
        images: Images of an epoch; None for the known size of the dataset.

    Raises:
        ValueError: If the config has no schedule, or trains by epochs of a dataset of unknown size.
    """
    loop = cfg.get('train_cfg') or {}
    if loop.get('max_iters'):
        return Schedule(loop.max_iters, f'{loop.max_iters:,} iterations, as the config says for any number of GPUs')
    if not loop.get('max_epochs'):
        raise ValueError(f'{cfg.filename}: neither max_iters nor max_epochs in train_cfg: name a config of a training')
    try:
        images = images or _images(cfg.train_dataloader.dataset)
    except KeyError as error:
        raise ValueError(
            f'{cfg.filename}: the number of images of {error.args[0]} is not known: give it by --images NUMBER'
        ) from error
    steps = ceil(images / total_batch) * loop.max_epochs
    return Schedule(steps, f'{loop.max_epochs} epochs of {images:,} images in batches of {total_batch}')


def _images(dataset: Mapping) -> int:
    """Images of an epoch of a data set, of those in a wrapper together.

    Raises:
        KeyError: With the type of a data set whose images are not known.
    """
    kind = str(dataset.get('type', '')).rpartition('.')[2]
    if 'datasets' in dataset:
        return sum(map(_images, dataset['datasets']))
    if 'dataset' in dataset and kind != 'ClassBalancedDataset':  # which repeats images by how rare their classes are
        return dataset.get('times', 1) * _images(dataset['dataset'])
    if not str(dataset.get('ann_file', '')).endswith(FILES.get(kind, '')):
        raise KeyError(kind)
    return IMAGES[kind]
