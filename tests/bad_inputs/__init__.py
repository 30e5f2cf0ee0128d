"""Wrong inputs, and what commands make of them: the folder that every case begins with, and how commands are run."""

from bad_inputs.folder import child, clean, prepare, starting, write
from bad_inputs.running import own_process, run, run_to, snapshot

__all__ = ['child', 'clean', 'own_process', 'prepare', 'run', 'run_to', 'snapshot', 'starting', 'write']
