"""The image size of a config."""

from collections.abc import Mapping, Sequence
from math import ceil

from mmengine.config import Config
from mmengine.utils import to_2tuple

# Transforms whose result has the size that they name.
RESIZING = ('Resize', 'CenterCrop', 'Pad')


def read_image_size(cfg: Config, shape: Sequence[int] | None = None) -> tuple[int, int, int]:
    """Channels, height and width of the images of a config.

    Args:
        cfg: The config. Its size is that of the data preprocessor, of the last resizing step of the test pipeline as
            the preprocessor pads it, or of the backbone: the first that there is.
        shape: Height and width, or one number for both, in place of these.

    Raises:
        ValueError: If ``shape`` is invalid, or if the config has no size.
    """
    if shape is not None and (len(shape) not in (1, 2) or min(shape) < 1):
        raise ValueError(f'--shape {" ".join(map(str, shape))}: expected height and width, or one number for both')
    preprocessor, backbone = (cfg.model.get(part) or {} for part in ('data_preprocessor', 'backbone'))
    pipeline = (cfg.get('test_dataloader') or {}).get('dataset', {}).get('pipeline', ())
    tested = [size for size in map(_size_after, pipeline) if size][-1:]
    divisor = preprocessor.get('pad_size_divisor', 1)
    padded = [ceil(side / divisor) * divisor for size in tested for side in size]
    size = shape or preprocessor.get('size') or padded or to_2tuple(backbone.get('img_size') or ())
    if not size:
        raise ValueError(f'{cfg.filename}: the config has no image size; set it with --shape HEIGHT WIDTH')
    return backbone.get('in_channels', 3), size[0], size[-1]


def _size_after(step: Mapping) -> Sequence[int] | None:
    """Height and width that a transform gives; None if it depends on the image, or changes none."""
    library, _, kind = step['type'].rpartition('/')
    size = step.get('scale') or step.get('crop_size') or step.get('size')
    if kind not in RESIZING or not size:
        return None
    # mmcv's transforms have the width first, torchvision's the height.
    return to_2tuple(size) if library else to_2tuple(size)[::-1]
