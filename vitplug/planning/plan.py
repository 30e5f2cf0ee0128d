"""The plan of a training: memory, batch and time of its variants on one kind of GPU."""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from mmengine.config import Config

from .cards import Card
from .measure_step import WORD, Step, Variant, trace_step
from .memory_model import Memory, largest_batch, memory_of, usable
from .time_model import Band, Cluster, communication_seconds, start_seconds, step_seconds, together


@dataclass(frozen=True)
class Place:
    """Where and how a training runs.

    Args:
        card: Kind of the GPUs.
        cluster: Their number.
        strategy: ``'ddp'`` or ``'fsdp2'``.
        has_average: Whether a moving average of the weights is kept.
    """

    card: Card
    cluster: Cluster
    strategy: str
    has_average: bool = False


@dataclass(frozen=True)
class Plan:
    """One variant of a training on a place.

    Args:
        variant: Precision and checkpointing.
        small, step: Steps of two batches, the second that of the config.
        place: Where it runs.
    """

    variant: Variant
    small: Step
    step: Step
    place: Place

    def memory(self, step: Step) -> Memory:
        return memory_of(step, self.place.strategy, self.place.cluster.processes, self.place.has_average)

    @property
    def fits(self) -> bool:
        return self.memory(self.step).peak <= usable(self.place.card)

    @property
    def largest_batch(self) -> int:
        points = ((step.batch, self.memory(step).peak) for step in (self.small, self.step))
        return largest_batch(*points, usable(self.place.card))

    @property
    def compute(self) -> Band:
        """Seconds of a step without communication."""
        return step_seconds(self.step.operations, self.place.card)

    @property
    def communication(self) -> Band:
        """Seconds of a step's communication."""
        return communication_seconds(self.place.strategy, self.bytes_sent, self.place.cluster, self.place.card)

    @property
    def bytes_sent(self) -> int:
        """Bytes of one pass over the network: gradients of float32, or weights and gradients of the step's type."""
        word = 2 if self.variant.half and self.place.strategy == 'fsdp2' else WORD
        return word * self.step.parameters

    @property
    def seconds(self) -> Band:
        """Seconds of a step with its communication."""
        return together(self.compute, self.communication)

    def compute_of(self, batch: float) -> Band:
        """Seconds of a step of another batch, on the line through the two traced ones.

        Below them the line may fall faster than the number of images; there the time falls with it, until the kernels'
        starts decide.
        """
        few, many = (step_seconds(step.operations, self.place.card) for step in (self.small, self.step))
        starts = start_seconds(self.small.operations)
        share, images = self._share(batch), batch / self.small.batch

        def at(a: float, b: float, start: float) -> float:
            return max(a + share * (b - a), a * min(images, 1.0), start)

        return Band(at(few.low, many.low, starts.low), at(few.high, many.high, starts.high))

    def peak_of(self, batch: float) -> float:
        """Bytes of the peak of another batch, on the line through the two traced ones."""
        few, many = (self.memory(step).peak for step in (self.small, self.step))
        return few + self._share(batch) * (many - few)

    def _share(self, batch: float) -> float:
        return (batch - self.small.batch) / (self.step.batch - self.small.batch)


def variants(cfg: Config) -> list[Variant]:
    """Float32 and half precision, with and without checkpointing of the backbone."""
    named = str(cfg.optim_wrapper.get('dtype', 'float16'))
    half = getattr(torch, named.removeprefix('torch.'), torch.float16)
    return [Variant(dtype, with_cp) for with_cp in (False, True) for dtype in (None, half)]


def variant_of(cfg: Config) -> Variant:
    """The variant that a config trains."""
    _, half, *_ = variants(cfg)
    is_half = str(cfg.optim_wrapper.get('type', '')).endswith('AmpOptimWrapper')
    return Variant(half.half if is_half else None, bool(cfg.model.backbone.get('with_cp')))


def make_plans(cfg: Config, chw: tuple[int, int, int], batch: int, place: Place) -> Iterator[Plan]:
    """A plan for each variant.

    Args:
        cfg: The config of a training.
        chw: Channels, height and width of its images.
        batch: Images of a process in a step.
        place: Where it runs.

    Raises:
        ValueError: If a step cannot be traced.
    """
    # Not one image, of which batch norm can take no statistics after global pooling.
    other = batch // 2 if batch >= 4 else 2 * batch
    for variant in variants(cfg):
        small, large = (trace_step(cfg, chw, number, variant) for number in sorted((other, batch)))
        small, step = (small, large) if large.batch == batch else (large, small)
        yield Plan(variant, small, step, place)
