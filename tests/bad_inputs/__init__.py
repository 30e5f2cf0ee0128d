"""Wrong inputs, and what commands make of them: the folder that every case begins with, and how commands are run."""

from bad_inputs.folder import child, prepare, starting, write
from bad_inputs.running import run, run_to, snapshot

__all__ = ['child', 'prepare', 'run', 'run_to', 'snapshot', 'starting', 'write']
