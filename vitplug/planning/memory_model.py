"""The memory of one process under a strategy, from traced steps, and the largest batch that fits."""

from dataclasses import dataclass

from .cards import GIB, Card
from .measure_step import Step

# CUDA's context and NCCL's buffers, and the share for workspaces, fragments of freed memory and the model's error:
# docs/plan.md has plans beside the memory that mmdet and mmseg published.
CONTEXT = 1.0 * GIB
MARGIN = 0.15


@dataclass(frozen=True)
class Memory:
    """Bytes of one process.

    Args:
        weights: Parameters and buffers, with those of other processes that are gathered for a moment.
        gradients: Gradients, with the buffers in which they are sent.
        optimizer: State of the optimizer.
        average: Moving average of the weights.
        activations: Everything else at the moment of the peak.
    """

    weights: float
    gradients: float
    optimizer: float
    average: float
    activations: float

    @property
    def peak(self) -> float:
        return self.weights + self.gradients + self.optimizer + self.average + self.activations


def memory_of(step: Step, strategy: str, processes: int, has_average: bool) -> Memory:
    """Memory of one of some processes.

    Under ddp a process holds everything, and each gradient once more in the buckets that are sent. Under fsdp2 it holds
    its share, and the whole weights of two blocks: the one that computes, and the next, which is gathered meanwhile.
    What is in no block, the head for one, stays gathered; that share is small and left out.

    Args:
        step: The step on one process.
        strategy: ``'ddp'`` or ``'fsdp2'``.
        processes: Number of processes.
        has_average: Whether a moving average of the weights is kept.
    """
    average = step.weights * has_average
    if strategy == 'fsdp2' and processes > 1:
        gathered = 2 * step.largest_block
        return Memory(
            weights=step.weights / processes + gathered,
            gradients=step.gradients / processes + step.largest_block,
            optimizer=step.optimizer / processes,
            average=average / processes,
            activations=step.activations,
        )
    buckets = step.gradients if processes > 1 else 0
    # At the peak some gradients are there and some activations are gone already.
    rest = step.peak - step.weights - step.optimizer - step.gradients
    return Memory(step.weights, step.gradients + buckets, step.optimizer, average, max(rest, 0))


def usable(card: Card) -> float:
    """Bytes of a card that tensors can take."""
    return (card.memory - CONTEXT) * (1 - MARGIN)


def largest_batch(small: tuple[int, float], large: tuple[int, float], room: float) -> int:
    """The largest batch whose peak fits, on the line through two traced batches; 0 if none does.

    Args:
        small, large: Batch and peak in bytes.
        room: Bytes that there are.
    """
    (few, low), (many, high) = small, large
    per_image = (high - low) / (many - few)
    if per_image <= 0:
        raise ValueError(f'batches {few} and {many}: the second needs no more memory, so no largest batch follows')
    return max(0, int((room - low) / per_image + few))
