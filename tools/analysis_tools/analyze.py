"""Measure what a model does: python tools/analysis_tools/analyze.py CONFIG CHECKPOINT --out DIR [...]"""

import sys

from vitplug.process import prepare

if __name__ == '__main__':
    prepare()  # before torch is loaded

    from vitplug.analysis.study.analyze_command import main

    sys.exit(main())
