"""Check all data before a training: python tools/misc/check_dataset.py CONFIG [--workers N] [--report FILE] [...]"""

import sys

from vitplug import chatter, threads

if __name__ == '__main__':
    threads.configure()  # before torch is loaded
    chatter.filter_lines()

    from vitplug.runs.dataset_check import main

    sys.exit(main())
