"""Effective receptive field: python tools/analysis_tools/erf.py CONFIG CHECKPOINT --images DIR|val --out DIR"""

import sys

from vitplug.process import prepare

if __name__ == '__main__':
    prepare()  # before torch is loaded

    from vitplug.analysis.erf.erf_command import main

    sys.exit(main())
