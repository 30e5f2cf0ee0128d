"""Look at all data before training: python tools/misc/check_dataset.py CONFIG [--workers N] [--report FILE] [...]"""

import sys

from vitplug.engine.dataset_check import main

if __name__ == '__main__':
    sys.exit(main())
