"""Robustness: python tools/analysis_tools/robustness.py CONFIG CHECKPOINT [...] --suite S --out DIR"""

import sys

from vitplug.process import prepare

if __name__ == '__main__':
    prepare()  # before torch is loaded

    from vitplug.robustness.robustness_command import main

    sys.exit(main())
