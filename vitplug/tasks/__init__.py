"""What differs between mmpretrain, mmseg and mmdet: one description for each library.

No library is imported before its description needs it.
"""

from .lookup import ANNOTATION_FILES, LABELS, TASKS, check_scope, task_of
from .task import Task

__all__ = ['ANNOTATION_FILES', 'LABELS', 'TASKS', 'Task', 'check_scope', 'task_of']
