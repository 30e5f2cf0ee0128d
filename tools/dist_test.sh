#!/usr/bin/env bash
# Evaluate with several processes: tools/dist_test.sh CONFIG CHECKPOINT GPUS [options of test.py]
# Environment: that of dist_train.sh.
set -euo pipefail

if [ $# -lt 3 ]; then
    echo "usage: $0 CONFIG CHECKPOINT GPUS [options of test.py]" >&2
    exit 2
fi

TOOL=test.py exec bash "$(dirname "$0")/dist_train.sh" "$1" "$3" "$2" "${@:4}"
