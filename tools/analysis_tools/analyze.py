"""Measure what a model does: python tools/analysis_tools/analyze.py CONFIG CHECKPOINT --out DIR [...]"""

import sys

from vitplug import chatter, threads

if __name__ == '__main__':
    threads.configure()  # before torch is loaded
    chatter.filter_lines()

    from vitplug.analysis.study.analyze_command import main

    sys.exit(main())
