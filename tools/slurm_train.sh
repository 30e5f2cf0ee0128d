#!/usr/bin/env bash
# Train under Slurm: tools/slurm_train.sh PARTITION JOB_NAME CONFIG [options of train.py]
# Environment: GPUS (total), GPUS_PER_NODE, CPUS_PER_TASK, SRUN_ARGS (more options of srun).
set -euo pipefail

if [ $# -lt 3 ]; then
    echo "usage: $0 PARTITION JOB_NAME CONFIG [options of train.py]" >&2
    exit 2
fi

GPUS=${GPUS:-8}
GPUS_PER_NODE=${GPUS_PER_NODE:-$((GPUS < 8 ? GPUS : 8))}

# SRUN_ARGS holds several words, so it stays unquoted.
srun --partition="$1" \
    --job-name="$2" \
    --gres="gpu:$GPUS_PER_NODE" \
    --ntasks="$GPUS" \
    --ntasks-per-node="$GPUS_PER_NODE" \
    --cpus-per-task="${CPUS_PER_TASK:-5}" \
    --kill-on-bad-exit=1 \
    ${SRUN_ARGS:-} \
    python -u "$(dirname "$0")/${TOOL:-train.py}" "$3" --launcher slurm "${@:4}"
