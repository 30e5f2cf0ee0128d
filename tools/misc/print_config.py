"""Print or compare configs: python tools/misc/print_config.py CONFIG, or --diff BASE CHILD [--cfg-options ...]"""

import sys

from vitplug.cli import run

if __name__ == '__main__':
    sys.exit(run('config', sys.argv[1:]))
