"""The protocol of a measure: from one image to arrays, and from the arrays of all images to numbers."""

import inspect
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from operator import itemgetter
from typing import TYPE_CHECKING, Any

import numpy as np
from torch import Tensor

from vitplug.statistics.images import Arrays, Estimate, exact, jackknife, student

from .places import Place

if TYPE_CHECKING:
    from .runs import Run
else:  # measures are made without mmengine, which models of other libraries do without
    Run = Any

# Images of a picture.
FEW = 4
# Prefix of arrays that are drawn and are no numbers.
SHOWN = 'shown '


@dataclass(eq=False)
class Seen:
    """One image as a model under a condition sees it.

    Attributes:
        run: The model.
        index: Number of the image.
        batch: The image alone, as the pipeline packs it.
        sample: Prediction and truth, where the measure predicts.
        found: What :attr:`Measure.reduce` kept, by name of the intermediate and block, the first block first.
    """

    run: Run
    index: int
    batch: Mapping
    sample: Any = None
    found: Mapping[str, Mapping[int, Any]] = field(default_factory=lambda: defaultdict(dict))

    @cached_property
    def inputs(self) -> Tensor:
        """Normalised and padded, ``(1, C, H, W)``, as the backbone gets it."""
        return self.run.inputs(self.batch)

    @property
    def size(self) -> tuple[int, int]:
        """Height and width of the inputs."""
        return tuple(self.inputs.shape[-2:])

    def place(self, layer: int) -> Place:
        """Where the tokens of a block lie in the image."""
        key = layer, self.size
        if key not in self.run.cache:
            self.run.cache[key] = Place.of(self.run.backbone, layer, self.size)
        return self.run.cache[key]

    @property
    def picture(self) -> np.ndarray:
        """The image as a person sees it, ``(H, W, 3)``."""
        pixels = self.batch['inputs'][0]
        return as_picture(pixels.flip(0) if self.run.turns_channels and len(pixels) == 3 else pixels, self.size)[0]


def as_picture(pixels_CHW: Tensor, size: tuple[int, int]) -> tuple[np.ndarray, str]:
    """Pixels, red first, as a picture ``(height, width, 3)`` of 8 bit, and what it shows of images without colours.

    Padding is black. Of pixels that are no numbers from 0 to 255, after a normalisation, contrasts alone are kept.
    """
    pixels_CHW, note = pixels_CHW.detach().cpu(), ''
    if len(pixels_CHW) != 3:  # grey, or bands that have no colours of their own
        note = '' if len(pixels_CHW) == 1 else f'channel 0 of {len(pixels_CHW)}'
        pixels_CHW = pixels_CHW[:1].expand(3, -1, -1)
    low, high = pixels_CHW.amin().double(), pixels_CHW.amax().double()
    if pixels_CHW.is_floating_point() and not (low >= 0 and 32 < high <= 255):
        pixels_CHW = (pixels_CHW.double() - low) / (high - low).clamp(min=1e-30) * 255
    pixels, (height, width) = pixels_CHW.permute(1, 2, 0).round().byte().numpy()[: size[0], : size[1]], size
    return np.pad(pixels, ((0, height - pixels.shape[0]), (0, width - pixels.shape[1]), (0, 0))), note


# --- estimates: numbers of all images ---


def means(run: Run, units: Sequence[Arrays]) -> dict[str, Estimate]:
    """Means over images with Student's t; what an image does not have is left out and counted."""
    estimates = {}
    for name in dict.fromkeys(name for unit in units for name in unit):
        undefined = np.full(next(np.shape(unit[name]) for unit in units if name in unit), np.nan)
        estimates[name] = student(np.stack([np.asarray(unit.get(name, undefined), float) for unit in units]))
    return estimates


def together(values: Callable[[Sequence], Arrays]) -> Callable:
    """Numbers of all images together, such as fits and ratios of sums, with the jackknife over groups of images."""
    return lambda run, units: jackknife(values, units)


def of_model(run: Run, units: Sequence[Arrays]) -> dict[str, Estimate]:
    """Numbers of the model alone, which depend on no image."""
    return {name: exact(array) for name, array in units[0].items() if not name.startswith(SHOWN)}


def nothing(run: Run, units: Sequence[Arrays]) -> dict[str, Estimate]:
    """No numbers: a picture alone."""
    return {}


@dataclass(frozen=True, eq=False)
class Measure:
    """One measure.

    The engine runs each image once through a model for all measures: :attr:`reduce` gets each intermediate of
    :attr:`wants` while it exists, then :attr:`observe` gives the arrays of the image, which are stored;
    :attr:`estimate` turns those of all images into numbers with intervals, of blocks and heads where they are arrays.

    Attributes:
        name: On the command line.
        definition: One sentence.
        unit: Of the values.
        source: Where the definition comes from.
        observe: From what is seen of one image to arrays by name; a ValueError says why it does not apply to a run.
        wants: Intermediates, see :meth:`~vitplug.hosting.PluggedModel.forward_intermediates`; ``'maps'`` where a plug
            changes them.
        reduce: Takes the run, the name of an intermediate, its tensor and its place; gives what is kept, or None.
        estimate: Numbers of all images, by value.
        predicts: Whether it needs predictions: images then go through the whole model in batches.
        most: Largest number of images; None for all.
        one_size: Whether images of other sizes than the most frequent one are left out.
        groups: From a number of images to the groups that :attr:`join` takes; None for single images.
        join: From what was observed of a group to its arrays.
        bank: A measure of training images that :attr:`observe` reads, as ``seen.run.cache['bank']``.
        draw: Kind of picture, one of :data:`.figures.KINDS`.
        code: The source of a user's own measure, on which its numbers depend.
    """

    name: str
    definition: str
    unit: str
    source: str
    observe: Callable[[Seen], Any]
    wants: tuple[str, ...] = ()
    reduce: Callable[..., Any] | None = None
    estimate: Callable[[Run, Sequence[Arrays]], dict[str, Estimate]] = means
    predicts: bool = False
    most: int | None = None
    one_size: bool = False
    groups: Callable[[int], Sequence[Sequence[int]]] | None = None
    join: Callable[[Sequence[Any]], Arrays] = itemgetter(0)
    bank: 'Measure | None' = None
    draw: str = 'depth'
    code: str = ''


def measure(unit: str, source: str, *wants: str, **more: Any) -> Callable[[Callable[[Seen], Any]], Measure]:
    """Makes a measure of its ``observe``, whose name and docstring become those of the measure."""
    return lambda observe: Measure(observe.__name__, definition(observe), unit, source, observe, wants, **more)


def definition(function: Callable) -> str:
    """The first paragraph of a docstring in one line."""
    return ' '.join((inspect.getdoc(function) or '').partition('\n\n')[0].split()).rstrip('.')


def by_block(values: Mapping[int, Any], blocks: int) -> np.ndarray:
    """Numbers, or vectors of any lengths, of some blocks as one array ``(blocks,)`` or ``(blocks, most)``; else NaN."""
    shape = max((np.shape(value) for value in values.values()), default=())
    array = np.full((blocks, *shape), np.nan, np.float32)
    for layer, value in values.items():
        array[(layer, *(slice(size) for size in np.shape(value)))] = value
    return array
