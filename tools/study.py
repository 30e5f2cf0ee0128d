"""Measure models under conditions: python tools/study.py RUN [RUN ...] --paper NAME --out DIR"""

import sys

from vitplug.process import prepare

if __name__ == '__main__':
    prepare()  # before torch is loaded

    from vitplug.lab.study.command import main

    sys.exit(main())
