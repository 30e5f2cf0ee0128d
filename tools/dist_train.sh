#!/usr/bin/env bash
# Train with several processes: tools/dist_train.sh CONFIG GPUS [options of train.py]
# On several machines set NNODES, NODE_RANK, MASTER_ADDR and PORT. Without a GPU, GPUS counts processes.
set -euo pipefail

if [ $# -lt 2 ]; then
    echo "usage: $0 CONFIG GPUS [options of train.py]" >&2
    exit 2
fi

python -m torch.distributed.run \
    --nnodes="${NNODES:-1}" \
    --node_rank="${NODE_RANK:-0}" \
    --master_addr="${MASTER_ADDR:-127.0.0.1}" \
    --master_port="${PORT:-29500}" \
    --nproc_per_node="$2" \
    "$(dirname "$0")/${TOOL:-train.py}" "$1" --launcher pytorch "${@:3}"
