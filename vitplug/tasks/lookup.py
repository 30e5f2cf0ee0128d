"""The tasks, found by the library of a config."""

import importlib

from torch import nn

from vitplug.stacks import build_ops, install_packages

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
    """Checks that `default_scope` names an installed package, and that mmcv's ops load where its models need them.

    mmdet alone would be imported without the ops, and fail later.

    Raises:
        ValueError: If `default_scope` is missing or unknown.
        ImportError: If the package, or mmcv's ops, cannot be imported.
    """
    scope = cfg.get('default_scope')
    if scope is None:
        raise ValueError(f'the config sets no default_scope: set it to one of {KNOWN}')
    if not isinstance(scope, str):
        raise ValueError(f'default_scope = {scope!r} is no name of a package: set it to one of {KNOWN}')
    try:
        importlib.import_module(scope)
    except ImportError as error:
        if scope not in TASKS:
            raise ValueError(f'default_scope = {scope!r} is unknown: set it to one of {KNOWN}') from error
        raise ImportError(
            f'default_scope = {scope!r} cannot be imported ({error}): run make setup, or {install_packages()}'
        ) from error
    if scope in TASKS and TASKS[scope].needs_ops:
        try:
            importlib.import_module('mmcv.ops')
        except ImportError as error:
            raise ImportError(f"mmcv's ops do not load ({error}): {build_ops()}") from error
