"""Reads the image size of a config."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import ceil

from mmengine.config import Config

MOST_PIXELS = 100_000
"""Longest side that costs are counted for."""


@dataclass(frozen=True)
class ImageSize:
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
    """The requested image size, or the size in the config.

    The first that the config has: the crop size of its data preprocessor, the largest image of its test pipeline, or
    the image size of its backbone.

    Args:
        cfg: The config.
        shape: Height and width, or one number for both.

    Raises:
        ValueError: If ``shape`` is invalid, or if the config has no size.
    """
    if shape is not None and (len(shape) not in (1, 2) or min(shape) < 1 or max(shape) > MOST_PIXELS):
        raise ValueError(
            f'--shape {" ".join(map(str, shape))}: expected height and width, or one number for both, of 1 to '
            f'{MOST_PIXELS:,} pixels'
        )
    asked = shape and ImageSize(shape[0], shape[-1], '--shape')
    size = asked or _size_of_crops(cfg) or _size_of_test_images(cfg) or _size_of_backbone(cfg)
    if not size:
        raise ValueError(f'{cfg.filename}: the config has no image size; set it with --shape HEIGHT WIDTH')
    return replace(size, channels=_backbone(cfg).get('in_channels', 3))


def _size_of_crops(cfg: Config) -> ImageSize | None:
    size = _preprocessor(cfg).get('size')
    return size and ImageSize(*size, 'model.data_preprocessor.size')


def _size_of_test_images(cfg: Config) -> ImageSize | None:
    dataset = (cfg.get('test_dataloader') or {}).get('dataset', {})
    sizes = [size for size in map(_size_after, dataset.get('pipeline', ())) if size]
    if not sizes:
        return None
    divisor = _preprocessor(cfg).get('pad_size_divisor', 1)
    height, width = (ceil(side / divisor) * divisor for side in sizes[-1])
    padded = f', padded to multiples of {divisor}' if divisor > 1 else ''
    return ImageSize(height, width, f'the largest of the test pipeline{padded}')


def _size_of_backbone(cfg: Config) -> ImageSize | None:
    size = _backbone(cfg).get('img_size')
    return size and ImageSize(*_pair(size), 'model.backbone.img_size')


def _preprocessor(cfg: Config) -> Mapping:
    return cfg.model.get('data_preprocessor') or {}


def _backbone(cfg: Config) -> Mapping:
    return cfg.model.get('backbone') or {}


def _pair(size: int | Sequence[int]) -> tuple[int, int]:
    return (size, size) if isinstance(size, int) else tuple(size)


def _size_after(step: Mapping) -> tuple[int, int] | None:
    """Height and width that a transform gives; None if it depends on the image, or changes none."""
    key, order = SIZES.get(step['type'], ('', 1))
    size = step.get(key)
    return _pair(size)[::order] if size else None


# Where a transform has the size that it gives. mmcv's transforms have the width first, torchvision's the height.
SIZES = {
    'Resize': ('scale', -1),
    'CenterCrop': ('crop_size', -1),
    'Pad': ('size', -1),
    'torchvision/Resize': ('size', 1),
    'torchvision/CenterCrop': ('size', 1),
}
