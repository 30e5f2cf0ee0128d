"""An image as a model sees it, and as a person does."""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from .places import ImagePlace


@dataclass(frozen=True)
class Loaded:
    """One image as a model sees it.

    Attributes:
        path: The file, or where else it is.
        inputs: Normalised and padded, ``(1, C, H, W)``, as the backbone gets it.
        picture: The same before the normalisation, ``(H, W, 3)``, 8 bit, red first; black where it is padded.
    """

    path: ImagePlace
    inputs: Tensor
    picture: np.ndarray

    @property
    def size(self) -> tuple[int, int]:
        """Height and width of the inputs, in pixels."""
        return tuple(self.inputs.shape[-2:])


# Names of the same switch: mmpretrain's, mmseg's, and that of mmengine, mmdet and OneDL's mmseg.
CHANNEL_SWITCHES = ('to_rgb', 'channel_conversion', '_channel_conversion')


def turns_channels(preprocessor: nn.Module) -> bool:
    """True if a data preprocessor turns the order of the channels, as of images that are blue first."""
    return any(getattr(preprocessor, name, False) for name in CHANNEL_SWITCHES)


def as_picture(pixels_CHW: Tensor, size: tuple[int, int]) -> np.ndarray:
    """Pixels, blue first, as a picture ``(height, width, 3)`` of a size, red first."""
    pixels_CHW = pixels_CHW.detach().cpu()
    if pixels_CHW.is_floating_point():  # a pipeline that normalises: only contrasts are left
        low, high = pixels_CHW.amin(), pixels_CHW.amax()
        pixels_CHW = (pixels_CHW - low) / (high - low).clamp(min=torch.finfo(pixels_CHW.dtype).tiny) * 255
    pixels = pixels_CHW[:3].flip(0).permute(1, 2, 0).round().clamp(0, 255).to(torch.uint8).numpy()
    picture = np.zeros((*size, 3), np.uint8)
    height, width = (min(sides) for sides in zip(size, pixels.shape[:2], strict=True))
    picture[:height, :width] = pixels[:height, :width]
    return picture
