"""The tasks, found by the library of a config."""

import importlib
from importlib.util import find_spec

from torch import nn

from .classification import Classification
from .detection import Detection
from .segmentation import Segmentation
from .task import Task

#: The tasks by library, which is the `default_scope` of a config.
TASKS: dict[str, Task] = {task.library: task for task in (Classification(), Segmentation(), Detection())}
KNOWN = ', '.join(f'{task.library} ({task.name})' for task in TASKS.values())


def task_of(model: nn.Module) -> Task:
    """The task of a model: that of the library that its class, or one of its base classes, comes from.

    Raises:
        ValueError: If it is of none.
    """
    for kind in type(model).__mro__:
        task = TASKS.get(kind.__module__.partition('.')[0])
        if task is not None:
            return task
    raise ValueError(f'{type(model).__name__}: expected a model of one of {KNOWN}')


def check_scope(cfg) -> None:
    """Checks that `default_scope` names an installed package, and imports it.

    Raises:
        ValueError: If `default_scope` is missing or unknown.
        ImportError: If the package cannot be imported.
    """
    scope = cfg.get('default_scope')
    if not isinstance(scope, str) or (scope not in TASKS and find_spec(scope) is None):
        raise ValueError(f'default_scope = {scope!r}: set it to one of {KNOWN}')
    try:
        importlib.import_module(scope)
    except ImportError as error:
        raise ImportError(f'{scope} cannot be imported ({error}): run make setup, or see docs/stacks.md') from error
