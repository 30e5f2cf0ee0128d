"""The time of a step by a roofline of its operations, and of its communication, as bands.

A roofline::

    seconds of an operation = max(flops / rate of the data sheet, bytes / bandwidth of the data sheet)

The lower end of a band takes the data sheet's rates, the upper end the shares that real kernels reach, and the time in
which Python starts a kernel where that is longer. The shares are assumptions; `docs/plan.md` has what was checked.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from .cards import Card
from .trace import Operation

MICRO = 1e-6


@dataclass(frozen=True)
class Band:
    """A range that the value is expected in."""

    low: float
    high: float

    def __mul__(self, factor: float) -> 'Band':
        return Band(self.low * factor, self.high * factor)


@dataclass(frozen=True)
class Reached:
    """What an implementation reaches of a data sheet.

    Args:
        products: Share of the rate of matrix products.
        bandwidth: Share of the memory's bandwidth.
        link: Share of the bandwidth between GPUs.
        start: Seconds in which one kernel is started.
    """

    products: float
    bandwidth: float
    link: float
    start: float


# The ends of a band.
BEST = Reached(products=0.9, bandwidth=0.95, link=0.9, start=2 * MICRO)
WORST = Reached(products=0.3, bandwidth=0.4, link=0.5, start=40 * MICRO)


def start_seconds(operations: Mapping[Operation, int]) -> Band:
    """Seconds in which the kernels of a step are started, whatever its batch."""
    return Band(*(sum(operations.values()) * reached.start for reached in (BEST, WORST)))


def step_seconds(operations: Mapping[Operation, int], card: Card) -> Band:
    """Seconds of one step on a card, without communication."""
    return Band(*(_seconds(operations, card, reached) for reached in (BEST, WORST)))


def _seconds(operations: Mapping[Operation, int], card: Card, reached: Reached) -> float:
    kernels = sum(
        count
        * max(
            operation.flops / (card.rate(operation.dtype, operation.is_convolution) * reached.products),
            operation.bytes / (card.bandwidth * reached.bandwidth),
        )
        for operation, count in operations.items()
    )
    # Kernels are started while others run: the slower of both decides.
    return max(kernels, sum(operations.values()) * reached.start)


@dataclass(frozen=True)
class Cluster:
    """Where a training runs.

    Args:
        nodes: Number of machines.
        gpus: GPUs of each.
        network: Bytes a second of one machine to the others, in one direction.
    """

    nodes: int
    gpus: int
    network: float

    @property
    def processes(self) -> int:
        return self.nodes * self.gpus


# Times that a strategy moves the weights of a model, in rings of (n - 1) / n each.
PASSES = {'ddp': 2, 'fsdp2': 3}


def communication_seconds(strategy: str, num_bytes: float, cluster: Cluster, card: Card) -> Band:
    """Seconds in which gradients (ddp), or weights twice and gradients once (fsdp2), move in one step.

    The slower of two rings: between the GPUs of a node, and between nodes, where the GPUs of one share its network.

    Args:
        strategy: ``'ddp'`` or ``'fsdp2'``.
        num_bytes: Bytes of one pass.
        cluster: Where.
        card: Its GPUs.
    """
    inside = (cluster.gpus - 1) / cluster.gpus / card.link
    between = (cluster.nodes - 1) / cluster.nodes / cluster.network
    slowest = PASSES[strategy] * num_bytes * max(inside, between)
    return Band(slowest / BEST.link, slowest / WORST.link)


def together(step: Band, communication: Band) -> Band:
    """A step with its communication: hidden behind it at best, beside it at worst."""
    return Band(max(step.low, communication.low), step.high + communication.high)
