"""Probe frozen backbones: python tools/probe.py CONFIG [CHECKPOINT] --task TASK --out DIR [...]"""

import sys

from vitplug import chatter, threads

if __name__ == '__main__':
    threads.configure()  # before torch is loaded
    chatter.filter_lines()

    from vitplug.probing.probe_command import main

    sys.exit(main())
