"""Probe frozen backbones: python tools/probe.py CONFIG [CHECKPOINT] --task TASK --out DIR [...]"""

import sys

from vitplug.process import prepare

if __name__ == '__main__':
    prepare()  # before torch is loaded

    from vitplug.probing.probe_command import main

    sys.exit(main())
