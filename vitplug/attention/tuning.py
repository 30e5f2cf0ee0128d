"""Numbers of torch's kernels, and for which device forms are chosen."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch

# Channels of q and k of which a GPU's fused call without maps needs a multiple, in half precision too.
WIDTH_OF_CALL = 8
# Entries of which the rows of a bias are multiples. On a GPU torch copies a bias with other rows in every fused call.
BIAS_STEP = 8
# Channels by which q and k may be wider than v for values to be padded: 65 channels take 1.2 of the time of 64, maps 2.
PADDED_VALUES = 8

_pretended: str | None = None


def surplus_of(keys: int) -> int:
    """Entries after the keys in the rows of a bias; none in an exported graph, which would be for some sizes alone."""
    return -keys % BIAS_STEP if isinstance(keys, int) else 0


def on_cpu(device: torch.device) -> bool:
    """Whether the forms for a CPU serve; all other devices get those for a GPU."""
    return (_pretended or device.type) == 'cpu'


@contextmanager
def tuned_for(device_type: str) -> Iterator[None]:
    """Chooses the forms of another type of device inside a ``with`` block: what a GPU runs, on a CPU."""
    global _pretended
    before, _pretended = _pretended, device_type
    try:
        yield
    finally:
        _pretended = before
