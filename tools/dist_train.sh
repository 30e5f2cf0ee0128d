#!/usr/bin/env bash
# Train with several processes: tools/dist_train.sh CONFIG GPUS [options of train.py]
# GPUS are those of one machine; without a GPU, they count processes.
# On several machines, call it on each, with the same NNODES, MASTER_ADDR (one of them) and PORT (default 29500).
# NODE_RANK is optional: 0 on MASTER_ADDR. RDZV_ID tells runs on one MASTER_ADDR and PORT apart (default vitplug).
# LOCAL_ADDR: address of this machine for the others, where its name is none.
set -euo pipefail

if [ $# -lt 2 ]; then
    echo "usage: $0 CONFIG GPUS [options of train.py]" >&2
    exit 2
fi

# One machine alone needs no port that others know: 0 takes a free one.
NNODES=${NNODES:-1}
PORT=${PORT:-$((NNODES > 1 ? 29500 : 0))}
# Without it, torchrun compares MASTER_ADDR with the names of this machine.
IS_HOST=${NODE_RANK:+--rdzv-conf=is_host=$((NODE_RANK == 0))}

exec python -m torch.distributed.run \
    --nnodes="$NNODES" \
    --nproc-per-node="$2" \
    --rdzv-backend=c10d \
    --rdzv-endpoint="${MASTER_ADDR:-127.0.0.1}:$PORT" \
    --rdzv-id="${RDZV_ID:-vitplug}" \
    ${IS_HOST:+"$IS_HOST"} \
    ${LOCAL_ADDR:+--local-addr="$LOCAL_ADDR"} \
    "$(dirname "$0")/${TOOL:-train.py}" "$1" --launcher pytorch "${@:3}"
