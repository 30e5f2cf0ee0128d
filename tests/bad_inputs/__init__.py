"""Wrong inputs, and what commands make of them.

`running` runs the commands, `folder` has the files that every case begins with, `making` makes them bad.
"""

from bad_inputs.folder import CLASSIFIER, PIPELINE, SWIN, VIT, clean, prepare
from bad_inputs.making import Malicious, both, changed, child, cut, saved, starting, write
from bad_inputs.running import ROOT, TOOLS, Outcome, own_process, run, run_to, snapshot

__all__ = [
    'CLASSIFIER', 'PIPELINE', 'ROOT', 'SWIN', 'TOOLS', 'VIT', 'Malicious', 'Outcome', 'both', 'changed', 'child',
    'clean', 'cut', 'own_process', 'prepare', 'run', 'run_to', 'saved', 'snapshot', 'starting', 'write',
]  # fmt: skip
