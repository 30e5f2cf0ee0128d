"""Robustness: python tools/analysis_tools/robustness.py CONFIG CHECKPOINT [...] --suite S --out DIR"""

import sys

from vitplug import chatter, threads

if __name__ == '__main__':
    threads.configure()  # before torch is loaded
    chatter.filter_lines()

    from vitplug.robustness.robustness_command import main

    sys.exit(main())
