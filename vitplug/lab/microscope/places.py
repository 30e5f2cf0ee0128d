"""Where an image of an analysis is: in a file, or in the memory of a data set."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

if TYPE_CHECKING:  # mmengine, which models of other libraries do without
    from mmengine.dataset import BaseDataset


@dataclass(frozen=True)
class HeldImage:
    """An image that a data set keeps in memory; has a name and bytes, as a file has.

    Attributes:
        name: Split and number, such as ``'val 00012'``.
        dataset: The data set.
        index: Its number there.
    """

    name: str
    dataset: 'BaseDataset' = field(compare=False, repr=False)
    index: int

    @property
    def info(self) -> dict:
        """What the data set says of it."""
        return self.dataset.get_data_info(self.index)

    @property
    def pixels(self) -> np.ndarray:
        """``(height, width, 3)``, red first as mmpretrain's data sets have them, or ``(height, width)``."""
        return self.info['img']

    def read_bytes(self) -> bytes:
        """Its pixels as bytes."""
        return self.pixels.tobytes()

    def __str__(self) -> str:
        return self.name


ImagePlace: TypeAlias = Path | HeldImage
