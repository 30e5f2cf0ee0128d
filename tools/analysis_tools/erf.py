"""Effective receptive field: python tools/analysis_tools/erf.py CONFIG CHECKPOINT --images DIR|val --out DIR"""

import sys

from vitplug import chatter, threads

if __name__ == '__main__':
    threads.configure()  # before torch is loaded
    chatter.filter_lines()

    from vitplug.analysis.erf.erf_command import main

    sys.exit(main())
