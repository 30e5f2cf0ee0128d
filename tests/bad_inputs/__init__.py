"""Bad inputs of every kind, what a user does with them and what he is told: a module for each subject.

`running` runs the commands, `folder` has the files that every case begins with, `making` and `harmful` make them bad.
"""

from bad_inputs import arguments, checkpoints, classes, configs, images, language, run_folders
from bad_inputs.configs import MIXER
from bad_inputs.folder import CLASSIFIER, PIPELINE, SWIN, VIT, clean, prepare
from bad_inputs.harmful import UNTRUSTED, Malicious, code_in_meta, fetched_code, lying_header
from bad_inputs.making import changed, child, class_weight, copied, cut, recorded, remove, starting, write
from bad_inputs.running import ROOT, TOOLS, Outcome, own_process, run, run_to, snapshot

__all__ = [
    'CLASSIFIER', 'MIXER', 'PIPELINE', 'ROOT', 'ROWS', 'SWIN', 'TOOLS', 'UNTRUSTED', 'VIT', 'Malicious', 'Outcome',
    'changed', 'child', 'class_weight', 'clean', 'code_in_meta', 'copied', 'cut', 'fetched_code', 'lying_header',
    'own_process', 'prepare', 'recorded', 'remove', 'run', 'run_to', 'snapshot', 'starting', 'write',
]  # fmt: skip

ROWS = {
    'data': images.ROWS,
    'class': classes.ROWS,
    'config': configs.ROWS,
    'checkpoint': checkpoints.ROWS,
    'argument': arguments.ROWS,
    'run folder': run_folders.ROWS,
    'text': language.ROWS,
}
