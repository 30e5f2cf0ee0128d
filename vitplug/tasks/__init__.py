"""What differs between mmpretrain, mmseg and mmdet: one description for each library.

No library is imported before its description needs it, and mmengine with the names below alone: targets serve models of
other libraries, too.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .lookup import TASKS, check_scope, task_of
    from .task import Task

__all__ = ['TASKS', 'Task', 'check_scope', 'task_of']


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f'module {__name__!r} has no attribute {name!r}')
    from . import lookup

    return getattr(lookup, name)
