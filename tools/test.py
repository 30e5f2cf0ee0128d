"""Evaluate a checkpoint: python tools/test.py CONFIG CHECKPOINT [--out PKL] [--show-dir DIR] [...]"""

import sys

from vitplug.cli import run

if __name__ == '__main__':
    sys.exit(run('test', sys.argv[1:]))
