"""Export a trained model as one file: python tools/export.py CONFIG CHECKPOINT --out FILE [--dynamic AXES] [...]"""

import sys

from vitplug.cli import run

if __name__ == '__main__':
    sys.exit(run('export', sys.argv[1:]))
