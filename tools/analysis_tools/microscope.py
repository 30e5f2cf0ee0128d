"""One HTML report of a model: python tools/analysis_tools/microscope.py CONFIG CHECKPOINT IMAGE... --out HTML"""

import sys

from vitplug.cli import run

if __name__ == '__main__':
    sys.exit(run('microscope', sys.argv[1:]))
