"""Programs in the place of those that tools/*.sh start; they print what they are called with."""

import os
from pathlib import Path

# Prints its arguments, one a line, behind the variables that a node gets.
PYTHON = r"""#!/bin/sh
for name in NNODES NODE_RANK MASTER_ADDR PORT RDZV_ID; do eval "echo $name=\$$name"; done
printf "%s\n" "$@"
"""
# Prints its options, and runs the rest as the last node of a job does.
SRUN = r"""#!/bin/sh
while [ "${1#-}" != "$1" ]; do
    case $1 in --nodes=*) SLURM_NNODES=${1#--nodes=} ;; esac
    echo "srun $1"
    shift
done
export SLURM_NNODES SLURM_NODEID=$((SLURM_NNODES - 1)) SLURM_JOB_ID=40123 SLURM_JOB_NODELIST='gpu[3-10]'
exec "$@"
"""
SCONTROL = r"""#!/bin/sh
[ "$*" = 'show hostnames gpu[3-10]' ] && printf 'gpu3\ngpu4\n'
"""


def write_programs(folder: Path) -> str:
    """Writes them into a folder, and gives a PATH on which they come first."""
    for name, text in (('python', PYTHON), ('srun', SRUN), ('scontrol', SCONTROL)):
        folder.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
        (folder / name).chmod(0o755)
    return f'{folder}:{os.environ["PATH"]}'
