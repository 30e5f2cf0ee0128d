"""Reads the image size of a config."""

from collections.abc import Mapping, Sequence
from math import ceil
from typing import NamedTuple

from mmengine.config import Config

# Where a transform has the size that it gives. mmcv's transforms have the width first, torchvision's the height.
SIZES = {
    'Resize': ('scale', -1),
    'CenterCrop': ('crop_size', -1),
    'Pad': ('size', -1),
    'torchvision/Resize': ('size', 1),
    'torchvision/CenterCrop': ('size', 1),
}


class ImageSize(NamedTuple):
    """Height and width in pixels, the setting they come from, and the number of channels."""

    height: int
    width: int
    source: str
    channels: int = 3

    @property
    def chw(self) -> tuple[int, int, int]:
        return self.channels, self.height, self.width

    def __str__(self) -> str:
        return f'{self.height}x{self.width} ({self.source})'


def read_image_size(cfg: Config, shape: Sequence[int] | None = None) -> ImageSize:
    """The requested image size (height and width, or one number for both), or the first that the config has.

    Raises:
        ValueError: If ``shape`` is invalid, or if the config has no size.
    """
    if shape is not None and (len(shape) not in (1, 2) or min(shape) < 1):
        raise ValueError(f'--shape {" ".join(map(str, shape))}: expected height and width, or one number for both')
    preprocessor, backbone = (cfg.model.get(part) or {} for part in ('data_preprocessor', 'backbone'))
    pipeline = (cfg.get('test_dataloader') or {}).get('dataset', {}).get('pipeline', ())
    tested = [size for size in map(_size_after, pipeline) if size][-1:]
    divisor = preprocessor.get('pad_size_divisor', 1)
    padded = f', padded to multiples of {divisor}' if divisor > 1 else ''
    largest = [ceil(side / divisor) * divisor for size in tested for side in size]
    found = {
        '--shape': shape,
        'model.data_preprocessor.size': preprocessor.get('size'),
        f'the largest of the test pipeline{padded}': largest,
        'model.backbone.img_size': _pair(backbone.get('img_size') or ()),
    }
    for source, size in found.items():
        if size:
            return ImageSize(size[0], size[-1], source, backbone.get('in_channels', 3))
    raise ValueError(f'{cfg.filename}: the config has no image size; set it with --shape HEIGHT WIDTH')


def _pair(size: int | Sequence[int]) -> tuple[int, ...]:
    return (size, size) if isinstance(size, int) else tuple(size)


def _size_after(step: Mapping) -> tuple[int, ...] | None:
    """Height and width that a transform gives; None if it depends on the image, or changes none."""
    key, order = SIZES.get(step['type'], ('', 1))
    size = step.get(key)
    return _pair(size)[::order] if size else None
