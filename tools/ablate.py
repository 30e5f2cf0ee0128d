"""Train a grid of plugs with seeds: python tools/ablate.py CONFIG --plugs none cb gab --seeds 5 [--out DIR] [...]"""

import sys

from vitplug.cli import run

if __name__ == '__main__':
    sys.exit(run('ablate', sys.argv[1:]))
