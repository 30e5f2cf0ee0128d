"""Data sheets of GPUs: rates without sparsity, of the SXM boards where there are several."""

from dataclasses import dataclass

import torch

GB = 1e9
GIB = 2**30
TERA = 1e12


@dataclass(frozen=True)
class Card:
    """What a data sheet says of a GPU, or a measurement of another device.

    Args:
        name: Its name.
        memory: Memory in bytes.
        bandwidth: Bytes a second from and to its memory.
        half: Floating point operations a second of matrix products in float16 and bfloat16.
        tf32: The same of convolutions in float32, which PyTorch runs as TF32 unless told otherwise.
        single: The same of matrix products in float32.
        link: Bytes a second to the other GPUs of its node, in one direction.
    """

    name: str
    memory: float
    bandwidth: float
    half: float
    tf32: float
    single: float
    link: float

    def rate(self, dtype: torch.dtype, is_convolution: bool) -> float:
        """Floating point operations a second of matrix products or convolutions of a type."""
        if dtype.itemsize == 2:
            return self.half
        return self.tf32 if is_convolution else self.single


CARDS = {
    'a100-40': Card('A100 40 GB', 40 * GIB, 1555 * GB, 312 * TERA, 156 * TERA, 19.5 * TERA, 300 * GB),
    'a100-80': Card('A100 80 GB', 80 * GIB, 2039 * GB, 312 * TERA, 156 * TERA, 19.5 * TERA, 300 * GB),
    'h100': Card('H100 80 GB', 80 * GIB, 3350 * GB, 989 * TERA, 494 * TERA, 67 * TERA, 450 * GB),
    'h200': Card('H200 141 GB', 141 * GB, 4800 * GB, 989 * TERA, 494 * TERA, 67 * TERA, 450 * GB),
    'rtx4090': Card('RTX 4090', 24 * GIB, 1008 * GB, 165 * TERA, 82.6 * TERA, 82.6 * TERA, 32 * GB),
    'l4': Card('L4', 24 * GB, 300 * GB, 121 * TERA, 60 * TERA, 30.3 * TERA, 32 * GB),
}
