"""Kernels and convolutions of maps."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ...attention.tuning import on_cpu


def convolve(maps: Tensor, kernel: Tensor) -> Tensor:
    """Correlation with zero padding, on the plane of ``(B, H, N, N)`` or the volume of ``(B, H, N, h, w)``."""
    conv = F.conv2d if kernel.ndim == 4 else F.conv3d
    padding = tuple(side // 2 for side in kernel.shape[2:])
    return conv(maps, kernel, padding=padding, groups=maps.shape[1] // kernel.shape[1])


def channels_last(maps: Tensor) -> Tensor:
    """Maps ``(B, H, rows, N)`` in the layout in which a CPU convolves few channels fastest, up to three times so."""
    return maps.contiguous(memory_format=torch.channels_last) if on_cpu(maps.device) else maps


def new_kernel(*shape: int) -> nn.Parameter:
    """A kernel, to be given its start by :func:`start_kernels`."""
    return nn.Parameter(torch.empty(shape))


def start_kernels(module: nn.Module) -> None:
    """Starts the kernels of a module as PyTorch's convolutions do."""
    for kernel in module.parameters(recurse=False):
        nn.init.kaiming_uniform_(kernel, a=5**0.5)


def delta(kernel: Tensor) -> Tensor:
    """Ones in the centre, zeros elsewhere."""
    out = torch.zeros_like(kernel)
    out[..., kernel.shape[-2] // 2, kernel.shape[-1] // 2] = 1
    return out
