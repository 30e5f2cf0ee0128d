#!/usr/bin/env bash
# Evaluate under Slurm: tools/slurm_test.sh PARTITION JOB_NAME CONFIG CHECKPOINT [options of test.py]
# Environment: that of slurm_train.sh.
set -euo pipefail

if [ $# -lt 4 ]; then
    echo "usage: $0 PARTITION JOB_NAME CONFIG CHECKPOINT [options of test.py]" >&2
    exit 2
fi

# The checkpoint is an argument of test.py behind the config, as options are.
TOOL=test.py exec bash "$(dirname "$0")/slurm_train.sh" "$@"
