"""Measure the cost of plugs: python tools/analysis_tools/benchmark.py [--parts time overhead] [...]"""

import sys

from vitplug.cli import run

if __name__ == '__main__':
    sys.exit(run('bench', sys.argv[1:]))
