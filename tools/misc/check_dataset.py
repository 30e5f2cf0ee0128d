"""Check all data before a training: python tools/misc/check_dataset.py CONFIG [...]"""

import sys

from vitplug.cli import run

if __name__ == '__main__':
    sys.exit(run('check', sys.argv[1:]))
