"""Count parameters and MACs: python tools/analysis_tools/get_flops.py CONFIG [--shape HEIGHT WIDTH]"""

import sys

from vitplug.cli import run

if __name__ == '__main__':
    sys.exit(run('flops', sys.argv[1:]))
