"""Check all data before a training: python tools/misc/check_dataset.py CONFIG [--workers N] [--report FILE] [...]"""

import sys

from vitplug.process import prepare

if __name__ == '__main__':
    prepare()  # before torch is loaded

    from vitplug.runs.dataset_check import main

    sys.exit(main())
