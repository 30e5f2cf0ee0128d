"""A file against PyTorch: at sizes and batches that were not traced, and on real images."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from .file import ExportedFile

Shape = tuple[int, int, int]
# Pixels by which sizes that are tried differ: a multiple of the strides of all hosts.
STEP = 32
# Largest difference, as a share of the largest output.
TOLERANCE = 1e-4
# Largest share of pixels whose class is another one: two logits may be nearly equal.
OTHER_CLASSES = 1e-3


class WrongFile(ValueError):
    """A file gives other outputs than the model that it was exported from."""


@dataclass(frozen=True)
class Difference:
    """How far the outputs of a file are from PyTorch's.

    Attributes:
        images: What was run, such as ``'(2, 3, 256, 224)'`` or a path.
        largest: Largest difference of an entry; for classes, the share of other ones.
        relative: The same as a share of the largest output.
    """

    images: str
    largest: float
    relative: float

    def __str__(self) -> str:
        return f'{self.images}: largest difference {self.largest:.2e} ({self.relative:.1e} of the largest output)'


def traced_shape(own: tuple[int, int], dynamic: Sequence[str]) -> Shape:
    """Batch, height and width to trace with, of the size that the model is for.

    Open axes get sizes unlike the model's own, so that no size is special by chance.
    """
    height, width = own
    batch = 3 if 'batch' in dynamic else 1
    return (
        batch,
        round_up(height * 3 // 2) if 'height' in dynamic else height,
        round_up(width * 5 // 4) + 3 * STEP if 'width' in dynamic else width,
    )


def untraced_shapes(
    own: tuple[int, int], traced: Shape, dynamic: Sequence[str], sizes: tuple[int, int] | None
) -> list[Shape]:
    """Batches and sizes to compare: two batches of three sizes, none of them traced, as far as axes are open.

    Args:
        own: Height and width that the model is for.
        traced: What was traced.
        dynamic: The open axes.
        sizes: Smallest side and divisor, see :func:`~vitplug.lab.export.trace.open_sizes`.
    """
    batch, height, width = traced
    least, divisor = sizes or (1, 1)

    def taken(*sides: int) -> list[int]:
        return [round_up(max(side, least), divisor) for side in sides]

    heights = taken(own[0], height + STEP, round_up(height * 3 // 4)) if 'height' in dynamic else [height] * 3
    widths = taken(own[1], round_up(width * 3 // 4), width + 2 * STEP) if 'width' in dynamic else [width] * 3
    batches = (1, batch + 2) if 'batch' in dynamic else (batch,)
    found = dict.fromkeys(zip(heights, widths, strict=True))
    return [(b, *size) for size in found for b in batches]


def round_up(side: int, step: int = STEP) -> int:
    """A side rounded up to a multiple."""
    return (side + step - 1) // step * step


def made_images(shape: Shape, channels: int) -> Tensor:
    """Images ``(B, C, H, W)`` of noise, as normalised ones are distributed; the same for the same shape."""
    batch, height, width = shape
    return torch.randn(batch, channels, height, width, generator=torch.Generator().manual_seed(0))


def compare(
    network: nn.Module, file: ExportedFile | Callable[[Tensor], Sequence[Tensor]], batches: Iterable[tuple[str, Tensor]]
) -> list[Difference]:
    """Runs a file and the network that it was exported from.

    Args:
        network: The network, on the CPU.
        file: The file.
        batches: What is run, and the images ``(B, C, H, W)``.

    Raises:
        WrongFile: If the file fails, or its outputs have other shapes.
    """
    differences = []
    for name, images in batches:
        with torch.no_grad():
            wanted = network(images)
        try:
            given = file(images)
        except Exception as error:  # whatever a runtime raises
            raise WrongFile(f'fails on {name}: {" ".join(str(error).split())[:400]}') from error
        shapes = [[tuple(output.shape) for output in outputs] for outputs in (given, wanted)]
        if shapes[0] != shapes[1]:
            raise WrongFile(f'gives outputs of shapes {shapes[0]} on {name}, and PyTorch {shapes[1]}')
        pairs = [_difference(a, b) for a, b in zip(given, wanted, strict=True)]
        differences.append(Difference(name, max(d for d, _ in pairs), max(r for _, r in pairs)))
    return differences


def _difference(given: Tensor, wanted: Tensor) -> tuple[float, float]:
    """Largest difference, and as a share of the largest entry; the share of other entries where they are classes."""
    if not wanted.is_floating_point():
        share = (given != wanted).double().mean().item()
        return share, share / OTHER_CLASSES * TOLERANCE
    difference = (given.double() - wanted.double()).abs()
    if difference.isnan().any():
        return float('inf'), float('inf')
    largest = difference.max().item()
    return largest, largest / max(wanted.abs().max().item(), 1e-6)


def check(differences: Sequence[Difference]) -> None:
    """Checks that all differences are small.

    Raises:
        WrongFile: names the images with the largest one.
    """
    worst = max(differences, key=lambda one: one.relative)
    if not worst.relative <= TOLERANCE:
        raise WrongFile(f'differs from PyTorch: {worst}; at most {TOLERANCE:.0e} is allowed')
