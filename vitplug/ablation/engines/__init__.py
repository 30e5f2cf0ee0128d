"""Where the cells of a grid are trained: processes of this machine, or somebody else's cluster."""

from .engine import Engine, Job
from .options import add_engine_options, make_engine

__all__ = ['Engine', 'Job', 'add_engine_options', 'make_engine']
