#!/usr/bin/env bash
# Evaluate with several processes: tools/dist_test.sh CONFIG CHECKPOINT GPUS [options of test.py]
# On several machines set NNODES, NODE_RANK, MASTER_ADDR and PORT. Without a GPU, GPUS counts processes.
set -euo pipefail

if [ $# -lt 3 ]; then
    echo "usage: $0 CONFIG CHECKPOINT GPUS [options of test.py]" >&2
    exit 2
fi

python -m torch.distributed.run \
    --nnodes="${NNODES:-1}" \
    --node_rank="${NODE_RANK:-0}" \
    --master_addr="${MASTER_ADDR:-127.0.0.1}" \
    --master_port="${PORT:-29500}" \
    --nproc_per_node="$3" \
    "$(dirname "$0")/test.py" "$1" "$2" --launcher pytorch "${@:4}"
