"""A file against PyTorch, at sizes and batches that were not traced."""

from collections.abc import Callable, Iterable, Sequence

import torch
from torch import Tensor, nn

from vitplug.attention.grids import ceil_div

from .trace import in_short

Shape = tuple[int, int, int]
# Images of a batch, and pixels that open sides have more than the model's own: what is traced, and what is compared.
TRACED, COMPARED = (3, 64, 96), ((1, 0, 0), (5, 0, 0), (1, 32, 160), (5, 128, 32))
# A multiple of the strides of all hosts.
STEP = 32
# Largest difference, as a share of the largest output.
TOLERANCE = 1e-4


class WrongFile(ValueError):
    """A file gives other outputs than the model that it was exported from."""


def shape_of(own: Sequence[int], dynamic: Sequence[str], more: Shape, sizes: tuple[int, int]) -> Shape:
    """Batch, height and width to trace or to compare with.

    Args:
        own: Height and width that the model is for; axes that are not open stay so, with a batch of 1.
        dynamic: The open axes.
        more: The batch, and the pixels that open sides have more than the model's own.
        sizes: Smallest side and divisor, see :func:`~vitplug.lab.export.trace.open_sizes`.
    """
    least, divisor = sizes
    height, width = (
        ceil_div(max(side + step, least), divisor) * divisor if axis in dynamic else side
        for axis, side, step in zip(('height', 'width'), own, more[1:], strict=True)
    )
    return more[0] if 'batch' in dynamic else 1, height, width


def made_images(shape: Shape, channels: int) -> Tensor:
    """Images ``(B, C, H, W)`` of noise, as normalised ones are distributed; the same for the same shape."""
    return torch.randn(shape[0], channels, *shape[1:], generator=torch.Generator().manual_seed(0))


def compare(network: nn.Module, file: Callable[[Tensor], Sequence[Tensor]], batches: Iterable[Tensor]) -> None:
    """Runs a file and the network that it was exported from; prints a line for each batch.

    Args:
        network: The network, on the CPU.
        file: The file.
        batches: Images ``(B, C, H, W)``.

    Raises:
        WrongFile: If the file fails, or its outputs have other shapes or values.
    """
    for images in batches:
        name = str(tuple(images.shape))
        with torch.no_grad():
            wanted = network(images)
        try:
            given = file(images)
        except Exception as error:  # whatever a runtime raises
            raise WrongFile(f'fails on {name}: {in_short(error)}') from error
        shapes = [[tuple(output.shape) for output in outputs] for outputs in (given, wanted)]
        if shapes[0] != shapes[1]:
            raise WrongFile(f'gives outputs of shapes {shapes[0]} on {name}, and PyTorch {shapes[1]}')
        differences = [
            (own.double() - exact.double()).abs().nan_to_num(torch.inf, torch.inf).max().item()
            for own, exact in zip(given, wanted, strict=True)
        ]
        shares = [one / max(exact.abs().max().item(), 1e-6) for one, exact in zip(differences, wanted, strict=True)]
        line = f'{name}: largest difference {max(differences):.2e} ({max(shares):.1e} of the largest output)'
        if not all(share <= TOLERANCE for share in shares):
            raise WrongFile(f'differs from PyTorch: {line}; at most {TOLERANCE:.0e} is allowed')
        print(line)
