"""Measure models under conditions: python tools/study.py RUN [RUN ...] --paper NAME --out DIR"""

import sys

from vitplug.cli import run

if __name__ == '__main__':
    sys.exit(run('study', sys.argv[1:]))
