"""Runs each table on a CPU in a new process, because earlier work changes the memory state of a process.

After large training steps, a model that allocates large tensors runs up to a fifth faster than in a new process, where
the system must provide every page. Users start new processes. A GPU's memory comes from torch, which keeps it.
"""

import logging
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import TypeVar

import torch

Result = TypeVar('Result')


def in_own_process(job: Callable[[], Result]) -> Result:
    """Runs a picklable job in a new process with the same number of threads; returns its result or raises its error."""
    settings = (torch.get_num_threads(), logging.root.manager.disable)
    with ProcessPoolExecutor(1, get_context('spawn'), _prepare, settings) as process:
        return process.submit(job).result()


def run_table(job: Callable[[], Result], device: str) -> Result:
    """Runs a table's job: on a CPU in a new process, on a GPU here, where starting one would take most of the time."""
    return in_own_process(job) if device == 'cpu' else job()


def _prepare(threads: int, silenced: int) -> None:
    torch.set_num_threads(threads)
    logging.disable(silenced)
