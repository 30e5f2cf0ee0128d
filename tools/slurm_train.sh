#!/usr/bin/env bash
# Train under Slurm: tools/slurm_train.sh PARTITION JOB_NAME CONFIG [options of train.py]
# One torchrun on each node, by dist_train.sh.
# Environment: GPUS (total, default 8), GPUS_PER_NODE (default 8, or GPUS if fewer), CPUS_PER_TASK (cores for each GPU,
# default 5), GRES (default gpu:GPUS_PER_NODE; empty where there is none), SRUN_ARGS (more options of srun).
set -euo pipefail

if [ $# -lt 3 ]; then
    echo "usage: $0 PARTITION JOB_NAME CONFIG [options of train.py]" >&2
    exit 2
fi

GPUS=${GPUS:-8}
GPUS_PER_NODE=${GPUS_PER_NODE:-$((GPUS < 8 ? GPUS : 8))}
if [ $((GPUS % GPUS_PER_NODE)) -ne 0 ]; then
    echo "error: GPUS=$GPUS are not whole nodes of GPUS_PER_NODE=$GPUS_PER_NODE: choose a multiple" >&2
    exit 2
fi
GRES=${GRES-gpu:$GPUS_PER_NODE}

# What each node runs. Jobs that share a node have ports apart.
# shellcheck disable=SC2016
NODE='
export NNODES=$SLURM_NNODES NODE_RANK=$SLURM_NODEID RDZV_ID=$SLURM_JOB_ID PORT=$((20000 + SLURM_JOB_ID % 20000))
export MASTER_ADDR=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
exec bash "$@"'

# SRUN_ARGS holds several words, so it stays unquoted.
exec srun --partition="$1" \
    --job-name="$2" \
    --nodes=$((GPUS / GPUS_PER_NODE)) \
    --ntasks-per-node=1 \
    ${GRES:+--gres="$GRES"} \
    --cpus-per-task=$((GPUS_PER_NODE * ${CPUS_PER_TASK:-5})) \
    --kill-on-bad-exit=1 \
    ${SRUN_ARGS:-} \
    bash -c "$NODE" node "$(dirname "$0")/dist_train.sh" "$3" "$GPUS_PER_NODE" "${@:4}"
