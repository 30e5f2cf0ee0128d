"""Where the cells of a grid are trained: processes of this machine, or somebody else's cluster."""

from .engine import Engine, Job
from .local import LocalEngine

__all__ = ['Engine', 'Job', 'LocalEngine']
