"""Random numbers as a function of where a training stands.

A generator that runs on from draw to draw makes a result depend on all that was drawn before, in this process and in
each worker of a loader. Here every iteration of the model and every sample starts from a seed of its own, made from
the run's seed and its position, so a resumed training draws what an uninterrupted one would have drawn.
"""

import random
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch

# First number of a key, so that no two kinds of draws share a seed.
MODEL_STREAM = 0
SAMPLE_STREAM = 1
VALIDATION_STREAM = 2


def seed_generators(*key: int) -> None:
    """Seeds the generators of Python, numpy and torch (all devices) from a key of integers >= 0."""
    for_python, for_numpy, for_torch = _seeds(key)
    random.seed(for_python)
    np.random.seed(for_numpy)
    torch.manual_seed(for_torch)


@contextmanager
def own_randomness(*key: int) -> Iterator[None]:
    """Seeds the generators of Python, numpy and torch (CPU) for a while, and puts them back where they were.

    The generators of other devices are left alone: samples are made on the CPU.
    """
    states = random.getstate(), np.random.get_state(), torch.get_rng_state()
    for_python, for_numpy, for_torch = _seeds(key)
    random.seed(for_python)
    np.random.seed(for_numpy)
    torch.default_generator.manual_seed(for_torch)
    try:
        yield
    finally:
        random.setstate(states[0])
        np.random.set_state(states[1])
        torch.set_rng_state(states[2])


def _seeds(key: tuple[int, ...]) -> list[int]:
    return np.random.SeedSequence(key).generate_state(3).tolist()
