"""Measure what a model does: python tools/analysis_tools/analyze.py CONFIG CHECKPOINT --out DIR [--measures NAME,...]"""

import sys

from vitplug import threads

if __name__ == '__main__':
    threads.configure()  # before torch is loaded

    from vitplug.analysis.study.cli import main

    sys.exit(main())
