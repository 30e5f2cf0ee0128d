"""Train a model: python tools/train.py CONFIG [--work-dir DIR] [--resume] [--amp] [--cfg-options KEY=VALUE ...]"""

import sys

from vitplug.cli import run

if __name__ == '__main__':
    sys.exit(run('train', sys.argv[1:]))
